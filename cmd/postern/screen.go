package main

import (
	"fmt"
	"strings"
	"unicode"
)

// A screen's lines are cut by the columns that they take. What a terminal draws is
// its own affair, so a character that may take two counts as two: a line that is cut
// early is harmless, one that wraps moves everything below it.

// firstWide is where scripts begin whose characters may take two columns.
const firstWide = 0x1100

func columnsOf(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		return 0
	case r >= firstWide && r != '…' && (r < 0x2000 || r > 0x206f):
		return 2
	}
	return 1
}

func width(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// fit cuts s to at most columns.
func fit(s string, columns int) string {
	if width(s) <= columns {
		return s
	}
	if columns <= 0 {
		return ""
	}
	used := 0
	for i, r := range s {
		if used += columnsOf(r); used > columns-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// topNameMost bounds the columns of a name on a screen.
const topNameMost = 20

// screen is a frame as lines of at most columns, at most rows of them: the summary,
// the trouble or the keys, the head, and as many jails as there is room for.
func (f topFrame) screen(columns, rows int, trouble string, marked bool) []string {
	cells := [][]string{texts(topHead)}
	for _, r := range f.Rows {
		cells = append(cells, texts(r.cells()))
	}
	widths := make([]int, len(topHead))
	for _, row := range cells {
		for i := range row {
			if i < 2 {
				row[i] = fit(row[i], topNameMost)
			}
			widths[i] = max(widths[i], width(row[i]))
		}
	}
	second := "keys: c cpu  m memory  s calls  u queue  r restarts  p project  i turn round  q quit"
	if trouble != "" {
		second = clean(trouble)
	}
	out := []string{fit(f.summary(), columns), fit(second, columns)}
	for i, row := range cells {
		var b strings.Builder
		for j, text := range row {
			if j > 0 {
				b.WriteString("  ")
			}
			b.WriteString(text)
			if j < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[j]-width(text)))
			}
		}
		line := fit(b.String(), columns)
		if i == 0 && marked {
			line = "\x1b[7m" + line + strings.Repeat(" ", columns-width(line)) + "\x1b[0m"
		}
		if len(out) == rows-1 && i < len(cells)-1 {
			return append(out, fit(fmt.Sprintf("… %d more", len(cells)-i), columns))
		}
		out = append(out, line)
	}
	return out[:min(len(out), max(rows, 0))]
}

func texts(cells []any) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = cell(c)
	}
	return out
}
