package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// suiteWait bounds one run of the conformance suite.
const suiteWait = 5 * time.Minute

// worse are the scenarios, or single checks of one, that the same server passes by itself
// and not behind the bridge, for each revision, with the reason. What is no worse must be
// taken out.
var worse = map[string]map[string]string{
	"2025-11-25": {
		"tools-call-sampling": noSampling,
	},
	"2026-07-28": {
		"input-required-result-basic-list-roots":        noRoots,
		"input-required-result-basic-sampling":          noSampling,
		"input-required-result-capability-check":        noSampling, // its client can do nothing else, so the server is offered nothing
		"input-required-result-multiple-input-requests": noSampling, // a form, the model and the roots in one answer, which is refused whole
	},
}

// Why something is worse. docs/runtime-authors.md says the same to its readers.
const (
	noRoots    = "a tool server never learns a runtime's directories: some serve them instead of their own"
	noSampling = "a tool server can not use the runtime's model"
)

// The public conformance suite, against a complete server directly and behind the
// bridge: no scenario may be worse through us, unless it stands above.
func TestConformanceIsNoWorseThroughTheBridge(t *testing.T) {
	w := newWorld(t)
	for revision, known := range worse {
		t.Run(revision, func(t *testing.T) {
			u := fixture("everything")
			u.label += "-" + revision // of its own for each: it speaks what the first who calls it speaks
			u.under = []string{"test://static-text", "test://static-binary", "test://template", "test://watched-resource"}
			through := w.behind(u)
			direct := conformance(t, u.direct, revision)
			bridged := conformance(t, through, revision)
			passed, found := 0, map[string]bool{}
			for _, check := range slices.Sorted(maps.Keys(direct)) {
				entry, _, _ := strings.Cut(check, "/")
				if known[entry] == "" {
					entry = check
				}
				switch _, expected := known[entry]; {
				case direct[check] != "SUCCESS":
				case bridged[check] == "SUCCESS":
					passed++
				case expected:
					found[entry] = true
				default:
					t.Errorf("%s passes directly, and is %q through the bridge", check, bridged[check])
				}
			}
			for entry := range known {
				if !found[entry] {
					t.Errorf("%s is no worse through the bridge: take it out of the table", entry)
				}
			}
			t.Logf("%s: %d checks pass directly, %d of them through the bridge; %d entries are known to be worse", revision, count(direct, "SUCCESS"), passed, len(known))
			// A suite that ran nothing would find nothing worse.
			if count(direct, "SUCCESS") < leastPassed[revision] {
				t.Errorf("only %d checks pass directly, %d should", count(direct, "SUCCESS"), leastPassed[revision])
			}
		})
	}
}

// leastPassed is how many checks the server passes by itself.
var leastPassed = map[string]int{"2025-11-25": 75, "2026-07-28": 120}

func count(checks map[string]string, status string) (n int) {
	for _, s := range checks {
		if s == status {
			n++
		}
	}
	return n
}

// stamp ends the name of each scenario's directory.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[0-9-]+Z$`)

// conformance runs the suite against the command and returns the status of each check,
// by scenario and check. One that is reported more than once has its worst.
func conformance(t *testing.T, argv []string, revision string) map[string]string {
	t.Helper()
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), suiteWait)
	defer cancel()
	c := exec.CommandContext(ctx, built.node, filepath.Join(built.clients, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
		"server", "--url", serve(t, argv), "--requirements", revision, "-o", out)
	c.Dir, c.Env = out, []string{"PATH=/usr/bin:/bin", "HOME=" + out}
	said, err := c.CombinedOutput() // a failed check is an exit of 1
	if ctx.Err() != nil {
		t.Fatalf("the suite did not end in time\n%s", said)
	}
	found, _ := filepath.Glob(filepath.Join(out, "*/checks.json"))
	if len(found) == 0 {
		t.Fatalf("the suite reported nothing: %v\n%s", err, said)
	}
	status := map[string]string{}
	for _, path := range found {
		var checks []struct{ ID, Status, ErrorMessage string }
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		if err != nil {
			t.Fatal(err)
		}
		scenario := strings.TrimPrefix(stamp.ReplaceAllString(filepath.Base(filepath.Dir(path)), ""), "server-")
		for _, k := range checks {
			key := fmt.Sprintf("%s/%s", scenario, k.ID)
			if rank[k.Status] >= rank[status[key]] {
				status[key] = k.Status
			}
			if k.Status == "FAILURE" || k.Status == "WARNING" {
				t.Logf("%s %s: %s", filepath.Base(argv[0]), key, k.ErrorMessage)
			}
		}
	}
	return status
}

var rank = map[string]int{"SUCCESS": 1, "INFO": 1, "SKIPPED": 2, "WARNING": 3, "FAILURE": 4}
