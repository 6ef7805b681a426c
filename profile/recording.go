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
}

// Open reads a recording directory. A source whose file is missing or broken
// is an error that names the file.
func Open(dir string) (*Recording, error) {
	data, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open recording %s: it has no %s; name a directory that `contention record -o` wrote", dir, MetaFile)
	}
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	r := &Recording{Dir: dir, Profiles: map[Source]*Profile{}, Slices: map[Source]*Slices{}, Distributions: map[Source][]Distribution{}}
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
	path, err := r.inside(s.File)
	if err != nil {
		return err
	}
	var p *Profile
	err = withFile(path, func(f io.Reader) (err error) { p, err = Read(f); return err })
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
	if path, err = r.inside(s.SliceFile); err != nil {
		return err
	}
	return withFile(path, func(f io.Reader) (err error) { r.Slices[s.Source], err = ReadSlices(f, p); return err })
}

// inside refuses a name in meta.json that would leave the directory.
func (r *Recording) inside(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s: file name %q leaves the recording directory", filepath.Join(r.Dir, MetaFile), name)
	}
	return filepath.Join(r.Dir, name), nil
}

func withFile(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Writer writes a recording directory. From Create on the directory holds a
// meta.json marked incomplete, so that what an interrupted recording left can
// be read.
type Writer struct {
	dir  string
	meta Meta
}

// Create makes the directory, which must not hold a recording yet, and writes
// meta.json.
func Create(dir string, meta Meta) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, MetaFile)); err == nil {
		return nil, fmt.Errorf("create recording: %s holds one already; name another directory", dir)
	}
	meta.Schema, meta.Incomplete = MetaSchema, true
	if meta.Why == "" {
		meta.Why = "the recorder did not finish"
	}
	w := &Writer{dir: dir, meta: meta}
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
	if err := WriteFile(filepath.Join(w.dir, info.File), buf.Bytes()); err != nil {
		return err
	}
	if c.Slices != nil {
		info.SliceFile = c.Source.SliceFile()
		buf.Reset()
		if err := WriteSlices(&buf, c.Slices, c.Profile); err != nil {
			return fmt.Errorf("recording %s: %s: %w", w.dir, info.SliceFile, err)
		}
		if err := WriteFile(filepath.Join(w.dir, info.SliceFile), buf.Bytes()); err != nil {
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
	return w.writeMeta()
}

func (w *Writer) writeMeta() error {
	data, err := json.MarshalIndent(w.meta, "", "  ")
	if err != nil {
		return fmt.Errorf("recording %s: %w", w.dir, err)
	}
	return WriteFile(filepath.Join(w.dir, MetaFile), append(data, '\n'))
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
