package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"postern/supervisor/api/documented"
)

// documents holds what commands printed with --json against docs/json.md.
type documents struct {
	mu    sync.Mutex
	wrong []string
	seen  map[string]bool // a command and a document of it
}

// jsonPage is docs/json.md; nil where there are no sources, in a virtual machine.
var jsonPage = sync.OnceValues(func() (*documented.Page, error) {
	repo, err := Repository()
	if err != nil {
		return nil, nil
	}
	raw, err := os.ReadFile(filepath.Join(repo, "docs/json.md"))
	if err != nil {
		return nil, nil
	}
	return documented.Parse(string(raw))
})

// Printed holds what a command printed against the page. A line that a killed follow did
// not finish is no document.
func (r *Rig) Printed(args []string, out []byte) {
	page, err := jsonPage()
	if page == nil && err == nil || !slices.Contains(args, "--json") {
		return
	}
	command, document := "", ""
	if err == nil {
		if command = page.Command("postern", args); command == "" {
			return // a usage error, whose refusal other tests look at
		}
		document, err = page.Check(command, out[:bytes.LastIndexByte(out, '\n')+1])
	}
	r.documents.mu.Lock()
	defer r.documents.mu.Unlock()
	if err != nil {
		r.documents.wrong = append(r.documents.wrong, fmt.Sprintf("postern %s printed %.2000s, which docs/json.md does not have: %v", strings.Join(args, " "), out, err))
		return
	}
	if r.documents.seen == nil {
		r.documents.seen = map[string]bool{}
	}
	r.documents.seen[command+" "+document] = true
}

// Undocumented lists what commands printed otherwise than docs/json.md has it.
func (r *Rig) Undocumented() []string {
	r.documents.mu.Lock()
	defer r.documents.mu.Unlock()
	return slices.Clone(r.documents.wrong)
}

// Unseen lists each document of the page that no command printed yet, behind its command;
// nothing where there is no page.
func (r *Rig) Unseen() (out []string) {
	page, _ := jsonPage()
	if page == nil {
		return nil
	}
	r.documents.mu.Lock()
	defer r.documents.mu.Unlock()
	for _, command := range page.Commands() {
		for _, document := range page.Documents(command) {
			if at := command + " " + document; !r.documents.seen[at] && !slices.Contains(out, at) {
				out = append(out, at)
			}
		}
	}
	return out
}
