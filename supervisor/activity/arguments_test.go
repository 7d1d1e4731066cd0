package activity

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"postern/supervisor/store"
)

func TestE1_SecretFieldsOfArgumentsAreMasked(t *testing.T) {
	mask := MaskOf([]string{"pin", "/auth/key", "/list/code", "/a~1b", "Card-Number"})
	for _, row := range []struct{ in, want string }{
		{`{"path":"a","n":12345678901234567890.10,"ok":true,"none":null}`, `{"path":"a","n":12345678901234567890.10,"ok":true,"none":null}`},
		{`{ "pin" : 1234 }`, `{"pin":"[masked]"}`},
		{`{"PIN":{"deep":["x"]},"p_i-n":[1,2]}`, `{"PIN":"[masked]","p_i-n":"[masked]"}`},
		{`{"\u0070in":1}`, `{"pin":"[masked]"}`}, // the name as it is read, not as it is written
		{`{"x":[{"y":{"pin":"s3cret"}}]}`, `{"x":[{"y":{"pin":"[masked]"}}]}`},
		{`{"auth":{"key":"s3cret","user":"u"},"key":"shown"}`, `{"auth":{"key":"[masked]","user":"u"},"key":"shown"}`},
		{`{"auth":[{"key":"s3cret"},[{"key":"s3cret"}]]}`, `{"auth":[{"key":"[masked]"},[{"key":"[masked]"}]]}`},
		{`{"list":[{"code":1,"n":2},{"code":3}],"other":{"list":{"code":4}}}`, `{"list":[{"code":"[masked]","n":2},{"code":"[masked]"}],"other":{"list":{"code":4}}}`},
		{`{"a/b":1,"a":{"b":2}}`, `{"a/b":"[masked]","a":{"b":2}}`},
		{`{"cardNumber":1}`, `{"cardNumber":"[masked]"}`},
		// Whatever a registration forgot.
		{`{"old_passwords":["a"],"secrets":{"db":"b"},"API-Keys":["c"],"cookies":"d","accessKeys":[1],"private_keys":[2],"keys":["e"]}`,
			`{"old_passwords":"[masked]","secrets":"[masked]","API-Keys":"[masked]","cookies":"[masked]","accessKeys":"[masked]","private_keys":"[masked]","keys":["e"]}`},
		{`{"db_password":1,"apiKey":2,"Authorization":3,"next_token":4,"max_tokens":5,"secrets_of":6}`,
			`{"db_password":"[masked]","apiKey":"[masked]","Authorization":"[masked]","next_token":"[masked]","max_tokens":5,"secrets_of":6}`},
		{`["a",{"token":"b"}]`, `["a",{"token":"[masked]"}]`},
		{`"a\nb\u2028\u202e\"\\😀\u0301\ud83d\ude00\udb40\udc01"`, `"a\u000ab\u2028\u202e\"\\😀\u0301😀\udb40\udc01"`},
		{"{\"pin\":\"" + strings.Repeat("s3cret", 2000) + "\"}", `{"pin":"[masked]"}`}, // not too long by what is not kept
	} {
		got, missing := Arguments([]byte(row.in), mask)
		if got != row.want || missing != "" || !jsontext.Value(got).IsValid() || !shownAs(got, got) {
			t.Errorf("%.100s: %s, %q", row.in, got, missing)
		}
	}
}

// What is no JSON, or too much of it, leaves its digest alone, and nothing of it in the reason.
func TestE1_ArgumentsThatAreNotRecorded(t *testing.T) {
	fits := `["` + strings.Repeat("x", MaxArguments-4) + `"]`
	if got, missing := Arguments([]byte(fits), Mask{}); got != fits || missing != "" {
		t.Errorf("%d bytes: %d kept, %q", len(fits), len(got), missing)
	}
	for name, raw := range map[string]string{
		"one byte more":      `["` + strings.Repeat("x", MaxArguments-3) + `"]`,
		"more when escaped":  `["` + strings.Repeat("\u2028", MaxArguments/6+1) + `"]`,
		"deep":               strings.Repeat("[", 6000) + strings.Repeat("]", 6000),
		"more in many":       `[` + strings.Repeat(`"x",`, MaxArguments/4) + `1]`,
		"cut":                `{"s3cret":`,
		"behind it":          `{} s3cret`,
		"a repeated name":    `{"a":"s3cret","a":2}`,
		"a repeated secret":  `{"token":"s3cret","\u0074oken":2}`,
		"in a masked one":    `{"token":{"a":1,"a":2}}`,
		"bad UTF-8":          "\"s3cret\xff\"",
		"a lone surrogate":   `"s3cret\ud800"`,
		"nothing":            ``,
		"a word":             `s3cret`,
		"an unmasked secret": `{"pin":s3cret}`,
	} {
		got, missing := Arguments([]byte(raw), MaskOf([]string{"pin"}))
		if got != "" || missing == "" || strings.Contains(missing, "s3cret") {
			t.Errorf("%s: %.100q, %q", name, got, missing)
		}
	}
	for _, lost := range []string{"{", "[\n1]", "[\"\u202e\"]", fits + " "} {
		if !shownAs(lost, "") {
			t.Errorf("%.20q is shown", lost)
		}
	}
}

func shownAs(recorded, want string) bool {
	v, missing := Recorded(store.Arguments{Value: recorded})
	return string(v) == want && (missing == "") == (want != "")
}

func TestActivity1_NoArgumentsBeginASecondRecord(t *testing.T) {
	for _, s := range nasty {
		raw, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "?"))
		if err != nil {
			t.Fatal(err)
		}
		value, missing := Arguments(fmt.Appendf(nil, `{%s:[%s]}`, raw, raw), Mask{})
		r := record("read_file", "1")
		line, err := Export(&r, "p1", nil, &store.Arguments{Value: value})
		if err != nil || missing != "" || bytes.ContainsRune(line, '\n') || !bytes.Contains(line, []byte(`"arguments":{`)) {
			t.Errorf("%q: %s, %v, %q", s, line, err, missing)
		}
		for _, c := range string(line) {
			if !shown(c) {
				t.Errorf("%U is written as it is: %q", c, line)
			}
		}
	}
}

// A denial that stands for many has the arguments of none of them.
func TestE1_OneRecordForManyHasNoArguments(t *testing.T) {
	s := memory(t)
	b := s.Batch()
	var f Folder
	for n := range DenialsEach + 3 {
		r := record(fmt.Sprintf("tool%d", n), "1")
		r.Args = store.Arguments{Value: fmt.Sprintf(`{"n":%d}`, n)}
		f.Deny(b, &r)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	page, err := s.Calls(store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	of, err := s.ArgumentsOf(page.Calls)
	if err != nil || len(of) != DenialsEach {
		t.Fatalf("%d have arguments, %v", len(of), err)
	}
	for _, c := range page.Calls {
		if want := strings.TrimPrefix(c.Tool, "tool"); c.Tool != "" && of[c.Seq].Value != `{"n":`+want+`}` || c.Tool == "" && of[c.Seq] != (store.Arguments{}) {
			t.Errorf("%q has %+v", c.Tool, of[c.Seq])
		}
	}
}
