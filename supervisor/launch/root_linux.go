package launch

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/peer"
)

// Bounds of root.sock.
const (
	maxRootConns  = 32
	rootIdle      = 10 * time.Minute
	rootWriteWait = 10 * time.Second
)

func (s *Supervisor) listenRoot() (*net.UnixListener, error) {
	f, err := listen(filepath.Join(s.run.path, rootSocket), 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// serveRoot answers root until ctx is done and every answer is written.
func (s *Supervisor) serveRoot(ctx context.Context, l *net.UnixListener) error {
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.SetDeadline(time.Now()) })
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, maxRootConns)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := l.AcceptUnix()
		if err != nil {
			<-slots
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.cfg.Log.Error("accept on root.sock", keyError, err)
			continue
		}
		work.Go(func() {
			defer func() { c.Close(); <-slots }()
			s.serveConn(ctx, c)
		})
	}
}

// serveConn answers one connection. Who it is was fixed when it connected, and a peer
// that has ended since is not answered.
func (s *Supervisor) serveConn(ctx context.Context, c *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
	defer stop()
	p, err := peer.Of(c)
	if err != nil {
		code := refusal.PeerGone
		if errors.Is(err, peer.ErrRefused) {
			code = refusal.PeerRefused
		}
		s.answer(c, api.Response{Refusal: api.Refuse(code, "%v.", err)})
		return
	}
	defer p.Close()
	r := bufio.NewReaderSize(c, api.MaxLine+1)
	for ctx.Err() == nil {
		c.SetReadDeadline(time.Now().Add(rootIdle))
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			s.answer(c, api.Response{Refusal: api.Refuse(refusal.TooLarge, "At most %d bytes.", api.MaxLine)})
			return
		case err != nil: // the end, or half a line of somebody who left
			return
		}
		req, err := api.DecodeRequest(line[:len(line)-1])
		if err != nil {
			s.answer(c, api.Response{Refusal: api.Refuse(refusal.BadRequest, "%v.", err)})
			return
		}
		out := api.Response{ID: req.ID}
		result, refused := s.handle(ctx, p, req, func(v any) bool {
			raw, err := api.EncodeValue(v)
			return err == nil && s.answer(c, api.Response{ID: req.ID, Event: raw})
		})
		if refused != nil {
			out.Refusal = refused
		} else if out.Result, err = json.Marshal(result, json.Deterministic(true)); err != nil {
			out.Refusal = api.Refuse(refusal.Internal, "%v.", err)
		}
		if !s.answer(c, out) {
			return
		}
	}
}

func (s *Supervisor) answer(c *net.UnixConn, r api.Response) bool {
	raw, err := api.Encode(r)
	if err == nil && len(raw) > api.MaxLine {
		raw, err = api.Encode(api.Response{ID: r.ID, Refusal: api.Refuse(refusal.TooLarge, "The answer is longer than %d bytes; ask for less.", api.MaxLine)})
	}
	if err != nil {
		return false
	}
	c.SetWriteDeadline(time.Now().Add(rootWriteWait))
	_, err = c.Write(raw)
	return err == nil || errors.Is(err, io.ErrShortWrite)
}

// handle does one request of uid 0 and of nobody else.
func (s *Supervisor) handle(ctx context.Context, p *peer.Peer, req api.Request, event func(any) bool) (any, *api.Refusal) {
	switch {
	case p.UID != 0:
		return nil, api.Refuse(refusal.NotPermitted, "Only root may; no part in a project is enough. You are uid %d.", p.UID)
	case !p.Alive():
		return nil, api.Refuse(refusal.PeerGone, "")
	case api.ServedBy(req.Action) != api.RootSocket:
		return nil, api.Refuse(refusal.BadRequest, "%.64q is not served here.", req.Action)
	}
	r := request{ctx: ctx, peer: p, Request: req, event: event}
	// It is asked again where the change is made; here it spares what comes before one.
	if f, _ := s.now(); f.ReadOnly != 0 {
		if refused := f.frozen(r); refused != nil {
			return nil, refused
		}
	}
	switch req.Action {
	case api.AccountAdd:
		return s.accountAdd(r)
	case api.AccountDelete:
		return s.accountDelete(r)
	case api.ProjectAdd:
		return s.projectAdd(r)
	case api.ProjectSet:
		return s.projectSet(r)
	case api.ProjectMove:
		return s.projectMove(r)
	case api.ServerAdd, api.ServerUpdate:
		return s.serverPut(r)
	case api.ServerDelete:
		return s.serverDelete(r)
	case api.ServerList:
		return s.serverList(r)
	case api.ServerShow:
		return s.serverShow(r)
	case api.ServerDiff:
		return s.serverDiff(r)
	case api.ServerGC:
		return s.serverGC(r)
	case api.CredentialAdd:
		return s.credentialAdd(r)
	case api.CredentialRotate:
		return s.credentialRotate(r)
	case api.CredentialRevoke:
		return s.credentialRevoke(r)
	case api.CredentialList:
		return s.credentialList(r)
	case api.AccessShow:
		return s.accessShow(r)
	case api.AccessMatrix:
		return s.accessMatrix(r)
	case api.AccessEdit:
		return s.accessEdit(r)
	case api.RootBackup:
		return s.rootBackup(r)
	case api.ReadOnlySet:
		return s.readOnlySet(r)
	case api.RootStatus:
		return s.rootStatus(r)
	}
	return nil, api.Refuse(refusal.BadRequest, "%.64q is not served here.", req.Action)
}

// rootStatus tells what runs.
func (s *Supervisor) rootStatus(r request) (any, *api.Refusal) {
	if _, err := api.DecodeParams[struct{}](r.Params); err != nil {
		return nil, api.Refuse(refusal.BadRequest, "%v.", err)
	}
	f, l := s.now()
	state, _ := s.accessState()
	s.mu.Lock()
	out := api.RootStatusResult{Access: state, Version: version(), Instance: string(f.Instance), Cgroup: s.launcher.Mode(), UIDFirst: s.cfg.UIDs.First, UIDCount: s.cfg.UIDs.Count,
		RootDir: s.cfg.RootDir, Libexec: s.cfg.Libexec, AuthorityUID: s.cfg.UID, PID: os.Getpid(), Restarts: s.restarts, Jails: len(s.jails), Warnings: s.view(f, s.live).Warnings, Config: s.config,
		Goroutines: runtime.NumGoroutine()}
	s.mu.Unlock()
	out.Warnings = append(out.Warnings, s.secrets.warnings(f)...)
	if l != nil {
		out.Authority = l.a.proc.Pid
	}
	return out, nil
}
