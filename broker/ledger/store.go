package ledger

// segmentSize is the number of entries that are allocated and dropped together.
const segmentSize = 1024

type stored struct {
	data     []byte
	messages int32
}

type segment struct {
	entries [segmentSize]stored
	bytes   int64
}

// store keeps entries by number in segments and forgets whole segments from the
// front.
type store struct {
	base  int64 // number of the first entry of segments[0]
	next  int64 // number of the next entry
	bytes int64 // held
	segs  []*segment
}

func (s *store) append(data []byte, messages int32) int64 {
	i := s.next - s.base
	if i/segmentSize == int64(len(s.segs)) {
		s.segs = append(s.segs, &segment{})
	}
	seg := s.segs[i/segmentSize]
	seg.entries[i%segmentSize] = stored{data, messages}
	seg.bytes += int64(len(data))
	s.bytes += int64(len(data))
	s.next++
	return s.next - 1
}

// at returns entry n, or nil if it was dropped or never written.
func (s *store) at(n int64) *stored {
	if n < s.base || n >= s.next {
		return nil
	}
	i := n - s.base
	return &s.segs[i/segmentSize].entries[i%segmentSize]
}

// trim drops the segments all of whose entries are before n.
func (s *store) trim(n int64) {
	k := 0
	for ; k < len(s.segs) && s.base+segmentSize <= n; k++ {
		s.bytes -= s.segs[k].bytes
		s.segs[k] = nil
		s.base += segmentSize
	}
	s.segs = s.segs[k:]
}
