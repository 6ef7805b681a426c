package ledger

// segmentSize is the number of entries that are allocated together.
const segmentSize = 1024

type stored struct {
	data  []byte
	index int64 // number in the topic of the entry's last message
}

type segment struct {
	entries [segmentSize]stored
	before  int64               // index of the entry before the first one
	times   *[segmentSize]int64 // when each was taken, ms; nil = not kept
}

// store keeps entries by number in memory, in segments, and forgets them from
// the front.
type store struct {
	base  int64 // number of the first entry held
	next  int64 // number of the next entry
	index int64 // of the last message ever appended, −1 for none
	bytes int64 // held
	timed bool  // keep when entries were taken

	firstIndex int64 // of the first message appended here
	appended   int64 // bytes ever appended here
	segBase    int64 // number of the first entry of segs[0], held or not
	segs       []*segment

	// trimKeeping's: the bytes of the held entries before marked.
	marked, markedBytes int64
}

// startAt makes an empty store go on after what is stored elsewhere.
func (s *store) startAt(next, nextIndex int64) {
	s.base, s.next, s.segBase, s.index, s.firstIndex = next, next, next, nextIndex-1, nextIndex
}

func (s *store) append(data []byte, messages int32, at int64) int64 {
	i := s.next - s.segBase
	if i/segmentSize == int64(len(s.segs)) {
		seg := &segment{before: s.index}
		if s.timed {
			seg.times = new([segmentSize]int64)
		}
		s.segs = append(s.segs, seg)
	}
	seg := s.segs[i/segmentSize]
	s.index += int64(messages)
	seg.entries[i%segmentSize] = stored{data, s.index}
	if s.timed {
		seg.times[i%segmentSize] = at
	}
	s.bytes += int64(len(data))
	s.appended += int64(len(data))
	s.next++
	return s.next - 1
}

// at returns entry n and whether it is held.
func (s *store) at(n int64) (Entry, bool) {
	if n < s.base || n >= s.next {
		return Entry{}, false
	}
	i := n - s.segBase
	seg := s.segs[i/segmentSize]
	e := &seg.entries[i%segmentSize]
	before := seg.before
	if i%segmentSize > 0 {
		before = seg.entries[i%segmentSize-1].index
	}
	out := Entry{ID: n, Data: e.data, Messages: int32(e.index - before), Index: e.index}
	if seg.times != nil {
		out.Timestamp = seg.times[i%segmentSize]
	}
	return out, true
}

// size returns the bytes of entry n, which must be held.
func (s *store) size(n int64) int64 {
	i := n - s.segBase
	return int64(len(s.segs[i/segmentSize].entries[i%segmentSize].data))
}

// trim drops the entries before n.
func (s *store) trim(n int64) {
	for n = min(n, s.next); s.base < n; s.base++ {
		i := s.base - s.segBase
		e := &s.segs[i/segmentSize].entries[i%segmentSize]
		s.bytes -= int64(len(e.data))
		e.data = nil
	}
	k := (s.base - s.segBase) / segmentSize
	if k == 0 {
		return
	}
	clear(s.segs[:k])
	s.segs = s.segs[k:]
	s.segBase += k * segmentSize
}

// trimKeeping drops entries before n, from the front, as long as those before n
// that remain are more than keep bytes; keep < 0 drops nothing.
func (s *store) trimKeeping(n, keep int64) {
	if keep < 0 {
		return
	}
	n = min(n, s.next)
	if keep == 0 {
		s.trim(n)
		return
	}
	s.marked = max(s.marked, s.base)
	for ; s.marked < n; s.marked++ {
		s.markedBytes += s.size(s.marked)
	}
	for ; s.marked > n && s.marked > s.base; s.marked-- {
		s.markedBytes -= s.size(s.marked - 1)
	}
	to := s.base
	for ; to < s.marked && s.markedBytes > keep; to++ {
		s.markedBytes -= s.size(to)
	}
	s.trim(to)
}
