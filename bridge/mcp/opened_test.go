package mcp

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// byByte is what opened says, by the shortest way there is to say it.
func byByte(text []byte, level, most int) (count int, within bool) {
	deep, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if deep++; deep > most {
				return count, false
			}
			if deep == level {
				count++
			}
		case c == '}' || c == ']':
			deep--
		}
	}
	return count, true
}

func TestNestingIsCountedAsByteByByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const letters = `"\[]{}a,`
	for range 200_000 {
		text := make([]byte, rng.IntN(24))
		for i := range text {
			text[i] = letters[rng.IntN(len(letters))]
		}
		level, most := 1+rng.IntN(3), 1+rng.IntN(6)
		n, within := opened(text, level, most)
		if m, also := byByte(text, level, most); n != m || within != also {
			t.Fatalf("%q, level %d of at most %d: %d, %t; byte by byte %d, %t", text, level, most, n, within, m, also)
		}
	}
}

// No text of a peer makes counting slow: not one of escapes, nor one without an end.
func TestNestingOfHostileTextIsCountedInOnePass(t *testing.T) {
	const size = 8 << 20
	for says, text := range map[string][]byte{
		"escapes and no end":  bytes.Repeat([]byte(`\\`), size/2),
		"escapes and an end":  append(bytes.Repeat([]byte(`\\`), size/2), '"'),
		"escaped quotes":      bytes.Repeat([]byte(`\"`), size/2),
		"nothing but quotes":  bytes.Repeat([]byte(`"`), size),
		"text without an end": bytes.Repeat([]byte(`a`), size),
	} {
		began := time.Now()
		if n, within := opened(append([]byte(`["`), text...), 1, 4); n != 1 || !within {
			t.Errorf("%s: %d, %t", says, n, within)
		}
		if took := time.Since(began); took > 10*time.Second { // looked at anew for each escape, it takes minutes
			t.Errorf("%s: %v", says, took)
		}
	}
}

func BenchmarkNestingOfALargeResult(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}]}}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		opened(line, 0, MaxDepth)
	}
}
