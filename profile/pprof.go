package profile

import (
	"bytes"
	"fmt"
	"io"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/klauspost/compress/gzip"
)

// MaxEncoded bounds what Read accepts, before and after decompression, in bytes.
const MaxEncoded = 256 << 20

// Bounds on what a decoded profile may unfold to: samples share locations, and
// locations hold any number of lines, so a small file can name very many frames.
const (
	maxStackFrames = 1 << 14
	maxFrames      = 1 << 26 // over all samples
)

// Write encodes p as a gzipped pprof file that `go tool pprof` opens. Samples
// keep their order. Frames that were inlined share a location with the frame
// they were inlined into, so that listings show both.
func Write(w io.Writer, p *Profile) error {
	if err := p.CheckValid(); err != nil {
		return err
	}
	e := encoder{
		out:       &pprof.Profile{TimeNanos: p.Start.UnixNano(), DurationNanos: int64(p.Duration), Period: p.Period, Comments: p.Comments, DefaultSampleType: p.Default},
		functions: map[functionKey]*pprof.Function{},
		locations: map[string]*pprof.Location{},
		mappings:  map[string]*pprof.Mapping{},
	}
	if p.Start.IsZero() {
		e.out.TimeNanos = 0
	}
	for _, t := range p.SampleTypes {
		e.out.SampleType = append(e.out.SampleType, &pprof.ValueType{Type: t.Type, Unit: t.Unit})
	}
	e.out.PeriodType = &pprof.ValueType{Type: p.PeriodType.Type, Unit: p.PeriodType.Unit}
	for _, s := range p.Samples {
		e.sample(p, s)
	}
	// pprof drops the error of its gzip writer's Close, so encode to memory,
	// where nothing can fail, and write the bytes ourselves.
	var buf bytes.Buffer
	if err := e.out.Write(&buf); err != nil {
		return fmt.Errorf("encode profile: %w", err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

type functionKey struct{ name, file string }

type encoder struct {
	out       *pprof.Profile
	functions map[functionKey]*pprof.Function
	locations map[string]*pprof.Location
	mappings  map[string]*pprof.Mapping
}

func (e *encoder) sample(p *Profile, s Sample) {
	x := &pprof.Sample{Value: append([]int64(nil), s.Values...)}
	var group []FrameID
	for _, id := range p.stacks[s.Stack] {
		group = append(group, id)
		if !p.frames[id].Inlined {
			x.Location = append(x.Location, e.location(p, group))
			group = group[:0]
		}
	}
	for _, l := range p.labels[s.Labels] {
		if x.Label == nil {
			x.Label = map[string][]string{}
		}
		x.Label[l.Key] = append(x.Label[l.Key], l.Value)
	}
	e.out.Sample = append(e.out.Sample, x)
}

func (e *encoder) location(p *Profile, group []FrameID) *pprof.Location {
	key := fmt.Sprint(group)
	if l, ok := e.locations[key]; ok {
		return l
	}
	l := &pprof.Location{ID: uint64(len(e.out.Location) + 1)}
	for _, id := range group {
		f := p.frames[id]
		l.Line = append(l.Line, pprof.Line{Function: e.function(f), Line: int64(f.Line)})
	}
	if m := p.frames[group[len(group)-1]].Module; m != "" {
		l.Mapping = e.mapping(m)
	}
	e.out.Location = append(e.out.Location, l)
	e.locations[key] = l
	return l
}

func (e *encoder) function(f Frame) *pprof.Function {
	k := functionKey{f.Function, f.File}
	if fn, ok := e.functions[k]; ok {
		return fn
	}
	fn := &pprof.Function{ID: uint64(len(e.out.Function) + 1), Name: f.Function, SystemName: f.Function, Filename: f.File}
	e.out.Function = append(e.out.Function, fn)
	e.functions[k] = fn
	return fn
}

// mapping gives each module a range of its own, since pprof merges mappings by
// their size and offset.
func (e *encoder) mapping(module string) *pprof.Mapping {
	if m, ok := e.mappings[module]; ok {
		return m
	}
	id := uint64(len(e.out.Mapping) + 1)
	m := &pprof.Mapping{ID: id, Start: id << 40, Limit: id<<40 + 1<<32, File: module, HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}
	e.out.Mapping = append(e.out.Mapping, m)
	e.mappings[module] = m
	return m
}

// Read decodes a pprof file, gzipped or plain. Samples keep their order, except
// that equal stacks with equal labels are merged into the first.
func Read(r io.Reader) (*Profile, error) {
	data, err := readBounded(r)
	if err == nil && bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			data, err = readBounded(z)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	in, err := pprof.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("decode profile: %w", err)
	}
	return FromPprof(in)
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxEncoded+1))
	if err == nil && len(data) > MaxEncoded {
		err = fmt.Errorf("larger than %d bytes", MaxEncoded)
	}
	return data, err
}

// FromPprof converts a parsed pprof profile. Negative values, as in a delta,
// are kept.
func FromPprof(in *pprof.Profile) (*Profile, error) {
	if len(in.SampleType) == 0 {
		return nil, fmt.Errorf("decode profile: it has no sample type")
	}
	p := New()
	for _, t := range in.SampleType {
		p.SampleTypes = append(p.SampleTypes, ValueType{t.Type, t.Unit})
	}
	p.Default, p.Period, p.Comments = in.DefaultSampleType, in.Period, in.Comments
	if _, ok := p.Value(p.Default); !ok {
		p.Default = ""
	}
	if in.PeriodType != nil {
		p.PeriodType = ValueType{in.PeriodType.Type, in.PeriodType.Unit}
	}
	if in.TimeNanos != 0 {
		p.Start = time.Unix(0, in.TimeNanos)
	}
	p.Duration = time.Duration(in.DurationNanos)
	total := 0
	for i, s := range in.Sample {
		n := 0
		for _, l := range s.Location {
			n += max(len(l.Line), 1)
		}
		if total += n; n > maxStackFrames || total > maxFrames {
			return nil, fmt.Errorf("decode profile: sample %d has a stack of %d frames, %d with those before it: more than %d a stack or %d in all are not read", i, n, total, maxStackFrames, maxFrames)
		}
		frames := make([]Frame, 0, n)
		for _, l := range s.Location {
			frames = append(frames, locationFrames(l)...)
		}
		var labels Labels
		for k, vs := range s.Label {
			for _, v := range vs {
				labels = append(labels, Label{k, v})
			}
		}
		for k, vs := range s.NumLabel {
			for _, v := range vs {
				labels = append(labels, Label{k, fmt.Sprint(v)})
			}
		}
		p.Add(p.InternFrames(frames), p.InternLabels(labels...), s.Value...)
	}
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("decode profile: %w", err)
	}
	return p, nil
}

func locationFrames(l *pprof.Location) []Frame {
	module := ""
	if l.Mapping != nil {
		module = l.Mapping.File
	}
	if len(l.Line) == 0 {
		return []Frame{{Function: fmt.Sprintf("0x%x", l.Address), Module: module}}
	}
	out := make([]Frame, 0, len(l.Line))
	for i, ln := range l.Line {
		f := Frame{Line: int(ln.Line), Module: module, Inlined: i < len(l.Line)-1}
		if ln.Function != nil {
			f.Function, f.File = ln.Function.Name, ln.Function.Filename
		}
		if f.Function == "" {
			f.Function = fmt.Sprintf("0x%x", l.Address)
		}
		out = append(out, f)
	}
	return out
}
