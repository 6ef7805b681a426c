package storage

import (
	"errors"
	"io"
	"os"

	"github.com/hashicorp/raft-wal/types"
)

// fileSystem is what a log does with files; tests make it fail.
type fileSystem interface {
	OpenFile(name string, flag int) (file, error)
	Remove(name string) error
	ReadDir(name string) ([]string, error)
	MkdirAll(name string) error
	SyncDir(name string) error
}

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (osFS) OpenFile(name string, flag int) (file, error) {
	f, err := os.OpenFile(name, flag, 0o640)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error   { return os.Remove(name) }
func (osFS) MkdirAll(name string) error { return os.MkdirAll(name, 0o750) }

func (osFS) ReadDir(name string) ([]string, error) {
	es, err := os.ReadDir(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(es))
	for _, e := range es {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// oneFile shows raft-wal an open file as a file system. The log syncs and closes
// the file itself: when depends on its mode.
type oneFile struct{ f file }

type libFile struct{ file }

func (libFile) Sync() error  { return nil }
func (libFile) Close() error { return nil }

var errNoOther = errors.New("storage: the library asked for a file of another name")

func (o oneFile) Create(string, string, uint64) (types.WritableFile, error) { return libFile{o.f}, nil }
func (o oneFile) OpenWriter(string, string) (types.WritableFile, error)     { return libFile{o.f}, nil }
func (o oneFile) OpenReader(string, string) (types.ReadableFile, error)     { return libFile{o.f}, nil }
func (oneFile) ListDir(string) ([]string, error)                            { return nil, errNoOther }
func (oneFile) Delete(string, string) error                                 { return errNoOther }
