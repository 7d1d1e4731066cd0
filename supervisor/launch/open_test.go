package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A start that fails late gives back what it took before, and says why: giving it back
// once ended in a panic, as on a kernel below the floor.
func TestALateFailureOfTheStartIsToldAndLeavesNothing(t *testing.T) {
	cfg := newConfig(t)
	cfg.Log = hclog.NewNullLogger()
	partial := newDir(t)
	for _, name := range []string{authorityProgram, bridgeProgram} {
		raw, err := os.ReadFile(filepath.Join(cfg.Libexec, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(partial, name), raw, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	whole := cfg.Libexec
	cfg.Libexec = partial // without the program that builds jails
	if err := Run(context.Background(), cfg); !errors.Is(err, ErrConfig) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(cfg.RunDir); !errors.Is(err, os.ErrNotExist) && len(left) != 0 {
		t.Errorf("left in the run directory: %v, %v", left, err)
	}
	// Its twin takes the same directories, so nothing holds them any more.
	cfg.Libexec = whole
	start(t, cfg)
}
