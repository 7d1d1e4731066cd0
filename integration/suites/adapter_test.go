package suites

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"sync"
	"testing"
)

// maxBody bounds one request of the suite.
const maxBody = 8 << 20

// adapter serves streamable HTTP in front of a command that speaks MCP on its standard
// streams: the suite knows URLs only. A legacy session is one process. A request of
// the stateless revision has a process for itself, so that nothing of one client can
// meet another's. It adds and removes nothing of a message, so that whatever the suite
// sees differ between two commands, the commands did.
type adapter struct {
	argv []string
	t    *testing.T

	mu       sync.Mutex
	next     int
	sessions map[string]*process
}

func serve(t *testing.T, argv []string) string {
	t.Helper()
	a := &adapter{argv: argv, t: t, sessions: map[string]*process{}}
	s := httptest.NewServer(a)
	t.Cleanup(func() {
		a.mu.Lock()
		for _, p := range a.sessions {
			p.stop()
		}
		a.mu.Unlock()
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/mcp"
}

// envelope is what the adapter must know of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

func (e *envelope) request() bool { return e.Method != "" && len(e.ID) > 0 }

func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !local(r.Host) || (r.Header.Get("Origin") != "" && !localOrigin(r.Header.Get("Origin"))) {
		http.Error(w, "not for this host or origin", http.StatusForbidden)
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	a.mu.Lock()
	p := a.sessions[id]
	a.mu.Unlock()
	if id != "" && p == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		a.post(w, r, p)
	case p == nil:
		http.Error(w, "a session is missing", http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet:
		p.stream(w, r, "")
	case r.Method == http.MethodDelete:
		a.mu.Lock()
		delete(a.sessions, id)
		a.mu.Unlock()
		p.stop()
	default:
		http.Error(w, "not that", http.StatusMethodNotAllowed)
	}
}

func (a *adapter) post(w http.ResponseWriter, r *http.Request, p *process) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var line bytes.Buffer
	var e envelope
	if err == nil {
		err = json.Compact(&line, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p == nil {
		_, modern := e.Params.Meta["io.modelcontextprotocol/protocolVersion"]
		if p, err = start(a.argv); err != nil {
			a.t.Error(err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if modern || e.Method != "initialize" {
			defer p.stop()
		} else {
			a.mu.Lock()
			a.next++
			id := fmt.Sprintf("session-%d", a.next)
			a.sessions[id] = p
			a.mu.Unlock()
			w.Header().Set("Mcp-Session-Id", id)
		}
	}
	line.WriteByte('\n')
	if !e.request() {
		p.write(line.Bytes())
		w.WriteHeader(http.StatusAccepted)
		return
	}
	p.open(string(e.ID))
	p.write(line.Bytes())
	p.stream(w, r, string(e.ID))
}

func local(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return host == "127.0.0.1" || host == "localhost" || host == "[::1]" || host == "::1"
}

func localOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && local(u.Host)
}

// process is one command and who hears it.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu    sync.Mutex
	heard *sync.Cond
	open_ []string            // requests without an answer, oldest first; "" is the session's own stream
	lines map[string][][]byte // for each of them
	done  map[string]bool
	ended bool
}

func start(argv []string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), lines: map[string][][]byte{}, done: map[string]bool{}}
	p.heard = sync.NewCond(&p.mu)
	p.cmd.Dir, p.cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	return p, nil
}

func (p *process) write(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.in.Write(line) // whoever waits for an answer sees that there is none
}

func (p *process) open(id string) {
	p.mu.Lock()
	p.open_ = append(p.open_, id)
	p.mu.Unlock()
}

// read hands out each line: an answer to who asked, all else to the newest request
// that waits, as it was probably meant for that one.
func (p *process) read(out io.Reader) {
	in := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		p.mu.Lock()
		var e envelope
		switch {
		case err != nil:
			p.ended = true
		case json.Unmarshal(line, &e) != nil:
		default:
			to := ""
			if e.Method == "" {
				to = string(e.ID)
				p.done[to] = true
			} else if len(p.open_) > 0 {
				to = p.open_[len(p.open_)-1]
			}
			p.lines[to] = append(p.lines[to], bytes.TrimSpace(line))
		}
		p.mu.Unlock()
		p.heard.Broadcast()
		if err != nil {
			_ = p.cmd.Wait()
			return
		}
	}
}

// stream sends what is for id as it comes, until that is answered or the client goes.
func (p *process) stream(w http.ResponseWriter, r *http.Request, id string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	gone := r.Context()
	go func() {
		<-gone.Done()
		p.mu.Lock() // not between that loop's look and its wait
		p.mu.Unlock()
		p.heard.Broadcast()
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.forget(id)
	for {
		for len(p.lines[id]) > 0 {
			line := p.lines[id][0]
			p.lines[id] = p.lines[id][1:]
			p.mu.Unlock()
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", line)
			w.(http.Flusher).Flush()
			p.mu.Lock()
		}
		if p.done[id] && len(p.lines[id]) == 0 || p.ended || gone.Err() != nil {
			return
		}
		if len(p.lines[id]) == 0 {
			p.heard.Wait()
		}
	}
}

func (p *process) forget(id string) {
	delete(p.lines, id)
	delete(p.done, id)
	for i, o := range p.open_ {
		if o == id {
			p.open_ = append(p.open_[:i], p.open_[i+1:]...)
			return
		}
	}
}

func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
}
