package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxReply is how much of a person's answer is read.
const maxReply = 64

// asks tells whether a person sits at the other end.
func (a *app) asks() bool {
	if a.in == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(a.in.Fd()), unix.TCGETS)
	return err == nil
}

// terminal tells whether somebody would read what is written there on a screen.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// agreed asks and takes nothing but "y" or "yes" for a yes.
func (a *app) agreed(question string) bool {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(io.LimitReader(a.in, maxReply)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
