package pprofhttp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/contention-toolkit/contention/profile"
)

// Bounds on what a target may make the recorder hold. A profile of 10,000
// stacks is about 1 MB, so real ones stay far below.
const (
	maxBody     = 16 << 20  // bytes of an answer
	maxDecoded  = 64 << 20  // bytes of it after decompression
	maxMessages = 4_000_000 // samples, locations, lines, labels and the like
	maxFrames   = 4_000_000 // frames over all stacks
	maxDepth    = 4096      // frames of one stack; Go records at most 1,024
)

// decoded is one profile as the target sent it.
type decoded struct {
	*profile.Profile
	merged   int    // samples whose symbolised stack another sample has too
	identity string // of the process image: differs after a restart of a position-independent or rebuilt executable
}

// decode reads a profile that the target sent, within bounds.
func decode(body []byte) (*decoded, error) {
	raw, err := inflate(body)
	if err != nil {
		return nil, err
	}
	if err := countMessages(raw); err != nil {
		return nil, err
	}
	in, err := pprof.ParseUncompressed(raw)
	if err != nil {
		return nil, fmt.Errorf("the answer is not a profile that can be read: %w", err)
	}
	if err := in.CheckValid(); err != nil {
		return nil, fmt.Errorf("the answer is a broken profile: %w", err)
	}
	// Locations are shared between samples, so a small file can unfold to a
	// large one.
	frames := 0
	for _, s := range in.Sample {
		depth := 0
		for _, l := range s.Location {
			depth += max(1, len(l.Line))
		}
		if depth > maxDepth {
			return nil, fmt.Errorf("the profile has a stack of %d frames; at most %d are read", depth, maxDepth)
		}
		frames += depth
		if frames > maxFrames {
			return nil, fmt.Errorf("the profile unfolds to more than %d frames, the most that is read", maxFrames)
		}
	}
	p, err := profile.FromPprof(in)
	if err != nil {
		return nil, err
	}
	d := &decoded{Profile: p, merged: len(in.Sample) - len(p.Samples)}
	if len(in.Mapping) > 0 {
		m := in.Mapping[0]
		d.identity = fmt.Sprintf("%s %s %#x", m.File, m.BuildID, m.Start)
	}
	return d, nil
}

// inflate returns the protobuf bytes of an answer.
func inflate(body []byte) ([]byte, error) {
	if len(body) == 0 {
		return nil, errors.New("the answer is empty")
	}
	if len(body) < 2 || body[0] != 0x1f || body[1] != 0x8b {
		if kind := http.DetectContentType(body); strings.HasPrefix(kind, "text/") {
			kind, _, _ = strings.Cut(kind, ";")
			return nil, fmt.Errorf("the answer is %s, not a profile: this is not the address of a net/http/pprof endpoint", kind)
		}
		return body, nil
	}
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the answer is broken gzip: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(zr, maxDecoded+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the answer ended early (its gzip stream is cut after %d bytes)", len(body))
	case err != nil:
		return nil, fmt.Errorf("the answer is broken gzip: %w", err)
	case len(raw) > maxDecoded:
		return nil, fmt.Errorf("the profile is larger than %d MiB after decompression, the most that is read", maxDecoded>>20)
	case len(raw) == 0:
		return nil, errors.New("the answer is an empty gzip stream")
	}
	return raw, nil
}

// countMessages bounds the objects that parsing would make: an empty message
// takes two bytes of the file and over a hundred in memory.
func countMessages(raw []byte) error {
	n := 0
	err := eachBytesField(raw, func(field protowire.Number, v []byte) error {
		n++
		if n > maxMessages {
			return errTooMany
		}
		const sample, location = 2, 4 // fields of profile.proto that hold messages
		if field != sample && field != location {
			return nil
		}
		return eachBytesField(v, func(protowire.Number, []byte) error {
			if n++; n > maxMessages {
				return errTooMany
			}
			return nil
		})
	})
	if errors.Is(err, errTooMany) {
		return fmt.Errorf("the profile holds more than %d objects, the most that is read", maxMessages)
	}
	if err != nil {
		return fmt.Errorf("the answer is not a profile that can be read: %w", err)
	}
	return nil
}

var errTooMany = errors.New("too many")

// eachBytesField calls fn for every length-delimited field of a message.
func eachBytesField(b []byte, fn func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if typ == protowire.BytesType {
			v, m := protowire.ConsumeBytes(b)
			if m < 0 {
				return protowire.ParseError(m)
			}
			if err := fn(num, v); err != nil {
				return err
			}
			b = b[m:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}
