package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
)

// Bounds of a bundle: with the number of its files they bound the whole.
const (
	bundleFileBytes = 1 << 20          // of one file; a longer one is left out, and said to be
	bundleRows      = 1000             // of one list
	bundleRecords   = 500              // of calls, and of each record of changes
	bundleProjects  = 200              // whose connections are listed
	bundleTail      = 512 << 10        // bytes of the end of a record of changes that are read
	bundleWait      = 20 * time.Second // for one answer of the supervisor
	bundleFormat    = 1
)

// bundleReadme is the file that says what the others are.
const bundleReadme = "README"

// bundleSection is one file of a bundle. What it holds is named member by member: a value
// that nobody thought of is not in it.
type bundleSection struct {
	name, what string
	gather     func(b *bundling, ctx context.Context) (any, error)
}

var bundleSections = []bundleSection{
	{"versions.json", "versions of the programs, of the kernel, of the store's schemas, and this host's instance", (*bundling).versions},
	{"doctor.json", "what the host can and cannot enforce, layer by layer, and the state of the supervisor", (*bundling).doctor},
	{"status.json", "what the supervisor says of itself, and sums of calls since the authority started", (*bundling).status},
	{"config.json", "the settings of postern.yaml and where they stand; of hosts how many ids they have, not which", (*bundling).configuration},
	{"profiles.json", "the profiles with their limits and digests; no environment, no paths", (*bundling).profiles},
	{"accounts.json", "accounts and their uids", (*bundling).accounts},
	{"projects.json", "projects, their directories and what is set of them", (*bundling).projects},
	{"servers.json", "registrations and their digests; of a command how many words it has, of a credential whether one is needed", (*bundling).servers},
	{"connections.json", "connections and their readiness, without what is granted", (*bundling).connections},
	{"credentials.json", "which project has a credential for which server; nothing of what it is or where it came from", (*bundling).credentials},
	{"ps.json", "live jails with their limits and what they use; no text of a tool server", (*bundling).ps},
	{"activity.json", "the newest records of calls: ids, states, codes, sizes and times; no arguments, no results, no principals", (*bundling).activity},
	{"audit.json", "the end of both records of changes: who, by which way, which action, on which id; not what it was before and after", (*bundling).changes},
	{"warnings.json", "what posternd warns of, and which lines of postern.yaml are mistaken", (*bundling).warnings},
	{"processes.json", "threads, memory, descriptors and goroutines of posternd and the authority", (*bundling).processes},
	{"kernel.json", "this kernel, its settings that matter, memory, load and pressure", (*bundling).kernel},
	{"filesystems.json", "the file systems of Postern's directories and of workspaces: type, flags, what is free", (*bundling).filesystems},
}

// bundling is one bundle in the making.
type bundling struct {
	a                           *app
	rootDir, stateDir, confFile string
	root                        answered[api.RootStatusResult]
	state                       answered[api.StatusResult]
	known                       answered[api.ProjectListResult]
}

// answered is an answer that several files need, asked for once.
type answered[R any] struct {
	once bool
	r    R
	err  error
}

func (x *answered[R]) get(ask func() (R, error)) (R, error) {
	if !x.once {
		x.r, x.err = ask()
		x.once = true
	}
	return x.r, x.err
}

// bundleFile and bundleResult are what the command prints, and what README lists.
type (
	bundleFile struct {
		Name  string `json:"name"`
		Bytes int    `json:"bytes"`
	}
	bundleMissing struct {
		Name string `json:"name"`
		Why  string `json:"why"` // it could not be asked
	}
	bundleResult struct {
		File    string          `json:"file"` // where it is
		Format  int             `json:"format"`
		Taken   int64           `json:"taken"` // milliseconds since the epoch
		Bytes   int             `json:"bytes"`
		SHA256  string          `json:"sha256"` // of the whole file
		Files   []bundleFile    `json:"files"`
		Missing []bundleMissing `json:"missing"`
	}
)

func (a *app) debugCommand() *cobra.Command {
	var out string
	b := &bundling{a: a}
	cmd := &cobra.Command{Use: "bundle [-o FILE]", Short: "write what somebody needs who looks for a fault, without a secret", Args: exactly(),
		Long: "Writes one .tar.gz that only root reads: versions, what doctor says, the settings, what runs, the newest records of calls\n" +
			"and of changes without what they were about, and facts of the kernel. Each file is made of named members alone: no\n" +
			"command line, environment, argument, result, token, code, credential or line of a tool server is among them. Names that\n" +
			"people chose (accounts, projects, servers, directories) are. README in it says what each file is.\n" +
			"While posternd is down it holds what can be had without it, and says what could not be asked."}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the new `file` (default: postern-debug-TIME.tar.gz here)")
	cmd.Flags().StringVar(&b.rootDir, "root-dir", "/var/lib/postern-root", "posternd's `directory`")
	cmd.Flags().StringVar(&b.stateDir, "state-dir", "/var/lib/postern", "the authority's `directory`")
	cmd.Flags().StringVar(&b.confFile, "config", "", "the `file` postern.yaml (default: the running supervisor's, or /etc/postern/postern.yaml)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return api.Refuse(refusal.NotPermitted, "Only root makes a bundle.")
		}
		taken := time.Now()
		if out == "" {
			out = "postern-debug-" + taken.UTC().Format("20060102T150405") + ".tar.gz"
		}
		r, err := b.write(cmd.Context(), out, taken)
		if err != nil {
			return err
		}
		return a.show(r, func(t *table) {
			t.row("FILE", "BYTES")
			for _, f := range r.Files {
				t.row(f.Name, f.Bytes)
			}
			for _, m := range r.Missing {
				t.line("not in it: %s: %s", m.Name, m.Why)
			}
			t.line("%s: %d bytes, sha256 %s", r.File, r.Bytes, r.SHA256)
		})
	}
	return a.group("debug", "what helps to find a fault", cmd)
}

// write gathers everything and writes it as one new file that is root's alone.
func (b *bundling) write(ctx context.Context, path string, taken time.Time) (r bundleResult, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return r, err
	}
	r = bundleResult{File: path, Format: bundleFormat, Taken: taken.UnixMilli(), Files: []bundleFile{}, Missing: []bundleMissing{}}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return r, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	var content [][]byte
	for _, s := range bundleSections {
		raw, err := b.one(ctx, s)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			r.Missing = append(r.Missing, bundleMissing{s.name, whyMissing(err)})
			continue
		}
		r.Files, content = append(r.Files, bundleFile{s.name, len(raw)}), append(content, raw)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	t := tar.NewWriter(z)
	put := func(name string, raw []byte) error {
		h := &tar.Header{Name: "postern-debug/" + name, Mode: 0o600, Size: int64(len(raw)), ModTime: taken, Typeflag: tar.TypeReg}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(raw)
		return err
	}
	err = put(bundleReadme, []byte(r.readme()))
	for i, f := range r.Files {
		err = errors.Join(err, put(f.Name, content[i]))
	}
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return r, err
	}
	sum := sha256.Sum256(packed.Bytes())
	r.Bytes, r.SHA256 = packed.Len(), hex.EncodeToString(sum[:])
	if _, err := io.Copy(f, &packed); err != nil {
		return r, err
	}
	return r, f.Sync()
}

var errLongFile = fmt.Errorf("it is longer than %d bytes", bundleFileBytes)

// one gathers a file.
func (b *bundling) one(ctx context.Context, s bundleSection) ([]byte, error) {
	v, err := s.gather(b, ctx)
	if err != nil {
		return nil, err
	}
	raw, err := api.Encode(v)
	switch {
	case err != nil:
		return nil, err
	case len(raw) > bundleFileBytes:
		return nil, errLongFile
	}
	return printable(raw), nil
}

// whyMissing tells an error in words that are ours or the kernel's: its own text may quote
// what is not to be in a bundle.
func whyMissing(err error) string {
	var r *api.Refusal
	var errno syscall.Errno
	switch {
	case errors.As(err, &r):
		return string(r.Code)
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, errLongFile):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return "it could not be read"
}

// readme says what each file is, and which are not there.
func (r bundleResult) readme() string {
	var s strings.Builder
	fmt.Fprintf(&s, "A bundle of postern debug bundle, format %d, taken %s.\n\n", r.Format, time.UnixMilli(r.Taken).UTC().Format(time.RFC3339))
	s.WriteString("It holds no command line, environment, argument, result, token, code, credential or line of a tool server.\n" +
		"It holds names that people chose: of accounts, projects, servers, hosts and directories.\n" +
		"Each file is one JSON document. A list has at most so many rows, and says in \"more\" how many it leaves out.\n\n")
	there := map[string]bool{}
	for _, f := range r.Files {
		there[f.Name] = true
	}
	for _, x := range bundleSections {
		if there[x.name] {
			fmt.Fprintf(&s, "%-18s %s\n", x.name, x.what)
		}
	}
	if len(r.Missing) > 0 {
		s.WriteString("\nNot in it, and why:\n")
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&s, "%-18s %s\n", m.Name, m.Why)
	}
	return s.String()
}

// rows is a list of a bundle, with how much of it was left out.
type rows[T any] struct {
	Rows []T `json:"rows"`
	More int `json:"more,omitzero"`
}

// rowsOf turns the first of a list into rows.
func rowsOf[S, T any](all []S, most int, of func(S) T) rows[T] {
	out := rows[T]{Rows: []T{}, More: max(0, len(all)-most)}
	for _, x := range all[:len(all)-out.More] {
		out.Rows = append(out.Rows, of(x))
	}
	return out
}
