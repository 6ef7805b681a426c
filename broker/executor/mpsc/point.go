package mpsc

// point is a moment of an Offer between two of its writes.
type point uint8

const (
	claimed  point = iota // the index is claimed, the element not stored
	growing               // the growing bit is set, nothing claimed
	unlinked              // the first index of a new chunk is claimed, the chunk not linked
)
