package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPolicyIsCoveredByItsTests fails for each block of the packages that decide which no
// test of their own reaches. A branch there that nothing can reach is taken out, or what it
// guards is given a function that a test can call.
func TestPolicyIsCoveredByItsTests(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "cover")
	// The draws of the properties are the same each time: what is covered is no matter of luck.
	cmd := exec.Command("go", "test", "-coverprofile="+profile, "./policy", "./policy/class", "./policy/access", "-rapid.seed=1")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blocks := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// mode: set, and then file:from,to statements count
		where := strings.Fields(lines.Text())
		if len(where) != 3 {
			continue
		}
		if blocks++; where[2] == "0" {
			t.Errorf("%s: %s statements that no test reaches", strings.TrimPrefix(where[0], module), where[1])
		}
	}
	if blocks == 0 {
		t.Error("the profile names no block")
	}
}
