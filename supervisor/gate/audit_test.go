package gate

import (
	"errors"
	"testing"

	"postern/ids"
	"postern/refusal"
)

func TestC9_NoChangeWithoutItsRecord(t *testing.T) {
	w := newWorld(t)
	acc := id[ids.Account](alice)
	change := func(off bool) error {
		c, err := w.reg().Suspend(acc, off, 0)
		if err != nil {
			t.Fatal(err)
		}
		return w.g.As(Actor{By: "uid 7", Action: "account.suspend"}, func() error { return w.g.Apply(c) })
	}
	type line struct {
		who           Actor
		target, after string
	}
	var lines []line
	w.g.audit = func(who Actor, n Note) error {
		lines = append(lines, line{who, n.Target, n.After})
		return nil
	}
	if err := change(true); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || lines[0] != (line{Actor{By: "uid 7", Action: "account.suspend"}, string(acc), "suspended"}) {
		t.Fatalf("%+v", lines)
	}
	for says, audit := range map[string]func(Actor, Note) error{
		"a record that cannot be written": func(Actor, Note) error { return errors.New("disk full") },
		"no record at all":                nil,
	} {
		w.g.audit = audit
		if err := change(false); !errors.Is(err, refusal.StoreUnavailable) {
			t.Errorf("%s: %v", says, err)
		}
		if c, err := w.reg().Suspend(acc, false, 0); err != nil || c.Empty() {
			t.Errorf("%s: the account is active: %v", says, err)
		}
	}
	// What nobody asked for is the authority's own.
	w.g.audit = func(who Actor, _ Note) error {
		lines = append(lines, line{who: who})
		return nil
	}
	c, err := w.reg().Suspend(acc, false, 0)
	if err == nil {
		err = w.g.Apply(c)
	}
	if err != nil || lines[1].who != (Actor{}) {
		t.Errorf("%v, %+v", err, lines[1:])
	}
}
