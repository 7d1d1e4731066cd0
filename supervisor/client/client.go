// Package client knows how to ask control.sock and root.sock.
//
// It runs with the privilege of whoever calls it, usually a person's. What comes
// over the socket is read with a bound, and a line that is not an answer to the
// call in flight ends the connection.
//
// Invariants:
//   - client-1: a refusal comes back as a *api.Refusal, and nothing else does.
//   - client-2: no line longer than api.MaxLine is held in memory.
//   - client-3: a call whose answer did not arrive is ErrLost, never a success.
//
// It is not an authority on anything: it sends what it is told, holds no
// identity, and never repeats a request by itself.
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"postern/supervisor/api"
)

// dialTimeout bounds the wait for a connection to a local socket.
const dialTimeout = 3 * time.Second

// ErrUnreachable is returned by Dial when nobody serves the socket.
var ErrUnreachable = errors.New("supervisor unreachable")

// ErrLost is returned by Call when the connection ended before the answer:
// whether the request took effect is unknown.
var ErrLost = errors.New("connection ended before the answer")

// Conn is one connection; one call at a time.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
	last uint64
}

// Options are what a request carries beside its parameters.
type Options struct {
	At        uint64 // the version the change was read at; 0: not named
	DryRun    bool
	RequestID string
}

// Dial connects to the socket at path. It returns ErrUnreachable when nobody
// serves it, and an error that is fs.ErrPermission when the caller may not
// connect. The caller closes the Conn.
func Dial(ctx context.Context, path string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &Conn{conn: c, in: bufio.NewReaderSize(c, api.MaxLine+1)}, nil
}

// Close ends the connection; twice is harmless.
func (c *Conn) Close() error { return c.conn.Close() }

// Call sends one request and waits for its answer, until ctx ends. Events that
// come before it go to onEvent, which may be nil and whose error ends the call;
// the bytes it is given are its own only until it returns. After any error that
// is not a *api.Refusal the connection is of no further use.
func (c *Conn) Call(ctx context.Context, action api.Action, params any, o Options, onEvent func(raw []byte) error) ([]byte, error) {
	raw, err := api.Encode(params)
	if err != nil {
		return nil, fmt.Errorf("%s: encode: %w", action, err)
	}
	c.last++
	line, err := api.Encode(api.Request{ID: c.last, Action: action, Params: raw[:len(raw)-1], At: o.At, DryRun: o.DryRun, RequestID: o.RequestID})
	if err != nil {
		return nil, fmt.Errorf("%s: encode: %w", action, err)
	}
	if len(line) > api.MaxLine {
		return nil, fmt.Errorf("%s: request of %d bytes, limit %d", action, len(line), api.MaxLine)
	}
	// The deadline in the past wakes a blocked read or write when ctx ends.
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// A server may refuse and close without reading the request; its refusal
	// can still be read, so a failed write is reported only if nothing came.
	_, sent := c.conn.Write(line)
	for {
		resp, err := c.read()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, fmt.Errorf("%s: %w: %w", action, ErrLost, errors.Join(sent, err))
		case resp.ID != c.last && !(resp.ID == 0 && resp.Refusal != nil): // 0: refused before its id could be read
			return nil, fmt.Errorf("%s: %w: answer %d to request %d", action, ErrLost, resp.ID, c.last)
		case resp.Refusal != nil:
			return nil, resp.Refusal
		case resp.Event != nil:
			if onEvent == nil {
				continue
			}
			if err := onEvent(resp.Event); err != nil {
				return nil, err
			}
		case resp.Result != nil:
			return resp.Result, nil
		default:
			return nil, fmt.Errorf("%s: %w: answer with neither result nor refusal", action, ErrLost)
		}
	}
}

func (c *Conn) read() (api.Response, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return api.Response{}, err // bufio.ErrBufferFull: longer than api.MaxLine
	}
	return api.DecodeResponse(line[:len(line)-1])
}
