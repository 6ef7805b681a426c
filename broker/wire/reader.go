package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame is one frame of a stream. Its slices alias the reader's buffer and are
// valid until the next call to Next.
type Frame struct {
	Command []byte // BaseCommand, for Parse
	// HeadersAndPayload starts with 0x0e01; nil for a simple frame.
	HeadersAndPayload []byte
	// BrokerEntry is BrokerEntryMetadata, for ParseBrokerEntry; nil if absent.
	BrokerEntry []byte
	// Offset is the frame's first byte in the stream.
	Offset int64
}

// ReaderOptions configures a FrameReader; the zero value is good.
type ReaderOptions struct {
	// MaxFrameSize bounds a frame after its first length, in bytes, and with it
	// the buffer; 0 means DefaultMaxMessageSize + FramePadding.
	MaxFrameSize int
	// BufferSize is the buffer's size at the start and at rest, in bytes; 0
	// means 32 KiB.
	BufferSize int
	// VerifyChecksum makes Next check the CRC32C of each payload.
	VerifyChecksum bool
	// ReadFailed, when set, is called with what the underlying reader returned,
	// other than io.EOF. If it returns nil, as after a deadline that only meant
	// to interrupt, the read is tried again; else Next returns its error.
	ReadFailed func(error) error
}

// FrameReader cuts a stream into frames. It reads as much as its buffer takes,
// so that many small frames cost one read, and grows the buffer only as bytes
// arrive: a frame that announces much and sends little costs little. It is not
// safe for concurrent use.
type FrameReader struct {
	r          io.Reader
	opts       ReaderOptions
	buf        []byte
	start, end int   // unread bytes are buf[start:end]
	offset     int64 // stream offset of buf[start]
	err        error // sticky
}

// FrameError says which frame of a stream cannot be read, and why.
type FrameError struct {
	Offset int64 // first byte of the frame in the stream
	Size   int64 // bytes it announced after its first length; −1 when not known
	Err    error
}

// Error returns one line with the place, the size and the cause.
func (e *FrameError) Error() string {
	if e.Size < 0 {
		return fmt.Sprintf("frame at byte %d: %v", e.Offset, e.Err)
	}
	return fmt.Sprintf("frame at byte %d, %d bytes long: %v", e.Offset, e.Size, e.Err)
}

// Unwrap returns the cause.
func (e *FrameError) Unwrap() error { return e.Err }

// ErrFrameTooLarge means that a frame announced more than MaxFrameSize.
var ErrFrameTooLarge = errors.New("frame is larger than the limit")

var errShortFrame = errors.New("frame is shorter than its own lengths")

// NewFrameReader returns a reader of r's frames.
func NewFrameReader(r io.Reader, opts ReaderOptions) *FrameReader {
	if opts.MaxFrameSize <= 0 {
		opts.MaxFrameSize = DefaultMaxMessageSize + FramePadding
	}
	if opts.BufferSize <= 0 {
		opts.BufferSize = 32 << 10
	}
	opts.BufferSize = max(min(opts.BufferSize, opts.MaxFrameSize+4), 16)
	return &FrameReader{r: r, opts: opts, buf: make([]byte, opts.BufferSize)}
}

// Buffered reports whether Next would return without reading: a whole frame,
// or an error, is at hand. A server uses it to answer a batch of frames at
// once.
func (fr *FrameReader) Buffered() bool {
	if fr.err != nil {
		return true
	}
	have := fr.end - fr.start
	if have < 4 {
		return false
	}
	total := binary.BigEndian.Uint32(fr.buf[fr.start:])
	return uint64(total) > uint64(fr.opts.MaxFrameSize) || uint64(have) >= 4+uint64(total)
}

// Next reads one frame into f. It returns io.EOF at the end of the stream
// between frames, a *FrameError for a broken or cut frame, and otherwise what
// the underlying reader returned. Errors are sticky.
func (fr *FrameReader) Next(f *Frame) error {
	if fr.err != nil {
		return fr.err
	}
	if fr.err = fr.next(f); fr.err != nil {
		*f = Frame{Offset: fr.offset}
	}
	return fr.err
}

func (fr *FrameReader) next(f *Frame) error {
	*f = Frame{Offset: fr.offset}
	if err := fr.fill(4, -1); err != nil {
		return err
	}
	total := int64(binary.BigEndian.Uint32(fr.buf[fr.start:]))
	switch {
	case total > int64(fr.opts.MaxFrameSize):
		return &FrameError{fr.offset, total, fmt.Errorf("%w of %d bytes", ErrFrameTooLarge, fr.opts.MaxFrameSize)}
	case total < 4:
		return &FrameError{fr.offset, total, errShortFrame}
	}
	size := 4 + int(total)
	if err := fr.fill(size, total); err != nil {
		return err
	}
	b := fr.buf[fr.start+4 : fr.start+size : fr.start+size]
	cmdLen := int64(binary.BigEndian.Uint32(b))
	if cmdLen > total-4 {
		return &FrameError{fr.offset, total, fmt.Errorf("command of %d bytes does not fit: %w", cmdLen, errShortFrame)}
	}
	f.Command = b[4 : 4+cmdLen : 4+cmdLen]
	if rest := b[4+cmdLen:]; len(rest) > 0 {
		var err error
		if f.BrokerEntry, f.HeadersAndPayload, err = splitBrokerEntry(rest); err == nil {
			err = fr.check(f.HeadersAndPayload)
		}
		if err != nil {
			return &FrameError{fr.offset, total, err}
		}
	}
	fr.start += size
	fr.offset += int64(size)
	return nil
}

func (fr *FrameReader) check(headersAndPayload []byte) error {
	if fr.opts.VerifyChecksum {
		return VerifyChecksum(headersAndPayload)
	}
	if len(headersAndPayload) < checksumHeader || binary.BigEndian.Uint16(headersAndPayload) != magicChecksum {
		return errNoMagic
	}
	return nil
}

// fill reads until n bytes from start are in the buffer. total is what the
// frame announced, for the error of a cut frame.
func (fr *FrameReader) fill(n int, total int64) error {
	for empty := 0; fr.end-fr.start < n; {
		fr.makeRoom(n)
		got, err := fr.r.Read(fr.buf[fr.end:])
		if got < 0 || got > len(fr.buf)-fr.end {
			return errors.New("reader returned an impossible count")
		}
		fr.end += got
		if fr.end-fr.start >= n {
			return nil // a later call meets the error again
		}
		if err == io.EOF {
			if fr.end == fr.start && total < 0 {
				return io.EOF
			}
			return &FrameError{fr.offset, total, fmt.Errorf("stream ends after %d bytes of it: %w", fr.end-fr.start, io.ErrUnexpectedEOF)}
		}
		if err != nil && fr.opts.ReadFailed != nil {
			if err = fr.opts.ReadFailed(err); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("read after byte %d: %w", fr.offset+int64(fr.end-fr.start), err)
		}
		if got > 0 {
			empty = 0
		} else if empty++; empty == 100 {
			return fmt.Errorf("read after byte %d: %w", fr.offset, io.ErrNoProgress)
		}
	}
	return nil
}

// makeRoom leaves free space behind end: it moves a partial frame to the
// front, lets go of a buffer that one large frame left behind, and doubles the
// buffer, up to what the frame needs, when it is full.
func (fr *FrameReader) makeRoom(n int) {
	have := fr.end - fr.start
	if fr.start == fr.end && len(fr.buf) > fr.opts.BufferSize && n <= fr.opts.BufferSize {
		fr.buf, fr.start, fr.end = make([]byte, fr.opts.BufferSize), 0, 0
	}
	if fr.start > 0 && (fr.start == fr.end || fr.end == len(fr.buf) || fr.start+n > len(fr.buf)) {
		copy(fr.buf, fr.buf[fr.start:fr.end])
		fr.start, fr.end = 0, have
	}
	if fr.end < len(fr.buf) {
		return
	}
	bigger := make([]byte, min(2*len(fr.buf), fr.opts.MaxFrameSize+4))
	copy(bigger, fr.buf[:fr.end])
	fr.buf = bigger
}
