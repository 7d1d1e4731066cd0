package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"postern/integration/rig"
)

// gatewayStart bounds the wait for a gateway that listens.
const gatewayStart = 60 * time.Second

// rivals are the gateways that run in the same turns: the ones that come along, and
// the one that RIVAL names, by a command line or by a URL.
func rivals(repo, self string, server []string) []*way {
	ways := []*way{
		{name: "mcp-go, a typed proxy", open: func() (*client, error) { return spawn(append([]string{self, "-typed", "--"}, server...), 0) }},
	}
	ways = append(ways, &way{name: "npm's mcp-proxy, by HTTP", open: func() (*client, error) {
		at, node, err := rig.Clients(repo, filepath.Join(repo, "out"))
		if err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		line := append([]string{node, filepath.Join(at, "node_modules/.bin/mcp-proxy"), "--host", "127.0.0.1", "--port", port, "--server", "stream", "--"}, server...)
		return behindHTTP("http://127.0.0.1:"+port+"/mcp", line)
	}})
	switch rival := os.Getenv("RIVAL"); {
	case rival == "":
	case strings.HasPrefix(rival, "http://"), strings.HasPrefix(rival, "https://"):
		ways = append(ways, &way{name: "rival by HTTP", open: func() (*client, error) { return behindHTTP(rival, nil) }})
	default:
		line := strings.Fields(strings.ReplaceAll(rival, "{}", strings.Join(server, " ")))
		ways = append(ways, &way{name: "rival " + filepath.Base(line[0]), open: func() (*client, error) { return spawn(line, 0) }})
	}
	return ways
}

// runTyped is the proxy that most gateways are: a typed client, and a typed server
// whose handlers call it.
func runTyped(argv []string) error {
	ctx := context.Background()
	up, err := mcpclient.NewStdioMCPClient(argv[0], nil, argv[1:]...)
	if err != nil {
		return err
	}
	defer up.Close()
	if _, err := up.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{ProtocolVersion: "2025-06-18", ClientInfo: mcp.Implementation{Name: "typed", Version: "1"}}}); err != nil {
		return err
	}
	list, err := up.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return err
	}
	s := mcpserver.NewMCPServer("typed", "1")
	for _, tool := range list.Tools {
		s.AddTool(tool, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return up.CallTool(ctx, r)
		})
	}
	return mcpserver.ServeStdio(s)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// behindHTTP is a client of a streamable HTTP endpoint, behind a gateway that it starts
// if there is a command line.
func behindHTTP(url string, line []string) (*client, error) {
	p := &poster{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * callers}}}
	end := func() {}
	var said bytes.Buffer
	if line != nil {
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{"PATH=/usr/bin:/bin"}, &said, &said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts ends with it
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		end = func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() }
		if err := listening(url); err != nil {
			end()
			return nil, fmt.Errorf("%s: %w\n%s", line[0], err, said.String())
		}
	}
	out, in := io.Pipe()
	p.out = in
	c := &client{in: p, out: bufio.NewReaderSize(out, longest), close: func() { in.Close(); p.http.CloseIdleConnections(); end() }}
	got, err := c.begin()
	if err != nil {
		c.close()
		return nil, err
	}
	return got, nil
}

func listening(url string) error {
	host := strings.TrimPrefix(url, "http://")
	host, _, _ = strings.Cut(host, "/")
	for until := time.Now().Add(gatewayStart); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", host); err == nil {
			return c.Close()
		}
	}
	return errors.New("it does not listen")
}

// poster sends each line as one POST, and hands the messages of the answers back as
// lines.
type poster struct {
	url  string
	http *http.Client

	mu      sync.Mutex
	session string
	out     *io.PipeWriter
}

func (p *poster) Write(line []byte) (int, error) {
	body := bytes.Clone(line)
	if !bytes.Contains(body, []byte(`"id":`)) {
		return len(line), p.post(body)
	}
	go func() {
		if err := p.post(body); err != nil {
			p.out.CloseWithError(err)
		}
	}()
	return len(line), nil
}

func (p *poster) post(body []byte) error {
	r, err := http.NewRequest(http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	p.mu.Lock()
	if p.session != "" {
		r.Header.Set("Mcp-Session-Id", p.session)
		r.Header.Set("MCP-Protocol-Version", "2025-06-18")
	}
	p.mu.Unlock()
	a, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	all, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %.200s %w", a.Status, all, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := a.Header.Get("Mcp-Session-Id"); id != "" {
		p.session = id
	}
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") {
		all = append([]byte("data: "), all...)
	}
	for line := range bytes.Lines(all) {
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
			if _, err := p.out.Write(append(bytes.TrimSpace(data), '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}
