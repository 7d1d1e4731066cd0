package main

import (
	"errors"
	"fmt"
	"io/fs"

	"postern/refusal"
)

// fileError is what is wrong with a file that was named on the command line, with the
// code that a program branches by.
type fileError struct {
	code refusal.Code
	text string
}

func (e *fileError) Error() string { return e.text }

func fileErrorf(code refusal.Code, format string, args ...any) error {
	return &fileError{code, fmt.Sprintf(format, args...)}
}

// codeOf is the code of an error that no socket answered. What a program can do about it
// depends on whether a file was missing, taken or closed to it; the rest is internal.
func codeOf(err error) refusal.Code {
	var f *fileError
	switch {
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, fs.ErrExist):
		return refusal.AlreadyExists
	case errors.Is(err, fs.ErrNotExist):
		return refusal.NotFound
	case errors.Is(err, fs.ErrPermission):
		return refusal.NotPermitted
	}
	return refusal.Internal
}
