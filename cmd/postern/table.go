package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
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
	if value = clean(value); value == "" || strings.ContainsRune(value, ' ') && value[0] != '"' {
		value = strconv.Quote(value)
	}
	fmt.Fprintf(t.w, "%s\t%s\n", cell(name), value)
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
