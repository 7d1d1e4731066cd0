package jail

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"postern/jail/rootfs"
	"postern/jail/spec"
)

// document says everything but the descriptors' numbers and the filters.
func document(r Request) spec.Document {
	d := spec.Document{
		UID: r.UID, GID: r.GID, Argv: r.Argv, Env: r.Env, Dir: r.Dir, Fork: r.Profile.Fork,
		Binds: r.Profile.Binds, Links: r.Profile.Links,
		Devices: r.Profile.Devices, Proc: r.Profile.Proc, Loopback: r.Profile.Loopback,
		Limits: r.Limits, ABI: r.Profile.Landlock.ABI, Rules: r.rules(), SecretEnv: r.SecretEnv,
	}
	if r.Workspace != nil && !r.Workspace.ReadOnly {
		d.Protect = r.Workspace.Protect
	}
	return d
}

// builder gathers what a new process is given.
type builder struct {
	doc  spec.Document
	mine []*os.File // to be closed here once the process has its copies

	workspace, pkg, program *os.File
}

func (b *builder) close() {
	for _, f := range b.mine {
		f.Close()
	}
	b.mine = nil
}

// mounts makes the detached mounts of what a request brings along. They are
// made here because a mount of another namespace cannot be copied: the source
// descriptors are the launcher's.
func (b *builder) mounts(r Request) error {
	detach := func(step string, src *os.File, kind uint32, a rootfs.Attr) (*os.File, error) {
		if err := isKind(fd(src), kind); err != nil {
			return nil, failed(step, err)
		}
		tree, err := rootfs.Detach(fd(src), a)
		if err != nil {
			return nil, failed(step, err)
		}
		f := os.NewFile(uintptr(tree), step)
		b.mine = append(b.mine, f)
		return f, nil
	}
	var err error
	if r.Package != nil {
		a := rootfs.Attr{ReadOnly: true, NoExec: !r.Profile.PackageExec}
		if b.pkg, err = detach("package", r.Package, unix.S_IFDIR, a); err != nil {
			return err
		}
	}
	if r.Program != nil {
		if b.program, err = detach("program", r.Program, unix.S_IFREG, rootfs.Attr{ReadOnly: true}); err != nil {
			return err
		}
	}
	if r.Workspace != nil {
		ns, err := userns(r.identities())
		if err != nil {
			return failed("workspace", fmt.Errorf("user namespace: %w", err))
		}
		defer ns.Close()
		a := rootfs.Attr{ReadOnly: r.Workspace.ReadOnly, NoExec: true, Userns: fd(ns)}
		b.workspace, err = detach("workspace", r.Workspace.Dir, unix.S_IFDIR, a)
		if errors.Is(err, unix.EINVAL) {
			err = &StepError{Step: "workspace", Why: "its file system cannot map ids", Errno: unix.EINVAL}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// files lists the descriptors of the new process, in the order of
// spec.DocumentFD, and writes their numbers into the document.
func (b *builder) files(r Request, document, failure *os.File) ([]*os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	b.mine = append(b.mine, null)
	files := []*os.File{r.Stdin, r.Stdout, r.Stderr, document, failure}
	for i, f := range files {
		if f == nil {
			files[i] = null
		}
	}
	for _, m := range []struct {
		file *os.File
		to   *int
	}{{b.workspace, &b.doc.WorkspaceFD}, {b.pkg, &b.doc.PackageFD}, {b.program, &b.doc.ProgramFD}, {r.Secret, &b.doc.SecretFD}} {
		if m.file != nil {
			*m.to = len(files)
			files = append(files, m.file)
		}
	}
	b.doc.ExtraFDs = []int{}
	for _, f := range r.Extra {
		// One that is missing takes a place all the same: so each source lies above its
		// goal, which the step of this name relies on. A nil file is closed.
		number := 0
		if f != nil {
			number = len(files)
		}
		b.doc.ExtraFDs = append(b.doc.ExtraFDs, number)
		files = append(files, f)
	}
	return files, nil
}
