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
	"strconv"
	"sync"
	"testing"
)

// maxBody bounds one request of the suite.
const maxBody = 8 << 20

// adapter serves streamable HTTP in front of a command that speaks MCP on its standard
// streams: the suite knows URLs only. A legacy session is one process. All requests of
// the stateless revision are one client's, and share a process; each has an id of its
// own there, because the suite begins to count anew in each scenario. Nothing else of a
// message is changed, so that whatever the suite sees differ between two commands, the
// commands did.
type adapter struct {
	argv []string
	t    *testing.T

	mu        sync.Mutex
	next      int
	sessions  map[string]*process
	stateless *process
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
		if a.stateless != nil {
			a.stateless.stop()
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
		Meta  map[string]json.RawMessage `json:"_meta"`
		Token json.RawMessage            `json:"progressToken"`
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
	_, modern := e.Params.Meta["io.modelcontextprotocol/protocolVersion"]
	if p == nil && modern {
		p, err = a.shared()
	} else if p == nil {
		if p, err = start(a.argv); err == nil && e.Method != "initialize" {
			defer p.stop()
		} else if err == nil {
			a.mu.Lock()
			a.next++
			id := fmt.Sprintf("session-%d", a.next)
			a.sessions[id] = p
			a.mu.Unlock()
			w.Header().Set("Mcp-Session-Id", id)
		}
	}
	if err != nil {
		a.t.Error(err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if !e.request() {
		p.write(append(line.Bytes(), '\n'))
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id, sent := p.open(e, line.Bytes())
	p.write(append(sent, '\n'))
	p.stream(w, r, id)
}

// shared is the process of all stateless requests, started by the first.
func (a *adapter) shared() (*process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stateless == nil {
		p, err := start(a.argv)
		if err != nil {
			return nil, err
		}
		p.names, a.stateless = map[string]json.RawMessage{}, p
	}
	return a.stateless, nil
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
	open_ []string                   // requests without an answer, oldest first; "" is the session's own stream
	token map[string]string          // the progress token of each
	names map[string]json.RawMessage // where ids are replaced: what each was; nil elsewhere
	count int
	lines map[string][][]byte // for each of them
	done  map[string]bool
	ended bool
}

func start(argv []string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), lines: map[string][][]byte{}, token: map[string]string{}, done: map[string]bool{}}
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

// open enters a request and returns the id under which it waits, and the line to send.
func (p *process) open(e envelope, line []byte) (id string, sent []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id = string(e.ID)
	if p.names != nil {
		p.count++
		id = strconv.Itoa(p.count)
		p.names[id] = e.ID
		line = replaced(line, json.RawMessage(id), "id")
	}
	p.open_ = append(p.open_, id)
	if token := e.Params.Meta["progressToken"]; token != nil {
		p.token[id] = string(token)
	}
	return id, line
}

// replaced is an object with another value where names lead.
func replaced(object []byte, value json.RawMessage, names ...string) json.RawMessage {
	var m map[string]json.RawMessage
	if len(names) == 0 {
		return value
	}
	if json.Unmarshal(object, &m) != nil || m[names[0]] == nil {
		return object
	}
	m[names[0]] = replaced(m[names[0]], value, names[1:]...)
	out, err := json.Marshal(m)
	if err != nil {
		return object
	}
	return out
}

const subscription = "io.modelcontextprotocol/subscriptionId"

// read hands out each line: an answer to who asked, what belongs to a subscription or
// a progress token to whose that is, all else to the newest request that waits, as it
// was probably meant for that one.
func (p *process) read(out io.Reader) {
	in := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		p.mu.Lock()
		if err != nil {
			p.ended = true
		} else {
			p.heardLine(bytes.TrimSpace(line))
		}
		p.mu.Unlock()
		p.heard.Broadcast()
		if err != nil {
			_ = p.cmd.Wait()
			return
		}
	}
}

func (p *process) heardLine(line []byte) {
	var e envelope
	if json.Unmarshal(line, &e) != nil {
		return
	}
	to := ""
	of := string(e.Params.Meta[subscription])
	switch {
	case e.Method == "":
		to = string(e.ID)
	case p.names != nil && p.names[of] != nil:
		to = of
	default:
		if len(p.open_) > 0 {
			to = p.open_[len(p.open_)-1]
		}
		for _, id := range p.open_ {
			if e.Params.Token != nil && p.token[id] == string(e.Params.Token) {
				to = id
			}
		}
	}
	if p.names != nil {
		was := p.names[to]
		if was == nil {
			return // its client is gone
		}
		line = replaced(line, was, "params", "_meta", subscription)
		line = replaced(line, was, "result", "_meta", subscription)
		if e.Method == "" {
			line = replaced(line, was, "id")
		}
	}
	if e.Method == "" {
		p.done[to] = true
	}
	p.lines[to] = append(p.lines[to], line)
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
		if p.done[id] && len(p.lines[id]) == 0 || p.ended {
			return
		}
		if gone.Err() != nil {
			if p.names != nil { // the end of a stateless request's stream cancels it
				fmt.Fprintf(p.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`+"\n", id)
			}
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
	delete(p.token, id)
	delete(p.names, id)
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
