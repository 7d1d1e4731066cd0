// Package rpc is what the fixture tool servers share: reading JSON lines from stdin,
// writing them to stdout whole, and keeping calls apart. It imports nothing but the
// standard library, so that the fixtures share no parser with what they test.
package rpc

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Message is what a fixture reads of a line.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Cursor    string          `json:"cursor"`
		Version   string          `json:"protocolVersion"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      map[string]json.RawMessage
		RawMeta   json.RawMessage `json:"_meta"`
	} `json:"params"`
	Line []byte `json:"-"` // as it was received
}

// Server answers on stdout.
type Server struct {
	Name  string
	Tools string                          // the JSON array that tools/list answers
	List  func(cursor string) string      // instead of Tools: the result's members
	Call  func(context.Context, *Message) // on its own goroutine
	Other func(*Message) bool             // sees every message first; true when handled

	mu      sync.Mutex
	cancels map[string]context.CancelFunc
}

// Raw writes bytes as they are.
func (s *Server) Raw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(os.Stdout, text)
}

// Halt writes the beginning of a line, nothing for a while, and then the rest of it.
func (s *Server) Halt(begin string, pause time.Duration, rest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(os.Stdout, begin)
	time.Sleep(pause)
	_, _ = io.WriteString(os.Stdout, rest)
}

// Line writes one line.
func (s *Server) Line(format string, args ...any) { s.Raw(fmt.Sprintf(format, args...) + "\n") }

// Result answers m with the members of a result object.
func (s *Server) Result(m *Message, members string) {
	s.Line(`{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, members)
}

// Text answers m with one text block.
func (s *Server) Text(m *Message, text string) {
	quoted, _ := json.Marshal(text)
	s.Result(m, `"content":[{"type":"text","text":`+string(quoted)+`}]`)
}

// Error answers m with an error.
func (s *Server) Error(m *Message, code int, text string) {
	quoted, _ := json.Marshal(text)
	s.Line(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, m.ID, code, quoted)
}

// Token is the progress token of m, nil if it has none.
func (m *Message) Token() json.RawMessage { return m.Params.Meta["progressToken"] }

// Run serves until stdin ends.
func (s *Server) Run() {
	s.cancels = map[string]context.CancelFunc{}
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m := &Message{Line: line}
		if json.Unmarshal(line, m) != nil {
			continue
		}
		_ = json.Unmarshal(m.Params.RawMeta, &m.Params.Meta)
		s.handle(m)
	}
}

func (s *Server) handle(m *Message) {
	if s.Other != nil && s.Other(m) {
		return
	}
	switch m.Method {
	case "initialize":
		s.Result(m, fmt.Sprintf(`"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":%q,"version":"1"}`, m.Params.Version, s.Name))
	case "ping":
		s.Result(m, "")
	case "tools/list":
		if s.List != nil {
			s.Result(m, s.List(m.Params.Cursor))
			return
		}
		s.Result(m, `"tools":`+s.Tools)
	case "notifications/cancelled":
		s.mu.Lock()
		cancel := s.cancels[string(m.Params.RequestID)]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case "tools/call":
		ctx, cancel := context.WithCancel(context.Background())
		key := string(m.ID)
		s.mu.Lock()
		s.cancels[key] = cancel
		s.mu.Unlock()
		go func() {
			s.Call(ctx, m)
			s.mu.Lock()
			delete(s.cancels, key)
			s.mu.Unlock()
			cancel()
		}()
	default:
		if m.ID != nil && m.Method != "" {
			s.Error(m, -32601, "Method not found")
		}
	}
}
