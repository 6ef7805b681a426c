package goroutine

// hot are the goroutines whose states every tick reads, where it can afford only
// a part of all: those that were last seen in a small stratum, or waiting for a
// lock. Which ones they are depends on earlier ticks only, so that every tick's
// estimate is unbiased: a hot goroutine stands for itself, any other for as many
// as the tick reads one in.
type hot struct {
	at      []int32 // numbers in list.all
	joining []int32 // found at this tick
	limit   int
}

// patience is how many ticks a hot goroutine may be seen in a large stratum
// before it is one of the others again.
const patience = 16

// note says that a goroutine was seen, and whether in a stratum that is to be
// followed.
func (h *hot) note(i int32, k *known, follow bool) {
	switch {
	case follow && k.hot == 0:
		if len(h.at)+len(h.joining) < h.limit {
			h.joining = append(h.joining, i)
		}
	case follow:
		k.hot = patience
	case k.hot > 1:
		k.hot--
	case k.hot == 1:
		k.hot = leaving
	}
}

// leaving marks a hot goroutine that the tick's end makes one of the others.
const leaving = 255

// end closes a tick: those found join, those not seen for long leave.
func (h *hot) end(all []known) {
	n := 0
	for _, i := range h.at {
		if all[i].hot == leaving {
			all[i].hot = 0
			continue
		}
		h.at[n] = i
		n++
	}
	h.at = h.at[:n]
	for _, i := range h.joining {
		all[i].hot = patience
		h.at = append(h.at, i)
	}
	h.joining = h.joining[:0]
}

// renumber finds them again when the list was sorted anew.
func (h *hot) renumber(all []known) {
	h.at = h.at[:0]
	for i := range all {
		if all[i].hot != 0 {
			h.at = append(h.at, int32(i))
		}
	}
}
