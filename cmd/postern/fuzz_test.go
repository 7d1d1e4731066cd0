package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"testing/iotest"
)

// Whatever a bridge sends, what is copied is what was sent up to its last line,
// ended by a newline, and that line itself never reaches the runtime.
func FuzzCopiedLines(f *testing.F) {
	for _, s := range []string{"", "{}\n", "{}\n{\"postern\":{\"ended\":\"idle\"}}\n", "a\n{\"postern\":", " {\"postern\":{}}\n", strings.Repeat("x", copyBuffer) + `{"postern":{}}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var want []byte
		var last []byte
		for line := range bytes.Lines(sent) {
			if bytes.HasPrefix(line, []byte(`{"postern":`)) {
				last = line
				break
			}
			want = append(want, line...)
		}
		if last == nil && len(want) > 0 && want[len(want)-1] != '\n' {
			want = append(want, '\n')
		}
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		got, err := copyLines(w, iotest.HalfReader(bytes.NewReader(sent)))
		if ferr := w.Flush(); err != nil || ferr != nil {
			t.Fatal(err, ferr)
		}
		if !bytes.Equal(out.Bytes(), want) || !bytes.HasPrefix(last, got) || (last == nil) != (got == nil) {
			t.Fatalf("copied %q and kept back %q of %q", out.Bytes(), got, sent)
		}
	})
}

// Nothing but a session's id binds, and nothing but the last line ends well.
func FuzzLines(f *testing.F) {
	for _, s := range []string{sessionLine, `{"postern":{"ended":"idle"}}`, `{"postern":{"ended":"task_ended"}}`, `{"error":{"data":{"code":"busy"}}}`, `{"error":null}`, `[]`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bound(raw) == nil && !bytes.Contains(raw, []byte("ses_")) {
			t.Errorf("%q binds", raw)
		}
		if ended(raw) == nil && !bytes.Contains(raw, []byte(`"ended"`)) && !bytes.Contains(raw, []byte(`\u`)) {
			t.Errorf("%q is an ordinary end", raw)
		}
	})
}
