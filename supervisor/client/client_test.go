package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/refusal"
	"postern/supervisor/api"
)

// serve answers every request line on a real socket with the lines f returns
// and then, when f says so, closes.
func serve(t *testing.T, f func(api.Request) (lines string, hangUp bool)) *Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			req, err := api.DecodeRequest(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				return
			}
			out, hangUp := f(req)
			c.Write([]byte(out))
			if hangUp {
				return
			}
		}
	}()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func answer(t *testing.T, r api.Response) string {
	t.Helper()
	b, err := api.Encode(r)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestClient1_OnlyARefusalIsARefusal(t *testing.T) {
	c := serve(t, func(r api.Request) (string, bool) {
		if r.Action == api.ConnectionGrant {
			return answer(t, api.Response{ID: r.ID, Refusal: api.Refuse(refusal.NotPermitted, "x")}), false
		}
		return answer(t, api.Response{ID: r.ID, Event: []byte(`{"text":"a"}`)}) + answer(t, api.Response{ID: r.ID, Result: []byte(`{"rows":[]}`)}), false
	})
	_, err := c.Call(t.Context(), api.ConnectionGrant, api.ConnectionParams{Project: "p"}, Options{At: 3, DryRun: true}, nil)
	var r *api.Refusal
	if !errors.As(err, &r) || r.Code != refusal.NotPermitted {
		t.Fatalf("%v", err)
	}
	var events []string
	raw, err := c.Call(t.Context(), api.Ps, api.ProjectParams{}, Options{}, func(raw []byte) error { events = append(events, string(raw)); return nil })
	if err != nil || string(raw) != `{"rows":[]}` || len(events) != 1 || events[0] != `{"text":"a"}` {
		t.Fatalf("%s %q %v", raw, events, err)
	}
	stop := errors.New("stop")
	if _, err = c.Call(t.Context(), api.Ps, api.ProjectParams{}, Options{}, func([]byte) error { return stop }); !errors.Is(err, stop) || errors.As(err, &r) {
		t.Fatalf("%v", err)
	}
}

func TestOptionsTravel(t *testing.T) {
	got := make(chan api.Request, 1)
	c := serve(t, func(r api.Request) (string, bool) {
		got <- r
		return answer(t, api.Response{ID: r.ID, Result: []byte(`{}`)}), false
	})
	if _, err := c.Call(t.Context(), api.ProjectDelete, api.Selected{Selector: "demo"}, Options{At: 7, DryRun: true, RequestID: "r1"}, nil); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.At != 7 || !r.DryRun || r.RequestID != "r1" || string(r.Params) != `{"selector":"demo"}` {
		t.Fatalf("%+v", r)
	}
}

func TestClient2_ALongLineIsNotRead(t *testing.T) {
	long := func(n int) string { // a whole answer line of n bytes with its newline
		frame := len(answer(t, api.Response{ID: 1, Result: []byte(`""`)}))
		return answer(t, api.Response{ID: 1, Result: []byte(`"` + strings.Repeat("x", n-frame) + `"`)})
	}
	fits := serve(t, func(api.Request) (string, bool) { return long(api.MaxLine + 1), false })
	if _, err := fits.Call(t.Context(), api.Ps, struct{}{}, Options{}, nil); err != nil {
		t.Fatalf("a line of exactly the limit: %v", err)
	}
	over := serve(t, func(api.Request) (string, bool) { return long(api.MaxLine + 2), false })
	if _, err := over.Call(t.Context(), api.Ps, struct{}{}, Options{}, nil); !errors.Is(err, ErrLost) || !errors.Is(err, bufio.ErrBufferFull) {
		t.Fatalf("%v", err)
	}
	if _, err := over.Call(t.Context(), api.Ps, strings.Repeat("x", api.MaxLine), Options{}, nil); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Fatalf("an over-long request was sent: %v", err)
	}
}

func TestClient3_NoAnswerIsNoSuccess(t *testing.T) {
	for name, line := range map[string]string{
		"closed":          "",
		"cut":             `{"id":1,"result":{}`,
		"another id":      `{"id":2,"result":{}}` + "\n",
		"nothing in it":   `{"id":1}` + "\n",
		"unknown member":  `{"id":1,"result":{},"granted":true}` + "\n",
		"repeated member": `{"id":1,"result":{},"result":{}}` + "\n",
		"not JSON":        "hello\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(api.Request) (string, bool) { return line, true })
			if raw, err := c.Call(t.Context(), api.Ps, struct{}{}, Options{}, nil); !errors.Is(err, ErrLost) || raw != nil {
				t.Fatalf("%s %v", raw, err)
			}
		})
	}
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := serve(t, func(api.Request) (string, bool) { cancel(); return "", false })
		if _, err := c.Call(ctx, api.Ps, struct{}{}, Options{}, nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		c := serve(t, func(api.Request) (string, bool) { return "", false })
		if _, err := c.Call(ctx, api.Ps, struct{}{}, Options{}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
	})
}

func TestNobodyServes(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, ErrUnreachable) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v", err)
	}
	stale := filepath.Join(dir, "stale")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if _, err := os.Stat(stale); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), stale); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("%v", err)
	}
}
