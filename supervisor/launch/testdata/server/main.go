// Command server is a tool server for tests: it says what it was given, echoes its
// stdin and ends with it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	fds := []string{}
	for fd := 0; fd < 64; fd++ {
		if _, err := os.NewFile(uintptr(fd), "").Stat(); err == nil {
			fds = append(fds, fmt.Sprint(fd))
		}
	}
	wrote := ""
	if len(os.Args) > 1 {
		if err := os.WriteFile(os.Args[1], []byte("x"), 0o644); err != nil {
			wrote = err.Error()
		}
	}
	passed := ""
	if raw, err := io.ReadAll(io.LimitReader(os.NewFile(5, ""), 1<<20)); err == nil {
		passed = string(raw)
	}
	_, unsealed := os.NewFile(5, "").Write([]byte("x"))
	json.NewEncoder(os.Stdout).Encode(map[string]any{"passed": passed, "sealed": unsealed != nil, "env": os.Environ(), "fds": fds, "args": os.Args, "wrote": wrote, "uid": os.Getuid()})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(in.Text())
	}
}
