// Command hold becomes postern-jail when a pipe that somebody made has been closed by its
// writer, and at once where there is none. Both lie beside it: it is given neither
// arguments nor variables.
package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		os.Exit(1)
	}
	if f, err := os.OpenFile(filepath.Join(filepath.Dir(self), "pipe"), os.O_RDONLY, 0); err == nil {
		io.Copy(io.Discard, f)
	}
	syscall.Exec(filepath.Join(filepath.Dir(self), "held"), []string{"postern-jail"}, os.Environ())
	os.Exit(1)
}
