package profile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/klauspost/compress/gzip"
)

// SliceWidth is the length of one slice of a recording.
const SliceWidth = time.Second

// Slices holds the values of a profile's samples per slice of the window. A
// slice's values sum up to the sample's own.
type Slices struct {
	Width   time.Duration
	Entries []SliceEntry // sorted by slice, then sample
}

// SliceEntry is what one sample gained in one slice.
type SliceEntry struct {
	Slice  uint32 // number of the slice, from the window's start
	Sample uint32 // index into Profile.Samples
	Values []int64
}

// SliceBuilder sums values per slice and sample. It is not safe for concurrent use.
type SliceBuilder struct {
	width  time.Duration
	values map[uint64][]int64
}

// NewSliceBuilder returns a builder of slices of the given width.
func NewSliceBuilder(width time.Duration) *SliceBuilder {
	return &SliceBuilder{width: width, values: map[uint64][]int64{}}
}

// Add adds values to a sample in the slice that at, counted from the window's
// start, lies in.
func (b *SliceBuilder) Add(at time.Duration, sample int, values ...int64) {
	slice := uint64(0)
	if at > 0 {
		slice = uint64(at / b.width)
	}
	k := slice<<32 | uint64(uint32(sample))
	dst := b.values[k]
	if dst == nil {
		dst = make([]int64, len(values))
		b.values[k] = dst
	}
	for i, v := range values {
		dst[i] += v
	}
}

// Slices returns what was added.
func (b *SliceBuilder) Slices() *Slices {
	keys := make([]uint64, 0, len(b.values))
	for k := range b.values {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	s := &Slices{Width: b.width}
	for _, k := range keys {
		s.Entries = append(s.Entries, SliceEntry{uint32(k >> 32), uint32(k), b.values[k]})
	}
	return s
}

// Between returns a copy of p that holds only the slices that begin in
// [from, to), both counted from the window's start; to ≤ 0 means the end.
func (s *Slices) Between(p *Profile, from, to time.Duration) (*Profile, error) {
	out := New(p.SampleTypes...)
	out.Default, out.PeriodType, out.Period, out.Comments = p.Default, p.PeriodType, p.Period, p.Comments
	if to <= 0 || to > p.Duration {
		to = p.Duration
	}
	if from < 0 || from >= to {
		return nil, fmt.Errorf("slices: window %v to %v is empty or outside the recording's %v", from, to, p.Duration)
	}
	first := (from + s.Width - 1) / s.Width * s.Width
	last := (to + s.Width - 1) / s.Width * s.Width
	if last > p.Duration {
		last = p.Duration
	}
	if first >= last {
		return nil, fmt.Errorf("slices: window %v to %v holds no slice of %v that begins in it", from, to, s.Width)
	}
	out.Start, out.Duration = p.Start.Add(first), last-first
	for _, e := range s.Entries {
		if at := time.Duration(e.Slice) * s.Width; at < from || at >= to {
			continue
		}
		src := p.Samples[e.Sample]
		out.Add(out.InternFrames(p.Frames(src.Stack)), out.InternLabels(p.Labels(src.Labels)...), e.Values...)
	}
	return out, nil
}

// The slice file: the magic, then a gzip stream of varints.
//
//	width in nanoseconds, number of value types, number of samples in the
//	profile, number of entries, then per entry: slice minus the entry before's
//	slice, sample, and one zig-zag varint per value
var sliceMagic = []byte("CSLICE1\n")

// Bounds on what a slice file may claim, so that a hostile one stays small.
const (
	maxSliceValues  = 64
	maxSliceEntries = 64 << 20
)

// WriteSlices writes s, which belongs to p, in the project's slice format.
func WriteSlices(w io.Writer, s *Slices, p *Profile) error {
	var buf bytes.Buffer
	buf.Write(sliceMagic)
	z := gzip.NewWriter(&buf)
	var b []byte
	b = binary.AppendUvarint(b, uint64(s.Width))
	b = binary.AppendUvarint(b, uint64(len(p.SampleTypes)))
	b = binary.AppendUvarint(b, uint64(len(p.Samples)))
	b = binary.AppendUvarint(b, uint64(len(s.Entries)))
	last := uint32(0)
	for i, e := range s.Entries {
		if len(e.Values) != len(p.SampleTypes) || int(e.Sample) >= len(p.Samples) || e.Slice < last {
			return fmt.Errorf("write slices: entry %d does not fit its profile", i)
		}
		b = binary.AppendUvarint(b, uint64(e.Slice-last))
		b = binary.AppendUvarint(b, uint64(e.Sample))
		for _, v := range e.Values {
			b = binary.AppendVarint(b, v)
		}
		last = e.Slice
		if _, err := z.Write(b); err != nil {
			return fmt.Errorf("write slices: %w", err)
		}
		b = b[:0]
	}
	if _, err := z.Write(b); err != nil {
		return fmt.Errorf("write slices: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write slices: %w", err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write slices: %w", err)
	}
	return nil
}

// ReadSlices reads a slice file that belongs to p.
func ReadSlices(r io.Reader, p *Profile) (*Slices, error) {
	magic := make([]byte, len(sliceMagic))
	if _, err := io.ReadFull(r, magic); err != nil || !bytes.Equal(magic, sliceMagic) {
		return nil, errors.New("read slices: not a slice file of this version")
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read slices: %w", err)
	}
	d := sliceDecoder{r: bufio.NewReader(z)}
	s := &Slices{Width: time.Duration(d.uvarint(1<<62, "width"))}
	values := d.uvarint(maxSliceValues, "number of values")
	samples := d.uvarint(1<<32-1, "number of samples")
	entries := d.uvarint(maxSliceEntries, "number of entries")
	if d.err == nil && (s.Width <= 0 || values != uint64(len(p.SampleTypes)) || samples != uint64(len(p.Samples))) {
		d.err = fmt.Errorf("it belongs to another profile: %d values and %d samples, want %d and %d", values, samples, len(p.SampleTypes), len(p.Samples))
	}
	if d.err == nil && samples == 0 && entries > 0 {
		d.err = fmt.Errorf("%d entries of no samples", entries)
	}
	slice := uint64(0)
	for i := uint64(0); i < entries && d.err == nil; i++ {
		slice += d.uvarint(1<<32-1, "slice")
		e := SliceEntry{Slice: uint32(slice), Sample: uint32(d.uvarint(samples-1, "sample")), Values: make([]int64, values)}
		if slice > 1<<32-1 {
			d.err = fmt.Errorf("slice %d is too large", slice)
		}
		for j := range e.Values {
			e.Values[j] = d.varint()
		}
		s.Entries = append(s.Entries, e)
	}
	if d.err != nil {
		return nil, fmt.Errorf("read slices: %w", d.err)
	}
	return s, nil
}

type sliceDecoder struct {
	r   *bufio.Reader
	err error
}

func (d *sliceDecoder) uvarint(max uint64, what string) uint64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d.r)
	if err == nil && v > max {
		err = fmt.Errorf("%s %d is over %d", what, v, max)
	}
	d.err = err
	return v
}

func (d *sliceDecoder) varint() int64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadVarint(d.r)
	d.err = err
	return v
}
