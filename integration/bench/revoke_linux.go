package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// Sizes of the measurement.
const (
	cutProjects = 20  // each with a bridge and a tool server
	cutSessions = 10  // of each project, all of which call without a pause
	cutTurns    = 200 // revocations, of one project after the other
)

// caller is one session that bears to be refused.
type caller struct {
	conn net.Conn
	out  *bufio.Reader
	n    int
	busy int
	over bool
	seen []seen
}

// seen is one answer, by the monotonic clock.
type seen struct {
	sent, got time.Time
	admitted  bool
}

func openCaller(r *rig.Rig, project string) (*caller, error) {
	conn, err := dialAs(personUID, filepath.Join(r.RunDir, "p", project, "bridge.sock"))
	if err != nil {
		return nil, err
	}
	c := &caller{conn: conn, out: bufio.NewReaderSize(conn, longest)}
	if _, err := io.WriteString(conn, `{"postern":{"bind":1}}`+"\n"); err != nil {
		return nil, err
	}
	if line, err := c.out.ReadString('\n'); err != nil || !bytes.Contains([]byte(line), []byte(`"session"`)) {
		return nil, fmt.Errorf("bind: %s %v", line, err)
	}
	if _, err := io.WriteString(conn, `{"postern":{"stdio":"here"}}`+"\n"); err != nil {
		return nil, err
	}
	_, err = c.ask(`"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return c, err
}

// ask returns the answer's line; what comes beside it is read over.
func (c *caller) ask(methodAndParams string) ([]byte, error) {
	c.n++
	if _, err := fmt.Fprintf(c.conn, `{"jsonrpc":"2.0","id":%d,"method":%s}`+"\n", c.n, methodAndParams); err != nil {
		return nil, err
	}
	id := fmt.Appendf(nil, `"id":%d`, c.n)
	for {
		line, err := c.out.ReadSlice('\n')
		if err != nil || bytes.Contains(line, id) {
			return line, err
		}
	}
}

// call records what came. A call that a revocation cancelled was admitted.
func (c *caller) call() error {
	s := seen{sent: time.Now()}
	line, err := c.ask(payload)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		c.over = true // its bridge was ended, by a fence that it did not answer
		return nil
	}
	if err != nil {
		return err
	}
	s.got = time.Now()
	switch {
	case !bytes.Contains(line, []byte(`"isError":true`)) && !bytes.Contains(line, []byte(`"error":`)), bytes.Contains(line, []byte(`"call_revoked"`)):
		s.admitted = true
	case bytes.Contains(line, []byte(`"busy"`)): // refused for another reason
		c.busy++
		return nil
	case !bytes.Contains(line, []byte(`"tool_not_granted"`)):
		return fmt.Errorf("answered %s", line)
	}
	c.seen = append(c.seen, s)
	return nil
}

// revocations measures from the request to the answer of connection revoke, while
// every session calls the tool, and counts calls that were admitted although they began
// after it had returned.
func revocations() error {
	return installed(func(s *installation, pkg string) error {
		if err := s.found(pkg); err != nil {
			return err
		}
		callers := make([][]*caller, cutProjects)
		for i := range cutProjects {
			if err := s.add(i); err != nil {
				return err
			}
		}
		if err := s.grant(0, cutProjects); err != nil {
			return err
		}
		for i, p := range s.projects {
			for range cutSessions {
				c, err := openCaller(s.r, p)
				if err != nil {
					return err
				}
				defer c.conn.Close()
				callers[i] = append(callers[i], c)
			}
		}
		return s.cut(callers)
	})
}

// without is a time in which a tool was not granted.
type without struct{ returned, until time.Time }

func (s *installation) cut(callers [][]*caller) error {
	var stop atomic.Bool
	var calling sync.WaitGroup
	all := slices.Concat(callers...)
	errs := make([]error, len(all))
	for i, c := range all {
		calling.Go(func() {
			for !stop.Load() && errs[i] == nil && !c.over {
				errs[i] = c.call()
			}
		})
	}
	var took []time.Duration
	windows := make([][]without, len(callers))
	fenced, killed, named := 0, 0, 0
	err := func() error {
		for turn := range cutTurns {
			i := turn % len(callers)
			con := api.ConnectionParams{Project: s.projects[i], Server: "count", Tools: []string{"echo"}}
			var r api.RevokeResult
			began := time.Now()
			if err := s.ask(api.ConnectionRevoke, con, &r); err != nil {
				return err
			}
			w := without{returned: time.Now()}
			took = append(took, w.returned.Sub(began))
			fenced, killed, named = fenced+r.Fenced, killed+r.Killed, named+len(r.Stands)
			time.Sleep(10 * time.Millisecond) // in which its sessions run into the refusal
			w.until = time.Now()
			windows[i] = append(windows[i], w)
			con.Tier = "reversible"
			if err := s.ask(api.ConnectionGrant, con, nil); err != nil {
				return err
			}
		}
		return nil
	}()
	stop.Store(true)
	calling.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	admitted, refused, busy, over, after := 0, 0, 0, 0, 0
	for i, of := range callers {
		for _, c := range of {
			if busy += c.busy; c.over {
				over++
			}
			for _, a := range c.seen {
				if !a.admitted {
					refused++
					continue
				}
				admitted++
				if slices.ContainsFunc(windows[i], func(w without) bool { return a.sent.After(w.returned) && a.got.Before(w.until) }) {
					after++
				}
			}
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	fmt.Printf("%d sessions of %d projects, %d calls admitted, %d refused, %d told that Postern is busy, %d sessions ended with their bridge\n", len(all), len(callers), admitted, refused, busy, over)
	fmt.Printf("%d revocations: p50 %.1f ms, p99 %.1f, longest %.1f; %d fences answered, %d bridges killed, %d calls named as admitted before\n", len(took), ms(took[len(took)/2]), ms(took[len(took)*99/100]), ms(took[len(took)-1]), fenced, killed, named)
	fmt.Printf("admitted although they began after a revocation had returned: %d\n", after)
	return nil
}
