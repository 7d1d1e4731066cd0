package refusal

import (
	"fmt"
	"strings"
)

// pageWidth is where the lines of the page are broken, in bytes.
const pageWidth = 118

// intro stands before the codes.
const intro = `# Refusals

Everything Postern says no with. The code is for programs, the sentence for people. This page is written by
` + "`go generate ./refusal`" + ` from the one table that every surface reads (` + "`refusal/table.go`" + `) and the advice beside it,
and has a section for each row, in the table's order. Where an answer carries ` + "`help`" + `, it names the section: ` + "`refusals#<code>`" + `.

- **The command line** prints the sentence and the particulars, and ends with the exit status given here. With
  ` + "`--json`" + `, standard output holds ` + "`{\"refusal\":{\"code\",\"sentence\",\"detail\",\"help\"}}`" + `. ` + "`connect`" + ` ends with 1, whatever
  the code.
- **A control socket** answers ` + "`{\"id\",\"refusal\":{\"code\",\"sentence\",\"detail\",\"help\"}}`" + `.
- **A runtime** that calls a tool of its own project gets a result with ` + "`isError`" + `, the sentence as text, and code and
  help under ` + "`postern/refusal`" + ` in ` + "`_meta`" + `. Messages that are not acceptable, and names outside the project, are
  JSON-RPC errors. Before a session is bound, every refusal is error -32000 with code and help in ` + "`data`" + `.
- **HTTP** is not served yet; the status stands here so that it will not be chosen twice.
- **The record** of a call holds the code.

What does not exist and what you may not see are answered alike. Where a request names a project, a server or a task, the
code says which of these there is none of: ` + "`project_unknown`, `server_unknown`, `task_unknown`" + `. Anything else that is
named and not there is ` + "`not_found`" + `. ` + "`account_unknown`" + ` is about who asks, never about an account that is named.
`

// String is how the page names the form.
func (f Form) String() string {
	if f == Result {
		return "a result with `isError`"
	}
	return fmt.Sprintf("error %d", f.JSONRPC())
}

// Page is the reference page of every code.
func Page() string {
	var b strings.Builder
	b.WriteString(intro)
	for _, r := range rows {
		fmt.Fprintf(&b, "\n## %s\n\n> %s\n\nExit status %d; HTTP status %d; to a runtime, %s.\n\n%s\n", string(r.Code), r.Sentence, r.Exit, r.HTTP, r.Form, wrap(r.Code.Advice()))
	}
	return b.String()
}

// wrap breaks text at spaces.
func wrap(text string) string {
	var b strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case width == 0:
		case width+1+len(word) > pageWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}
