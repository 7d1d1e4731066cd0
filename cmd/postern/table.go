package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// cellMax bounds a cell in characters: a name may be long, a terminal is not.
const cellMax = 80

// sentenceMax bounds a cell that holds a reason: it is the last of its row.
const sentenceMax = 240

// sentence is text that is the last cell of a row.
type sentence string

// table writes aligned columns for a person.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer) *table {
	return &table{tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.StripEscape)}
}

// row writes one row; each cell is escaped and bounded.
func (t *table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, cell(c))
	}
	fmt.Fprintln(t.w)
}

// whole writes a name and a value that is shown to its end.
func (t *table) whole(name, value string) {
	fmt.Fprintf(t.w, "%s\t%s\n", cell(name), argument(value))
}

// argument shows where a word of a command begins and ends.
func argument(value string) string {
	if value = clean(value); value == "" || strings.ContainsRune(value, ' ') && value[0] != '"' {
		return strconv.Quote(value)
	}
	return value
}

// line writes one sentence; its string arguments are escaped.
func (t *table) line(format string, args ...any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = clean(s)
		}
	}
	fmt.Fprintf(t.w, format+"\n", args...)
}

func (t *table) flush() error { return t.w.Flush() }

func cell(v any) string {
	s := clean(fmt.Sprint(v))
	if s == "" {
		return "-"
	}
	most := cellMax
	if _, last := v.(sentence); last {
		most = sentenceMax
	}
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// clean makes text of others harmless to a terminal: whatever holds anything but
// printable characters and spaces is shown quoted, with the rest escaped.
func clean(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// printable escapes what JSON leaves as it is and a terminal may obey: U+009B begins a
// sequence as ESC [ does. The document means the same.
func printable(line []byte) []byte {
	if !bytes.ContainsFunc(line, hidden) {
		return bytes.Clone(line)
	}
	var out []byte
	for _, r := range string(line) {
		switch {
		case !hidden(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// hidden tells a rune that is not to reach a terminal. Below it JSON has escaped all.
func hidden(r rune) bool { return r > '~' && !unicode.IsPrint(r) }

// firstLine is what of a description fits beside a name.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// when shows milliseconds since the epoch.
func when(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).Format(time.DateTime)
}

// size shows bytes.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func list(items []string) string { return strings.Join(items, ", ") }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
