//go:build linux && amd64

package exact

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

const (
	// maxPairs and maxAddresses bound what is listed of one lock.
	maxPairs     = 20
	maxAddresses = 8
	// maxNamed is how many functions a lock's name holds.
	maxNamed = 4
	// unseenLock names locks whose waits began before the window.
	unseenLock = "[lock not seen]"
)

// instance is one lock of the target.
type instance struct {
	addr uint64 // of the lock, 0 where it was not seen
	kind string
	// global is its name where it lies in a variable of the program, or is a
	// field of a receiver, else "".
	global string
	sites  map[site]int64 // parks by where it is waited for
	waits  []waitKey
	sema   map[uint64]bool // addresses of its semaphores
}

// site is a line at which a lock is waited for, or let go.
type site struct {
	function string
	file     string
	line     int
}

// lockSite is the innermost frame outside of the library's locks and the runtime.
// Since Go 1.27 closures that were inlined elsewhere are of the package _.
func lockSite(frames []profile.Frame) site {
	for _, f := range frames {
		pkg, _, _ := strings.Cut(f.Function, ".")
		if pkg == "sync" || pkg == "internal/sync" || pkg == "runtime" || pkg == "_" || strings.HasPrefix(pkg, "internal/runtime/") {
			continue
		}
		return site{f.Function, f.File, f.Line}
	}
	if len(frames) > 0 {
		return site{frames[len(frames)-1].Function, "", 0}
	}
	return site{}
}

// locks is the profile of waits for locks, and what was seen of each lock.
func (b *builder) locks() *profile.Capture {
	c := b.capture(profile.SourceLocks)
	c.Locks = []profile.Lock{}
	all := b.instances()
	b.nameGlobals(all)
	b.nameFields(all)
	groups := gather(all)
	names := lockNames(groups)
	waits, sample := map[waitKey]waitValue{}, map[waitKey]int{}
	for i, g := range groups {
		c.Locks = append(c.Locks, b.lock(names[i], g))
		for _, in := range g {
			slices.SortFunc(in.waits, compareWaits)
			for _, k := range in.waits {
				waits[k] = b.snap.waits[k]
				sample[k] = b.add(c.Profile, k, waits[k], b.stack(k.Stack), names[i])
			}
		}
	}
	c.Slices = b.r.series.slices(waits, sample)
	slices.SortStableFunc(c.Locks, func(x, y profile.Lock) int {
		return cmp.Or(cmp.Compare(y.BlockedNs, x.BlockedNs), cmp.Compare(x.Name, y.Name))
	})
	return c
}

// instances sorts waits by the lock that they are for. A lock of several
// semaphores is one: the wait reason tells which of them it is.
func (b *builder) instances() []*instance {
	byAddr := map[uint64]*instance{}
	for k, v := range b.snap.waits {
		sem, ok := semaphores[b.r.target.reason(k.Reason)]
		if !ok {
			continue
		}
		addr := uint64(0)
		if k.Lock != 0 {
			addr = k.Lock - sem.offset
		}
		in := byAddr[addr]
		if in == nil {
			in = &instance{addr: addr, kind: sem.kind, sites: map[site]int64{}, sema: map[uint64]bool{}}
			byAddr[addr] = in
		}
		if sem.kind != "sync.Mutex" {
			in.kind = sem.kind // an RWMutex begins with a Mutex
		}
		in.sema[k.Lock] = true
		in.waits = append(in.waits, k)
		in.sites[lockSite(b.stack(k.Stack))] += int64(v.Waits)
	}
	return slices.SortedFunc(maps.Values(byAddr), func(x, y *instance) int { return cmp.Compare(x.addr, y.addr) })
}

// gather puts locks together that are waited for at a common line: they are
// instances of one lock of the source. Locks that were not seen stay apart, and
// those that have a name are together with their namesakes alone.
func gather(all []*instance) [][]*instance {
	parent := make([]int, len(all))
	for i := range parent {
		parent[i] = i
	}
	root := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	first := map[site]int{}
	for i, in := range all {
		if in.addr == 0 {
			continue
		}
		sites := in.sites
		if in.global != "" {
			sites = map[site]int64{{function: in.global}: 0}
		}
		for s := range sites {
			j, ok := first[s]
			if !ok {
				first[s] = i
				continue
			}
			x, y := root(i), root(j)
			parent[max(x, y)] = min(x, y)
		}
	}
	groups := map[int][]*instance{}
	for i, in := range all {
		groups[root(i)] = append(groups[root(i)], in)
	}
	var out [][]*instance
	for _, i := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[i])
	}
	return out
}

// lockNames names locks by the functions that wait for them. Two that have the
// same name get a number, in the order of their lines.
func lockNames(groups [][]*instance) []string {
	out := make([]string, len(groups))
	same := map[string][]int{}
	for i, g := range groups {
		out[i] = lockName(sitesOf(g))
		switch {
		case g[0].addr == 0:
			out[i] = unseenLock
		case g[0].global != "":
			out[i] = g[0].global
		}
		same[out[i]] = append(same[out[i]], i)
	}
	for name, list := range same {
		if len(list) < 2 {
			continue
		}
		slices.SortFunc(list, func(x, y int) int { return compareSites(firstSite(groups[x]), firstSite(groups[y])) })
		for n, i := range list {
			out[i] = fmt.Sprintf("%s #%d", name, n+1)
		}
	}
	return out
}

func sitesOf(g []*instance) map[site]int64 {
	out := map[site]int64{}
	for _, in := range g {
		for s, n := range in.sites {
			out[s] += n
		}
	}
	return out
}

func compareSites(x, y site) int {
	return cmp.Or(cmp.Compare(x.file, y.file), cmp.Compare(x.line, y.line), cmp.Compare(x.function, y.function))
}

func firstSite(g []*instance) site {
	return slices.MinFunc(slices.Collect(maps.Keys(sitesOf(g))), compareSites)
}

// lockName writes functions as executor.(*Queue).Offer+TakeAll. Those that wait
// rarely, less than once in a hundred, are left out: runs would differ by them.
func lockName(sites map[site]int64) string {
	byFunction := map[string]int64{}
	var all int64
	for s, n := range sites {
		byFunction[shortName(s.function)] += n
		all += n
	}
	for f, n := range byFunction {
		if n*100 < all {
			delete(byFunction, f)
		}
	}
	names := slices.Sorted(maps.Keys(byFunction))
	more := len(names) - maxNamed
	if more > 0 {
		names = names[:maxNamed]
	}
	var b strings.Builder
	last := ""
	for i, n := range names {
		prefix, method := splitName(n)
		switch {
		case i == 0:
			b.WriteString(n)
		case prefix == last:
			b.WriteString("+" + method)
		default:
			b.WriteString("+" + n)
		}
		last = prefix
	}
	if more > 0 {
		fmt.Fprintf(&b, "+%d more", more)
	}
	return b.String()
}

// shortName is a function's name without the path of its package.
func shortName(f string) string { return f[strings.LastIndexByte(beforeTypes(f), '/')+1:] }

// beforeTypes cuts a name before its type arguments, which may hold paths.
func beforeTypes(f string) string {
	if i := strings.IndexByte(f, '['); i >= 0 {
		return f[:i]
	}
	return f
}

func splitName(f string) (prefix, method string) {
	i := strings.LastIndexByte(f, '.')
	if i < 0 {
		return "", f
	}
	return f[:i], f[i+1:]
}

// lock sums up what was seen of one lock.
func (b *builder) lock(name string, g []*instance) profile.Lock {
	l := profile.Lock{Name: name, Kind: g[0].kind, Addresses: []string{}, Pairs: []profile.LockPair{}, Sites: []profile.LockSites{}}
	var queueSum, queued int64
	sema := map[uint64]bool{}
	for _, in := range g {
		if in.kind != "sync.Mutex" {
			l.Kind = in.kind
		}
		if in.addr != 0 {
			l.Instances++
			if len(l.Addresses) < maxAddresses {
				l.Addresses = append(l.Addresses, fmt.Sprintf("%#x", in.addr))
			}
		}
		for _, k := range in.waits {
			v := b.snap.waits[k]
			l.Parks += int64(v.Waits)
			l.BlockedNs += int64(v.BlockedNs)
			l.RunnableNs += int64(v.RunnableNs)
			l.Waits = l.Waits.Merge(signed(v.Blocked[:]))
		}
		for a := range in.sema {
			v, ok := b.snap.locks[a]
			if !ok {
				continue
			}
			sema[a] = true
			l.QueueMax = max(l.QueueMax, int64(v.QueueMax))
			queueSum, queued = queueSum+int64(v.QueueSum), queued+int64(v.Parks)
			l.Releases += int64(v.Releases)
			l.Intervals += int64(v.Intervals)
			l.IntervalNs += int64(v.IntervalNs)
			l.Interval = l.Interval.Merge(signed(v.Interval[:]))
		}
	}
	if queued > 0 {
		l.QueueMean = float64(queueSum) / float64(queued)
	}
	l.Interval, l.Waits = l.Interval.Trim(), l.Waits.Trim()
	for s, n := range sitesOf(g) {
		l.Sites = append(l.Sites, profile.LockSites{Function: s.function, File: s.file, Line: s.line, Parks: n})
	}
	slices.SortFunc(l.Sites, func(x, y profile.LockSites) int {
		return cmp.Or(cmp.Compare(y.Parks, x.Parks), cmp.Compare(x.Function, y.Function), cmp.Compare(x.Line, y.Line))
	})
	l.Pairs = b.pairs(sema)
	if left := len(l.Pairs) - maxPairs; left > 0 {
		l.Pairs, l.PairsLeft = l.Pairs[:maxPairs], left
	}
	return l
}

// pairs is the matrix of waiters and releasers of a lock's semaphores, most
// blocked time first.
func (b *builder) pairs(sema map[uint64]bool) []profile.LockPair {
	type pair struct{ waiter, releaser string }
	sums := map[pair]*profile.LockPair{}
	for k, v := range b.snap.wakes {
		if k.Lock == 0 || !sema[k.Lock] {
			continue
		}
		p := pair{shortName(lockSite(b.stack(k.Stack)).function), shortName(lockSite(b.stack(k.Waker)).function)}
		s := sums[p]
		if s == nil {
			s = &profile.LockPair{Waiter: p.waiter, Releaser: p.releaser}
			sums[p] = s
		}
		s.Waits += int64(v.Waits)
		s.BlockedNs += int64(v.BlockedNs)
	}
	out := []profile.LockPair{}
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(x, y profile.LockPair) int {
		return cmp.Or(cmp.Compare(y.BlockedNs, x.BlockedNs), cmp.Compare(x.Waiter, y.Waiter), cmp.Compare(x.Releaser, y.Releaser))
	})
	return out
}
