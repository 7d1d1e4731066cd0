// Package control serves control.sock: what operators, project owners and hosts
// ask of the authority by the command line.
//
// It runs as the unprivileged authority. Every byte of a client is hostile; its
// identity is the uid the kernel gives (SO_PEERCRED and a living pidfd), never a
// member of a request.
//
// Invariants:
//   - control-1: observing and narrowing work by account uid; widening needs uid 0; a host's uid makes tasks and hands in pairing codes, and nothing else.
//   - control-2: a request that is not understood changes nothing.
//   - control-3: a change and its dry run go through the same function, and a dry run writes nothing.
//   - control-4: one client that is slow, silent or gone delays no other.
//
// It decides no call: those go to the gate by way of the loop.
package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/peer"
)

// Bounds of the socket.
const (
	MaxClients   = 256              // connections at a time; root may have MaxPerUID beyond them
	MaxPerUID    = 32               // connections of one uid other than root
	IdleClient   = 5 * time.Minute  // without a request
	WriteWait    = 10 * time.Second // for a client to take an answer
	ChangeWait   = 30 * time.Second // for one change or question
	followSilent = time.Minute      // between signs of life on a follow
)

// Who is the peer of one connection.
type Who struct {
	UID  uint32
	Root bool
	peer *peer.Peer
}

// Call is one request being served.
type Call struct {
	Who Who
	Req api.Request
	// Event sends one event of long work or of a follow.
	Event func(v any) error
}

type handler func(ctx context.Context, c *Call) (any, error)

// Server serves one listening socket.
type Server struct {
	handlers map[api.Action]handler
	log      hclog.Logger
	mu       sync.Mutex
	clients  int
	byUID    map[uint32]int
}

// Serve accepts until ctx ends; it owns ln.
func (s *Server) Serve(ctx context.Context, ln *net.UnixListener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		conn, err := ln.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			return fmt.Errorf("control socket: %w", err)
		}
		wg.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s.client(ctx, conn)
		})
	}
}

func (s *Server) enter(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Others may not keep root from stopping them.
	if uid == 0 && s.clients >= MaxClients+MaxPerUID || uid != 0 && (s.clients >= MaxClients || s.byUID[uid] >= MaxPerUID) {
		return false
	}
	s.clients++
	s.byUID[uid]++
	return true
}

func (s *Server) leave(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients--
	if s.byUID[uid]--; s.byUID[uid] <= 0 {
		delete(s.byUID, uid)
	}
}

func (s *Server) client(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	write := func(r api.Response) error {
		line, err := api.Encode(r)
		if err == nil && len(line) > api.MaxLine {
			line, err = api.Encode(api.Response{ID: r.ID, Refusal: api.Refuse(refusal.TooLarge, "The answer is longer than %d bytes; ask for less.", api.MaxLine)})
		}
		if err != nil {
			return err
		}
		conn.SetWriteDeadline(time.Now().Add(WriteWait))
		_, err = conn.Write(line)
		return err
	}
	p, err := peer.Of(conn)
	if err != nil {
		write(api.Response{Refusal: api.Refuse(refusal.PeerRefused, "")})
		return
	}
	defer p.Close()
	if !s.enter(p.UID) {
		write(api.Response{Refusal: api.Refuse(refusal.TooManySession, "")})
		return
	}
	defer s.leave(p.UID)
	who := Who{UID: p.UID, Root: p.UID == 0, peer: p}
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		conn.SetReadDeadline(time.Now().Add(IdleClient))
		line, err := readLine(in)
		if err != nil {
			if errors.Is(err, errLong) {
				write(api.Response{Refusal: api.Refuse(refusal.TooLarge, "A line may have %d bytes.", api.MaxLine)})
			}
			return
		}
		if !p.Alive() {
			return
		}
		req, err := api.DecodeRequest(line)
		if err != nil {
			if write(api.Response{ID: req.ID, Refusal: api.Refuse(refusal.BadRequest, "%v.", err)}) != nil {
				return
			}
			continue
		}
		if write(s.answer(ctx, who, req, func(v any) error {
			raw, err := api.EncodeValue(v)
			if err != nil {
				return err
			}
			return write(api.Response{ID: req.ID, Event: raw})
		})) != nil {
			return
		}
	}
}

func (s *Server) answer(ctx context.Context, who Who, req api.Request, event func(any) error) api.Response {
	h := s.handlers[req.Action]
	if h == nil {
		return api.Response{ID: req.ID, Refusal: api.Refuse(refusal.BadRequest, "There is no action %q here.", req.Action)}
	}
	result, err := h(acting(ctx, who, req), &Call{Who: who, Req: req, Event: event})
	if err == nil {
		raw, e := api.EncodeValue(result)
		if e == nil {
			return api.Response{ID: req.ID, Result: raw}
		}
		err = e
	}
	return api.Response{ID: req.ID, Refusal: s.refuse(req.Action, err)}
}

// refuse turns an error into the table's words. An error that is none of the
// table's is logged here, where it stops, and not shown.
func (s *Server) refuse(a api.Action, err error) *api.Refusal {
	var r *api.Refusal
	var c refusal.Code
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &c):
		return api.Refuse(c, "")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return api.Refuse(refusal.Busy, "It took too long.")
	}
	s.log.Error("a request could not be served", "action", a, "error", err)
	return api.Refuse(refusal.Internal, "The log of the authority says why.")
}

var errLong = errors.New("line is too long")

// readLine reads up to a newline, at most api.MaxLine bytes.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > api.MaxLine {
			return nil, errLong
		}
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
