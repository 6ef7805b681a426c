package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MetaFile is the name of the description within a recording directory.
const MetaFile = "meta.json"

// Recording is a recording directory that was read.
type Recording struct {
	Dir      string
	Meta     Meta
	Profiles map[Source]*Profile
	Slices   map[Source]*Slices

	Distributions map[Source][]Distribution
	Locks         []Lock // nil where locks were not recorded

	files opener
}

// Open reads a recording directory, or a file that holds one as CreateStream
// wrote it. A source whose file is missing or broken is an error that names the
// file.
func Open(path string) (*Recording, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open recording: %w", err)
		}
		defer f.Close()
		return OpenStream(f, path)
	}
	return open(func(name string) (io.ReadCloser, error) { return os.Open(filepath.Join(path, name)) }, path)
}

// opener opens a file of a recording by its name.
type opener func(name string) (io.ReadCloser, error)

// open reads a recording's files; dir is their place, for messages.
func open(files opener, dir string) (*Recording, error) {
	f, err := files(MetaFile)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(f)
		f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open recording %s: it has no %s; name a directory that `contention record -o` wrote", dir, MetaFile)
	}
	if err != nil {
		return nil, fmt.Errorf("open recording: %s: %w", dir, err)
	}
	r := &Recording{
		Dir: dir, files: files, Profiles: map[Source]*Profile{}, Slices: map[Source]*Slices{}, Distributions: map[Source][]Distribution{},
	}
	if err := json.Unmarshal(data, &r.Meta); err != nil {
		return nil, fmt.Errorf("open recording: %s: %w", filepath.Join(dir, MetaFile), err)
	}
	if r.Meta.Schema < 1 || r.Meta.Schema > MetaSchema {
		return nil, fmt.Errorf("open recording %s: schema %d is not known to this version, which reads 1 to %d", dir, r.Meta.Schema, MetaSchema)
	}
	for _, s := range r.Meta.Sources {
		if err := r.load(s); err != nil {
			return nil, fmt.Errorf("open recording: %w", err)
		}
	}
	return r, nil
}

func (r *Recording) load(s SourceInfo) error {
	var p *Profile
	err := r.read(s.File, func(f io.Reader) (err error) { p, err = Read(f); return err })
	if err != nil {
		return err
	}
	r.Profiles[s.Source] = p
	if err := r.loadDetails(s, p); err != nil {
		return err
	}
	if s.SliceFile == "" {
		return nil
	}
	return r.read(s.SliceFile, func(f io.Reader) (err error) { r.Slices[s.Source], err = ReadSlices(f, p); return err })
}

// read reads one file. A name in meta.json that would leave the directory is
// refused.
func (r *Recording) read(name string, read func(io.Reader) error) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%s: file name %q leaves the recording directory", filepath.Join(r.Dir, MetaFile), name)
	}
	path := filepath.Join(r.Dir, name)
	f, err := r.files(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Writer writes a recording. From the start on there is a meta.json marked
// incomplete, so that what an interrupted recording left can be read.
type Writer struct {
	sink sink
	dir  string // for messages
	meta Meta
}

// sink takes a recording's files.
type sink interface {
	// put adds a file, or replaces the one of that name.
	put(name string, data []byte) error
	// finish is called once, after the last put.
	finish() error
}

type dirSink string

func (d dirSink) put(name string, data []byte) error {
	return WriteFile(filepath.Join(string(d), name), data)
}

func (dirSink) finish() error { return nil }

// Create makes the directory, which must not hold a recording yet, and writes
// meta.json.
func Create(dir string, meta Meta) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, MetaFile)); err == nil {
		return nil, fmt.Errorf("create recording: %s holds one already; name another directory", dir)
	}
	return create(dirSink(dir), dir, meta)
}

func create(to sink, dir string, meta Meta) (*Writer, error) {
	meta.Schema, meta.Incomplete = MetaSchema, true
	if meta.Why == "" {
		meta.Why = "the recorder did not finish"
	}
	w := &Writer{sink: to, dir: dir, meta: meta}
	return w, w.writeMeta()
}

// Capture writes the files of one source and adds it to meta.json.
func (w *Writer) Capture(c *Capture) error {
	info := SourceInfo{
		Source: c.Source, Plane: c.Source.Plane(), File: c.Source.File(), Settings: c.Settings, Loss: c.Loss,
		Accounting: c.Accounting, Busiest: c.Busiest, Cost: c.Cost, Incomplete: c.Incomplete,
		Window: Window{c.Start, c.End, int64(c.End.Sub(c.Start))},
	}
	var buf bytes.Buffer
	if err := Write(&buf, c.Profile); err != nil {
		return fmt.Errorf("recording %s: %s: %w", w.dir, info.File, err)
	}
	if err := w.sink.put(info.File, buf.Bytes()); err != nil {
		return err
	}
	if c.Slices != nil {
		info.SliceFile = c.Source.SliceFile()
		buf.Reset()
		if err := WriteSlices(&buf, c.Slices, c.Profile); err != nil {
			return fmt.Errorf("recording %s: %s: %w", w.dir, info.SliceFile, err)
		}
		if err := w.sink.put(info.SliceFile, buf.Bytes()); err != nil {
			return err
		}
	}
	if err := w.details(c, &info); err != nil {
		return err
	}
	w.meta.Sources = append(w.meta.Sources, info)
	w.meta.Warnings = append(w.meta.Warnings, c.Warnings...)
	return w.writeMeta()
}

// Finish lets update complete the description and marks the recording as whole,
// unless update sets Incomplete.
func (w *Writer) Finish(update func(m *Meta)) error {
	w.meta.Incomplete, w.meta.Why = false, ""
	update(&w.meta)
	if err := w.writeMeta(); err != nil {
		return err
	}
	return w.sink.finish()
}

func (w *Writer) writeMeta() error {
	data, err := json.MarshalIndent(w.meta, "", "  ")
	if err != nil {
		return fmt.Errorf("recording %s: %w", w.dir, err)
	}
	return w.sink.put(MetaFile, append(data, '\n'))
}

// WriteFile writes a file so that a reader sees the old content or the new,
// never a part: temporary name, fsync, rename.
func WriteFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
