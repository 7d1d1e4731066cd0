package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"postern/ids"
	"postern/policy/access"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/gate"
	"postern/supervisor/pairing"
	"postern/supervisor/registry"
)

// sinceBoot is the clock of pairing codes: nobody sets it, and it goes on in a suspended
// host. Where it cannot be read no code is good.
func (a *actions) sinceBoot() (time.Duration, error) {
	now := a.Instant()
	if now.ID == "" {
		return 0, api.Refuse(refusal.Internal, "The clock since the boot cannot be read.")
	}
	return now.Boot, nil
}

// mayPair tells whether somebody of a channel would be paired by a code; without an id,
// whoever the policy does not name. It runs on the loop.
func (a *actions) mayPair(who access.Principal) error {
	switch r := a.reg.Root().Access.Pairs(who); {
	case r.Admitted && r.Kind == access.Paired:
		return nil
	case r.Admitted:
		return api.Refuse(refusal.AlreadyExists, "The access policy names this identity (%s), and that holds.", r.From)
	default:
		return api.Refuse(r.Code, "%s (%s).", who.Channel, r.From)
	}
}

// accessPair makes a code for whoever writes it in a channel: root gives it.
func (a *actions) accessPair(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.PairParams](c)
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(p.TTLMs) * time.Millisecond
	if p.TTLMs == 0 {
		ttl = pairing.DefaultTTL
	}
	switch err := access.CheckChannel(p.Channel); {
	case !c.Who.Root:
		return nil, rootOnly()
	case err != nil:
		return nil, api.Refuse(refusal.BadRequest, "%v.", err)
	case p.Channel == access.Channel:
		return nil, api.Refuse(refusal.BadRequest, "People of channel %s are accounts; they are not paired.", p.Channel)
	case p.TTLMs < 0 || p.TTLMs > pairing.MaxTTL.Milliseconds() || ttl < pairing.MinTTL:
		return nil, api.Refuse(refusal.BadRequest, "A code can be used for %v to %v.", pairing.MinTTL, pairing.MaxTTL)
	}
	out := api.PairResult{Channel: p.Channel}
	err = a.do(ctx, func() error {
		if err := a.mayPair(access.Principal{Channel: p.Channel}); err != nil {
			return err
		}
		now, err := a.sinceBoot()
		if err != nil {
			return err
		}
		switch err := a.codes.Free(p.Channel, now); {
		case errors.Is(err, pairing.ErrPaused):
			return api.Refuse(refusal.Busy, "%d wrong codes were tried in %s; after a pause of %v one can be made again.", pairing.MaxWrong, p.Channel, pairing.Pause)
		case err != nil:
			return api.Refuse(refusal.Busy, "%d codes of %s can be used already.", pairing.MaxCodes, p.Channel)
		}
		out.Usable = a.codes.Count(p.Channel, now) + 1
		if c.Req.DryRun {
			return nil
		}
		expires := a.Now().Add(ttl)
		if err := a.Gate.Note(gate.Note{Target: p.Channel, Before: fmt.Sprintf("%d usable codes", out.Usable-1), After: fmt.Sprintf("%d usable codes, the new one until %s", out.Usable, expires.UTC().Format(time.RFC3339))}); err != nil {
			return err
		}
		var random [pairing.RandomLen]byte
		rand.Read(random[:])
		code := pairing.New(random)
		if err := a.codes.Add(p.Channel, code, ttl, now); err != nil {
			return err
		}
		out.Code, out.Expires = code.Secret(), expires.UnixMilli()
		return nil
	})
	return out, err
}

// person reads the identity that is paired or unpaired.
func person(text string) (access.Principal, error) {
	who, err := access.ParsePrincipal(text)
	switch {
	case err != nil:
		return who, api.Refuse(refusal.PrincipalRefused, "%v.", err)
	case who.Group != "" || who.Channel == access.Channel:
		return who, api.Refuse(refusal.PrincipalRefused, "People of a channel are paired: no groups, and nobody of channel %s.", access.Channel)
	}
	return who, nil
}

// accessRedeem pairs whoever wrote a code to a host, which says who that is: it may, for
// the channels that root's configuration gives it. A trial run looks at no code, for it
// would be a way to guess that counts nothing.
func (a *actions) accessRedeem(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.RedeemParams](c)
	if err != nil {
		return nil, err
	}
	who, err := person(p.Principal)
	if err != nil {
		return nil, err
	}
	var out api.PairedRow
	check := func() (registry.Change, error) {
		h, ok := a.reg.Root().HostOf(c.Who.UID)
		switch {
		case !ok:
			return registry.Change{}, refusal.HostUnknown
		case !h.Speaks(who.Channel):
			return registry.Change{}, api.Refuse(refusal.HostNotAssigned, "Host %q may name nobody of channel %q; its channels are in postern.yaml.", h.ID, who.Channel)
		}
		if err := a.mayPair(who); err != nil {
			return registry.Change{}, err
		}
		level := access.Read.String()
		out = api.PairedRow{Principal: who.String(), Host: h.ID, At: a.Now().UnixMilli(), Kind: access.Paired.String(), Admitted: true, Level: &level}
		return a.reg.Pair(who, h.ID, a.Now())
	}
	if c.Req.DryRun {
		err := a.do(ctx, func() error { _, err := check(); return err })
		return out, err
	}
	// By way of the fences: whoever gains is asked about again in what is open.
	_, err = a.Workers.Narrow(ctx, func() ([]ids.Project, error) {
		ch, err := check()
		if err != nil {
			return nil, told(err)
		}
		err = a.Gate.As(actorOf(ctx), func() error { return a.redeem(who, p.Code, ch) })
		return a.reg.ProjectsFor(who), told(err)
	})
	return out, err
}

// redeem tries a code. It is used up only by what became durable, and a wrong one counts
// whether or not that can be recorded.
func (a *actions) redeem(who access.Principal, text string, ch registry.Change) error {
	now, err := a.sinceBoot()
	if err != nil {
		return err
	}
	t := a.codes.Look(who.Channel, text, now)
	if t.Good {
		if err := a.Gate.Apply(ch); err != nil {
			return err
		}
		a.codes.Take(who.Channel, text, now)
		return nil
	}
	a.codes.Take(who.Channel, text, now)
	if t.Wrong > 0 {
		n := gate.Note{Target: who.Channel + ":" + access.Mask(who.ID), Before: "not paired", After: fmt.Sprintf("not paired: wrong code, the %d. of at most %d", t.Wrong, pairing.MaxWrong)}
		if t.Ended > 0 {
			n.After += fmt.Sprintf("; %d usable codes of the channel ended", t.Ended)
		}
		if err := a.Gate.Note(n); err != nil {
			a.Log.Error("a wrong pairing code could not be recorded", "error", err)
		}
	}
	return refusal.PairingRefused
}

// accessUnpair makes somebody a stranger again, or what the policy says: it narrows.
func (a *actions) accessUnpair(ctx context.Context, c *Call) (any, error) {
	p, err := params[api.UnpairParams](c)
	if err != nil {
		return nil, err
	}
	if !c.Who.Root {
		return nil, rootOnly()
	}
	who, err := person(p.Principal)
	if err != nil {
		return nil, err
	}
	return a.narrow(ctx, c, who.String(), func() (registry.Change, []ids.Project, error) {
		ch, err := a.reg.Unpair(who)
		return ch, a.reg.ProjectsFor(who), err
	})
}

// accessPaired lists who is paired, and what that is worth now.
func (a *actions) accessPaired(ctx context.Context, c *Call) (any, error) {
	if _, err := params[struct{}](c); err != nil {
		return nil, err
	}
	if !c.Who.Root {
		return nil, rootOnly()
	}
	out := api.PairedResult{Paired: []api.PairedRow{}, Usable: map[string]int{}}
	err := a.do(ctx, func() error {
		now, err := a.sinceBoot()
		if err != nil {
			return err
		}
		for _, name := range a.codes.Channels(now) {
			out.Usable[name] = a.codes.Count(name, now)
		}
		for _, p := range a.reg.AllPaired() {
			who := access.Principal{Channel: p.Channel, ID: p.Identity}
			r := a.reg.Root().Access.Pairs(who)
			row := api.PairedRow{Principal: who.String(), Host: p.Host, At: p.At, Kind: r.Kind.String(), Admitted: r.Admitted, Code: string(r.Code)}
			if r.Level != access.NoLevel {
				level := r.Level.String()
				row.Level = &level
			}
			out.Paired = append(out.Paired, row)
		}
		return nil
	})
	return out, err
}
