package launch

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

// As many registrations as there may be are listed, page by page.
func TestServerListComesInPages(t *testing.T) {
	var f Facts
	for n := range maxServers {
		f.Servers = append(f.Servers, Server{ID: ids.Server(fmt.Sprintf("srv_%05d", maxServers-1-n)), Label: "s", Deleted: n%2 == 0,
			Revisions: []Revision{{ID: "rev", Command: []string{strings.Repeat("c", 500)}}}})
	}
	s := &Supervisor{facts: f}
	seen, after, pages := 0, "", 0
	for {
		got, refused := s.serverList(request{Request: api.Request{Params: []byte(fmt.Sprintf(`{"after":%q}`, after))}})
		if refused != nil {
			t.Fatal(refused)
		}
		page := got.(api.ServerListResult)
		raw, err := api.Encode(api.Response{Result: mustValue(t, page)})
		if err != nil || len(raw) > api.MaxLine {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		seen += len(page.Servers)
		if pages++; page.Next == "" {
			break
		}
		after = page.Next
	}
	if seen != maxServers/2 || pages < 3 {
		t.Errorf("%d servers on %d pages", seen, pages)
	}
}

func mustValue(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := api.EncodeValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// An answer that is longer than a line may be is refused and not cut.
func TestAnAnswerThatIsTooLongIsRefused(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		defer ends[i].Close()
	}
	go (&Supervisor{}).answer(ends[0].(*net.UnixConn), api.Response{ID: 7, Result: []byte(`"` + strings.Repeat("x", api.MaxLine) + `"`)})
	line, err := bufio.NewReader(ends[1]).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	got, err := api.DecodeResponse(line[:len(line)-1])
	if err != nil || got.ID != 7 || got.Refusal == nil || got.Refusal.Code != refusal.TooLarge {
		t.Errorf("%+v, %v", got, err)
	}
}
