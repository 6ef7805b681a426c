package profile

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// A recording as a stream is a tar archive of the recording directory's files, in
// the order in which they were written. meta.json comes again after each source;
// the last one counts. A stream that was cut still gives the sources that came
// through whole, and is marked incomplete.

// CreateStream writes the recording to w as a tar archive; nothing is left to do
// after Writer.Finish, which does not close w.
func CreateStream(w io.Writer, meta Meta) (*Writer, error) {
	t := &tarSink{tar: tar.NewWriter(w)}
	return create(t, "stream", meta)
}

type tarSink struct{ tar *tar.Writer }

func (t *tarSink) put(name string, data []byte) error {
	h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Now().Truncate(time.Second), Format: tar.FormatPAX}
	err := t.tar.WriteHeader(h)
	if err == nil {
		_, err = t.tar.Write(data)
	}
	if err == nil {
		err = t.tar.Flush()
	}
	if err != nil {
		return fmt.Errorf("write %s into the stream: %w", name, err)
	}
	return nil
}

func (t *tarSink) finish() error {
	if err := t.tar.Close(); err != nil {
		return fmt.Errorf("end the stream: %w", err)
	}
	return nil
}

// What a stream may hold at most, and in how many files.
const (
	maxStream = 2 << 30
	maxFiles  = 1000
)

// OpenStream reads a recording that CreateStream wrote; name is for messages. A
// stream that ends early is no error where its description came through: the
// recording is then marked incomplete, with the place in Why.
func OpenStream(in io.Reader, name string) (*Recording, error) {
	files := map[string][]byte{}
	cut, err := readTar(in, files)
	if err != nil {
		return nil, fmt.Errorf("open recording %s: %w", name, err)
	}
	if files[MetaFile] == nil {
		if cut != "" {
			return nil, fmt.Errorf("open recording %s: %s, before its %s: nothing of it can be used", name, cut, MetaFile)
		}
		return nil, fmt.Errorf("open recording %s: the archive holds no %s; name a file that `contention record -o -` wrote", name, MetaFile)
	}
	r, err := open(func(file string) (io.ReadCloser, error) {
		data, ok := files[file]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: filepath.Join(name, file), Err: fs.ErrNotExist}
		}
		return io.NopCloser(bytes.NewReader(data)), nil
	}, name)
	if err != nil {
		return nil, err
	}
	if cut != "" {
		r.Meta.Incomplete, r.Meta.Why = true, cut
	}
	return r, nil
}

// readTar fills files. cut says where the stream ended when it was not whole.
func readTar(in io.Reader, files map[string][]byte) (cut string, err error) {
	count := &counter{r: in}
	t := tar.NewReader(count)
	var total int64
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return trailer(count), nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Sprintf("the stream was cut after %d bytes", count.n), nil
		case err != nil:
			return "", fmt.Errorf("not a recording's tar stream: at byte %d: %w", count.n, err)
		case n >= maxFiles:
			return "", fmt.Errorf("the archive holds more than %d files", maxFiles)
		case h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) || filepath.Base(h.Name) != h.Name:
			return "", fmt.Errorf("the archive holds %q: a recording holds plain files in one directory only", h.Name)
		case total+h.Size > maxStream:
			return "", fmt.Errorf("the archive holds more than %d MiB", maxStream>>20)
		}
		total += h.Size
		var buf bytes.Buffer
		if _, err := io.Copy(&buf, t); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Sprintf("the stream was cut after %d bytes, inside %s", count.n, h.Name), nil
			}
			return "", fmt.Errorf("%s: %w", h.Name, err)
		}
		files[h.Name] = buf.Bytes()
	}
}

// trailer tells a stream that ends between two files from one that is whole: an
// archive ends with two blocks of zeros.
func trailer(c *counter) string {
	if c.tail == [2 * tarBlock]byte{} && c.n >= 2*tarBlock {
		return ""
	}
	return fmt.Sprintf("the stream was cut after %d bytes, between two files", c.n)
}

const tarBlock = 512

// counter counts what is read and keeps its end.
type counter struct {
	r    io.Reader
	n    int64
	tail [2 * tarBlock]byte
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if n >= len(c.tail) {
		copy(c.tail[:], p[n-len(c.tail):n])
	} else {
		copy(c.tail[:], c.tail[n:])
		copy(c.tail[len(c.tail)-n:], p[:n])
	}
	return n, err
}
