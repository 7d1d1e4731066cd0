package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

const (
	bindTimeout = 30 * time.Second // an idle project's bridge has to be started
	lineMax     = 4 << 10          // bytes of a line before MCP begins
	copyBuffer  = 64 << 10
)

// connectCommand joins a runtime's standard streams to its project's bridge.
//
//	connect                                            bridge (the authority until it has the bind line)
//	  {"postern":{"bind":1,"token":"…"}}          ─▶
//	                       ◀─  {"postern":{"session":"ses_…"}}, or a JSON-RPC error and the end
//	  {"postern":{"stdio":"passed"}} + 2 fds      ─▶   MCP runs on the two descriptors
//	  {"postern":{"stdio":"here"}}                ─▶   MCP runs on this connection, copied
//	                       ◀─  {"postern":{"ended":"…"}}   the last line after a hand-over; an end without it is the bridge's death
func (a *app) connectCommand() *cobra.Command {
	var project, file string
	var fd int
	cmd := &cobra.Command{Use: "connect --project P [--token-fd N | --token-file F]", Short: "the command in a runtime's MCP configuration", Args: exactly()}
	cmd.Flags().StringVar(&project, "project", "", "the `project`, by id or label")
	cmd.Flags().IntVar(&fd, "token-fd", -1, "read the task token from this inherited `descriptor`")
	cmd.Flags().Lookup("token-fd").DefValue = "0" // the help then names no default, and there is none
	cmd.Flags().StringVar(&file, "token-file", "", "read the task token from this `file`")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case project == "":
			return usagef("needs --project")
		case fd >= 0 && file != "" || fd != -1 && fd < 0:
			return usagef("takes one of --token-fd and --token-file")
		}
		token, err := connectToken(fd, file)
		if err != nil {
			return api.Refuse(refusal.TokenInvalid, "%v.", err)
		}
		id, err := a.resolve(cmd.Context(), project)
		if err != nil {
			return err
		}
		return a.connect(id, token)
	}
	return cmd
}

func connectToken(fd int, file string) ([]byte, error) {
	if fd < 0 && file == "" {
		return nil, nil
	}
	if err := undumpable(); err != nil {
		return nil, err
	}
	if file != "" {
		return tokenFromFile(file)
	}
	return tokenFromFD(fd)
}

// resolve turns an id or a label into an id; only a label is asked for.
func (a *app) resolve(ctx context.Context, project string) (ids.Project, error) {
	if id, err := ids.Parse[ids.Project](project); err == nil {
		return id, nil
	}
	r, err := a.allProjects(ctx, project)
	if err != nil {
		return "", err
	}
	var found []ids.Project
	for _, p := range r.Projects {
		if p.Label != project {
			continue
		}
		id, err := ids.Parse[ids.Project](p.Project)
		if err != nil {
			return "", fmt.Errorf("project list: %w", err)
		}
		found = append(found, id)
	}
	switch len(found) {
	case 0:
		return "", api.Refuse(refusal.ProjectUnknown, "%q is neither an id nor the label of a project of yours; see postern project list.", project)
	case 1:
		return found[0], nil
	}
	return "", api.Refuse(refusal.StaleSelector, "%q is the label of %d projects; name one by its id: %v.", project, len(found), found)
}

// connect binds a session and stays until it ends. It wipes token.
func (a *app) connect(id ids.Project, token []byte) error {
	signal.Ignore(syscall.SIGPIPE) // a runtime that is gone ends us with a status, not with a signal
	c, err := a.bind(id, token)
	if err != nil {
		return err
	}
	defer c.Close()
	out, isFile := a.out.(*os.File)
	if isFile && passable(a.in, read) && passable(out, write) {
		return a.handOver(c, out)
	}
	if _, err := c.Write([]byte(`{"postern":{"stdio":"here"}}` + "\n")); err != nil {
		return errBridge(err)
	}
	return a.copy(c)
}

// bind connects, sends the bind line and reads its answer.
func (a *app) bind(id ids.Project, token []byte) (*net.UnixConn, error) {
	path, err := a.socket("p", string(id), "bridge.sock")
	if err != nil {
		clear(token)
		return nil, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, fs.ErrNotExist) && exists(a.runDir):
		clear(token)
		return nil, api.Refuse(refusal.ProjectUnknown, "Nothing listens for project %s at %q.", id, path)
	case err != nil:
		clear(token)
		return nil, api.Refuse(refusal.Unreachable, "%q: %v; is posternd running?", path, cause(err))
	}
	refuseDescriptors(c)
	line := append(make([]byte, 0, 64+len(token)), `{"postern":{"bind":1`...)
	if token != nil {
		line = append(line, `,"token":"`...)
		line = append(line, token...)
		line = append(line, '"')
	}
	line = append(line, "}}\n"...)
	c.SetDeadline(time.Now().Add(bindTimeout))
	_, sent := c.Write(line)
	clear(line)
	clear(token)
	answer, err := readLine(c)
	if err != nil { // a refusal can be read even where the line could not be written
		c.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, api.Refuse(refusal.Busy, "The project's bridge did not answer within %s.", bindTimeout)
		}
		return nil, errBridge(errors.Join(sent, err))
	}
	if err := bound(answer); err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	return c, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readLine reads one line and not a byte more: nothing may follow it before the
// hand-over.
func readLine(r io.Reader) ([]byte, error) {
	buf := make([]byte, 0, 512)
	for {
		if len(buf) == cap(buf) {
			if len(buf) >= lineMax {
				return nil, fmt.Errorf("line longer than %d bytes", lineMax)
			}
			buf = append(make([]byte, 0, min(2*cap(buf), lineMax)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if i := strings.IndexByte(string(buf), '\n'); i >= 0 {
			if i != len(buf)-1 {
				return nil, errors.New("more than one line came")
			}
			return buf[:i], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// line is any line that is not MCP's, and the JSON-RPC error that refuses a bind.
type line struct {
	Postern *struct {
		Session string `json:"session"`
		Ended   string `json:"ended"`
	} `json:"postern"`
	Error *struct {
		Message string `json:"message"`
		Data    struct {
			Code   refusal.Code `json:"code"`
			Detail string       `json:"detail"`
		} `json:"data"`
	} `json:"error"`
}

// bound reads the answer to the bind line; nil is a session.
func bound(raw []byte) error {
	l, err := api.DecodeResult[line](raw)
	if err != nil {
		return errBridge(fmt.Errorf("answer to the bind line: %w", err))
	}
	switch {
	case l.Error != nil && refusal.Known(l.Error.Data.Code):
		return api.Refuse(l.Error.Data.Code, "%s", l.Error.Data.Detail)
	case l.Error != nil:
		return api.Refuse(refusal.Internal, "%s", l.Error.Message)
	case l.Postern != nil:
		if _, err := ids.Parse[ids.Session](l.Postern.Session); err == nil {
			return nil
		}
	}
	return errBridge(errors.New("the answer to the bind line is neither a session nor a refusal"))
}

func errBridge(err error) error {
	return api.Refuse(refusal.SessionEnded, "The project's bridge ended the connection: %v.", cause(err))
}

// handOver sends both streams to the bridge and holds the connection as the
// session's lifeline until the bridge ends it. From the moment they are sent the
// streams are the bridge's: nothing is read from or written to them here.
func (a *app) handOver(c *net.UnixConn, out *os.File) error {
	msg, rights := []byte(`{"postern":{"stdio":"passed"}}`+"\n"), passedRights(a.in, out)
	n, oobn, err := c.WriteMsgUnix(msg, rights, nil)
	if err != nil || n != len(msg) || oobn != len(rights) {
		return errBridge(err)
	}
	// From here a failure says so on stderr only; and as long as this process
	// held the streams open, the runtime would not learn that the bridge is gone.
	a.passed = true
	if err := release(a.in, out); err != nil {
		return err
	}
	debug.FreeOSMemory() // what follows is one blocked read for the life of the session
	raw, err := readLine(c)
	if err != nil {
		return errors.New("the project's bridge ended without a word; calls that were open are unknown, start the session again")
	}
	return ended(raw)
}

// ended reads the last line of a session. A code of the table is a refusal, any
// other reason an ordinary end; a JSON-RPC error is a hand-over that the bridge
// did not accept.
func ended(raw []byte) error {
	l, err := api.DecodeResult[line](raw)
	switch {
	case err == nil && l.Error != nil:
		return errors.New(l.Error.Message)
	case err != nil || l.Postern == nil || l.Postern.Ended == "":
		return errors.New("the project's bridge ended with a line that is not its last one")
	}
	if code := refusal.Code(l.Postern.Ended); refusal.Known(code) {
		return api.Refuse(code, "")
	}
	return nil
}

// copy carries MCP both ways over the connection. It returns when the bridge
// ends it: without an error if our input ended first.
func (a *app) copy(c *net.UnixConn) error {
	inputEnded := make(chan struct{})
	go func() {
		io.Copy(struct{ io.Writer }{c}, a.in)
		close(inputEnded) // before the bridge can see it
		c.CloseWrite()
	}()
	w := bufio.NewWriterSize(a.out, copyBuffer)
	last, err := copyLines(w, c)
	if w.Flush() != nil && err == nil {
		err = errRuntimeGone
	}
	select {
	case <-inputEnded:
		return nil
	default:
	}
	switch {
	case errors.Is(err, errRuntimeGone):
		return err
	case err != nil:
		return errBridge(err)
	case last != nil:
		return ended(last)
	}
	return errBridge(io.EOF)
}

var errRuntimeGone = errors.New("the runtime closed the stream it reads")

// copyLines copies until the end and keeps back the bridge's last line, which is
// not MCP's. What it wrote ends with a whole line.
func copyLines(w *bufio.Writer, r io.Reader) (last []byte, err error) {
	in := bufio.NewReaderSize(r, copyBuffer)
	start := true
	for {
		chunk, err := in.ReadSlice('\n')
		if start && strings.HasPrefix(string(chunk[:min(len(chunk), 11)]), `{"postern":`) {
			return append([]byte(nil), chunk...), nil
		}
		if len(chunk) > 0 {
			start = chunk[len(chunk)-1] == '\n'
			if _, err := w.Write(chunk); err != nil {
				return nil, errRuntimeGone
			}
		}
		if in.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return nil, errRuntimeGone
			}
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
			continue
		case !start:
			w.WriteByte('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
}

// failRuntime tells the runtime, which reads JSON-RPC on standard output, unless
// that is the bridge's by now.
func (a *app) failRuntime(r *api.Refusal) {
	if a.passed {
		return
	}
	message := struct {
		JSONRPC string `json:"jsonrpc"`
		ID      *int   `json:"id"`
		Error   any    `json:"error"`
	}{"2.0", nil, map[string]any{"code": refusal.ServerError.JSONRPC(), "message": r.Error(), "data": map[string]any{"code": r.Code, "help": r.Help}}}
	if raw, err := api.Encode(message); err == nil {
		a.out.Write(raw)
	}
}
