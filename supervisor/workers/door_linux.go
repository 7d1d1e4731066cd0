package workers

import (
	"errors"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/gate"
	"postern/supervisor/peer"
)

var errParts = errors.New("parts of a catalogue out of order or too large")

// accept takes what waits at a project's socket. Each connection is looked at on
// a goroutine of its own, since its bind line may take its time; bounded in all
// and by uid.
func (w *Workers) accept(lfd int, project ids.Project) {
	for range MaxPerTurn {
		fd, _, err := unix.Accept4(lfd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != nil {
			return
		}
		if !w.binding.all.TryAcquire(1) {
			answerError(fd, refusal.TooManySession, "")
			unix.Close(fd)
			continue
		}
		go w.greet(fd, project)
	}
}

// greet establishes who is at the other end, reads the bind line and posts it.
// It owns fd until the loop takes it.
func (w *Workers) greet(fd int, project ids.Project) {
	defer w.binding.all.Release(1)
	p, err := peer.OfFD(fd)
	if err != nil {
		code := refusal.PeerRefused
		if errors.Is(err, peer.ErrGone) {
			code = refusal.PeerGone
		}
		answerError(fd, code, "")
		unix.Close(fd)
		return
	}
	defer p.Close()
	if !w.binding.enter(p.UID) {
		answerError(fd, refusal.TooManySession, "")
		unix.Close(fd)
		return
	}
	defer w.binding.leave(p.UID)
	line, err := peer.PeekBindLine(fd, BindLine, BindWait)
	if err != nil {
		answerError(fd, refusal.BadRequest, "the first line must be a bind line")
		unix.Close(fd)
		return
	}
	tok, code := parseBind(line)
	if code != "" {
		answerError(fd, code, "")
		unix.Close(fd)
		return
	}
	if !p.Alive() {
		answerError(fd, refusal.PeerGone, "")
		unix.Close(fd)
		return
	}
	uid := p.UID
	done := make(chan struct{})
	if !w.Post(func() { defer close(done); w.bind(fd, project, uid, tok) }) {
		answerError(fd, refusal.Draining, "")
		unix.Close(fd)
		return
	}
	select {
	case <-done:
	case <-w.over:
	}
}

// bind asks the gate and passes the connection to the project's bridge.
func (w *Workers) bind(fd int, project ids.Project, uid uint32, tok string) {
	refuse := func(code refusal.Code) {
		answerError(fd, code, "")
		unix.Close(fd)
	}
	if w.draining {
		refuse(refusal.Draining)
		return
	}
	b, code := w.gate.Bind(gate.BindRequest{Project: project, UID: uid, Token: tok})
	if code != "" {
		refuse(code)
		return
	}
	s, code := w.setFor(b.Set)
	if code == "" && len(s.waiting) >= MaxWaitingBind {
		code = refusal.Busy
	}
	if code != "" {
		w.gate.SessionEnded(b.Session, string(code))
		refuse(code)
		return
	}
	if s.ready {
		w.handOver(s, waitingBind{fd, b.Session})
		return
	}
	s.waiting = append(s.waiting, waitingBind{fd, b.Session})
}

// bindLine is the one line a connector sends first.
type bindLine struct {
	Postern struct {
		Bind  int    `json:"bind"`
		Token string `json:"token,omitzero"`
	} `json:"postern"`
}

func parseBind(line []byte) (string, refusal.Code) {
	var b bindLine
	if err := json.Unmarshal(line, &b, json.RejectUnknownMembers(true)); err != nil || b.Postern.Bind != 1 {
		return "", refusal.BadRequest
	}
	return b.Postern.Token, ""
}

type bindRefusal struct {
	JSONRPC string  `json:"jsonrpc"`
	ID      *string `json:"id"`
	Error   struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Code   refusal.Code `json:"code"`
			Help   string       `json:"help"`
			Detail string       `json:"detail,omitempty"`
		} `json:"data"`
	} `json:"error"`
}

func bindError(code refusal.Code, detail string) []byte {
	row := refusal.Of(code)
	r := bindRefusal{JSONRPC: "2.0"}
	r.Error.Code = refusal.ServerError.JSONRPC()
	r.Error.Message = row.Sentence
	r.Error.Data.Code, r.Error.Data.Help, r.Error.Data.Detail = row.Code, row.Code.Help(), detail
	b, err := json.Marshal(r)
	if err != nil {
		return []byte("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"refused\"}}\n")
	}
	return append(b, '\n')
}
