package store

import (
	"context"
	"fmt"

	"github.com/ncruces/go-sqlite3/vfs"
)

// telling is a context that never ends. SQLite asks it whether it has, every thousand
// steps of a statement, which is one way in which long work tells that it goes on.
type telling struct {
	context.Context
	alive func()
}

func (t telling) Err() error { t.alive(); return nil }

// layer is the other way: a file system between SQLite and the one below, which tells of
// every transfer that has come to its end. A check of a whole file is one step of a
// statement, asks its context for each thousand pages of a tree only, and never for what
// long values spill into: on a slow disk it was silent for longer than anybody waits. A
// transfer that hangs tells nothing.
type layer struct {
	vfs.VFS
	name  string
	alive func()
}

// newLayer makes a layer over the file system that SQLite knows by a name. It is there
// until it is removed.
func newLayer(below string, alive func()) (*layer, error) {
	l := &layer{VFS: vfs.Find(below), alive: alive}
	if l.VFS == nil {
		return nil, fmt.Errorf("there is no file system %q: %w", below, ErrIO)
	}
	// SQLite keeps the layer by this name, and so nothing else gets the address.
	l.name = fmt.Sprintf("telling-%p", l)
	vfs.Register(l.name, l)
	return l, nil
}

func (l *layer) remove() { vfs.Unregister(l.name) }

// hush ends what the writer of a file tells: the store is open. It belongs to the writer's
// goroutine.
func (f *file) hush() {
	f.writer.SetInterrupt(context.Background())
	f.layer.alive = silent
}

func (l *layer) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return l.over(l.VFS.Open(name, flags))
}

func (l *layer) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if v, ok := l.VFS.(vfs.VFSFilename); ok {
		return l.over(v.OpenFilename(name, flags))
	}
	return l.Open(name.String(), flags)
}

func (l *layer) over(f vfs.File, flags vfs.OpenFlag, err error) (vfs.File, vfs.OpenFlag, error) {
	if err != nil {
		return nil, flags, err
	}
	return &layerFile{File: f, layer: l}, flags, nil
}

// layerFile is one file of a layer. Everything that a file may do beside what it must, and
// that SQLite asks for here, is passed on by name.
type layerFile struct {
	vfs.File
	layer *layer
}

// A transfer that ends in an error tells too: SQLite ends with it.
func (f *layerFile) ReadAt(p []byte, off int64) (int, error) {
	defer f.layer.alive()
	return f.File.ReadAt(p, off)
}

func (f *layerFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.layer.alive()
	return f.File.WriteAt(p, off)
}

func (f *layerFile) Truncate(size int64) error {
	defer f.layer.alive()
	return f.File.Truncate(size)
}

func (f *layerFile) Sync(flags vfs.SyncFlag) error {
	defer f.layer.alive()
	return f.File.Sync(flags)
}

func (f *layerFile) SharedMemory() vfs.SharedMemory {
	if below, ok := f.File.(vfs.FileSharedMemory); ok {
		return below.SharedMemory()
	}
	return nil
}

func (f *layerFile) SizeHint(size int64) error {
	if below, ok := f.File.(vfs.FileSizeHint); ok {
		return below.SizeHint(size)
	}
	return nil
}

func (f *layerFile) HasMoved() (bool, error) {
	if below, ok := f.File.(vfs.FileHasMoved); ok {
		return below.HasMoved()
	}
	return false, nil
}
