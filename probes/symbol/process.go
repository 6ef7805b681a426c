package symbol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// Process names the code of one running process. Its files stay open until
// Close, so that a process that has ended can still be symbolised. It is safe
// for concurrent use.
type Process struct {
	pid int

	mu     sync.Mutex
	exe    *image
	bias   uint64 // of the executable
	maps   []mapping
	read   time.Time
	images map[fileID]*image // by what is mapped; nil for files that are not ELF
	cache  map[cacheKey][]profile.Frame
	closed bool
}

type mapping struct {
	start, end, off uint64
	path            string
	id              fileID
}

type fileID struct {
	dev   string
	inode uint64
}

type cacheKey struct {
	addr uint64
	ret  bool
}

// maxCached bounds the addresses whose frames are kept.
const maxCached = 1 << 17

// OpenProcess reads the executable and the mappings of a process.
func OpenProcess(pid int) (*Process, error) {
	p := &Process{pid: pid, images: map[fileID]*image{}, cache: map[cacheKey][]profile.Frame{}}
	dir := p.dir()
	path, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return nil, fmt.Errorf("symbols of process %d: %w", pid, explain(err))
	}
	f, err := openFile(filepath.Join(dir, "exe"))
	if err != nil {
		return nil, fmt.Errorf("symbols of process %d: %w", pid, explain(err))
	}
	if p.exe, err = openImage(strings.TrimSuffix(path, deleted), f); err != nil {
		f.Close()
		return nil, fmt.Errorf("symbols of process %d: %w", pid, err)
	}
	if err := p.readMaps(); err != nil {
		p.exe.close()
		return nil, fmt.Errorf("symbols of process %d: %w", pid, explain(err))
	}
	p.findBias(path)
	return p, nil
}

// findBias finds where the executable is mapped: by the entry point that the
// kernel handed to the process, or by the path of its mappings.
func (p *Process) findBias(path string) {
	entry, known := p.entry()
	for _, m := range p.maps {
		mine := m.path == path
		if known {
			mine = entry >= m.start && entry < m.end
		}
		if !mine {
			continue
		}
		if b, ok := p.exe.bias(m.start, m.off); ok {
			p.bias, p.images[m.id] = b, p.exe
			return
		}
	}
}

// atEntry is AT_ENTRY of the auxiliary vector: where the program begins.
const atEntry = 9

func (p *Process) entry() (uint64, bool) {
	data, err := os.ReadFile(filepath.Join(p.dir(), "auxv"))
	if err != nil {
		return 0, false
	}
	for ; len(data) >= 16; data = data[16:] {
		if binary.LittleEndian.Uint64(data) == atEntry {
			return binary.LittleEndian.Uint64(data[8:]), true
		}
	}
	return 0, false
}

func (p *Process) dir() string { return filepath.Join("/proc", strconv.Itoa(p.pid)) }

func openFile(path string) (*os.File, error) { return os.Open(path) }

// explain adds the remedy to errors of /proc.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no such process: %w", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: its memory and files may be read by its own user, or with CAP_SYS_PTRACE", err)
	}
	return err
}

// Close frees the files. Frames must not be called afterwards.
func (p *Process) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.exe.close()
	for _, m := range p.images {
		if m != nil && m != p.exe {
			m.close()
		}
	}
}

// Go says where the target's goroutines are; the error says why they cannot be
// read, such as a target that is not Go, or one without symbols.
func (p *Process) Go() (*GoImage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exe.goImage(p.bias)
}

// BuildID is the executable's build ID, "" when it has none.
func (p *Process) BuildID() string { return p.exe.buildID }

// Frames returns the frames at an address of the process, innermost first; all
// but the last are inlined. With ret, addr is a return address, and the call
// before it is meant. There is always one frame: an address that nothing names
// is written in hexadecimal.
func (p *Process) Frames(addr uint64, ret bool) []profile.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := cacheKey{addr, ret}
	if f, ok := p.cache[key]; ok {
		return f
	}
	at := addr
	if ret && at > 0 {
		at--
	}
	f := p.lookup(at)
	if f == nil {
		f = []profile.Frame{{Function: fmt.Sprintf("0x%x", addr), Module: p.moduleAt(at)}}
	}
	if len(p.cache) < maxCached {
		p.cache[key] = f
	}
	return f
}

// Frameless says whether the Go function at an address has no frame of its own
// there: it has just been entered, and its return address is what the stack
// pointer points at. A walk by frame pointers would miss its caller.
func (p *Process) Frameless(addr uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.exe.table
	return t != nil && t.frameless(addr-p.bias)
}

// FrameSize is how far the Go function at an address has moved the stack pointer
// there: its return address lies that many bytes above, and its caller's frame
// pointer one word below that. False where no function table says.
func (p *Process) FrameSize(addr uint64) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exe.table == nil {
		return 0, false
	}
	return p.exe.table.frameSize(addr - p.bias)
}

func (p *Process) lookup(addr uint64) []profile.Frame {
	if f := p.exe.frames(addr - p.bias); f != nil {
		return f
	}
	m := p.mappingOf(addr)
	if m == nil {
		return nil
	}
	if strings.HasPrefix(m.path, "[") {
		return []profile.Frame{{Function: m.path, Module: m.path}}
	}
	img := p.imageOf(m)
	if img == nil {
		return nil
	}
	b, ok := img.bias(m.start, m.off)
	if !ok {
		return nil
	}
	return img.frames(addr - b)
}

// mappingOf finds the mapping of an address, and reads the mappings anew when
// it is not known, at most twice a second: libraries are loaded, code is
// generated.
func (p *Process) mappingOf(addr uint64) *mapping {
	for again := false; ; again = true {
		for i := range p.maps {
			if m := &p.maps[i]; addr >= m.start && addr < m.end {
				return m
			}
		}
		if again || p.closed || time.Since(p.read) < 500*time.Millisecond || p.readMaps() != nil {
			return nil
		}
	}
}

func (p *Process) moduleAt(addr uint64) string {
	if m := p.mappingOf(addr); m != nil {
		return m.path
	}
	return ""
}

// imageOf opens a mapped file.
func (p *Process) imageOf(m *mapping) *image {
	img, ok := p.images[m.id]
	if ok || m.path == "" || p.closed {
		return img
	}
	if f := p.openMapped(m); f != nil {
		var err error
		if img, err = openImage(strings.TrimSuffix(m.path, deleted), f); err != nil {
			f.Close()
			img = nil
		}
	}
	p.images[m.id] = img
	return img
}

// deleted is what the kernel adds to the path of a file that has no name any more.
const deleted = " (deleted)"

// openMapped opens the file of a mapping: the very one that is mapped, even when
// it was deleted or replaced, which takes a privilege; else by its path in the
// process's own root, if that is still the same file. Nil when it cannot be had.
func (p *Process) openMapped(m *mapping) *os.File {
	name := fmt.Sprintf("%x-%x", m.start, m.end)
	if f, err := openFile(filepath.Join(p.dir(), "map_files", name)); err == nil {
		return f
	}
	f, err := openFile(filepath.Join(p.dir(), "root", m.path))
	if err != nil {
		return nil
	}
	if inode, ok := inodeOf(f); ok && inode != m.id.inode {
		f.Close()
		return nil
	}
	return f
}

// readMaps keeps the old mappings when the process has ended.
func (p *Process) readMaps() error {
	p.read = time.Now()
	data, err := os.ReadFile(filepath.Join(p.dir(), "maps"))
	if err != nil {
		return err
	}
	var maps []mapping
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if m, ok := parseMapping(sc.Text()); ok {
			maps = append(maps, m)
		}
	}
	if len(maps) > 0 {
		p.maps = maps
	}
	return sc.Err()
}

// parseMapping reads a line of /proc/PID/maps; false for one that cannot hold code.
func parseMapping(line string) (mapping, bool) {
	f := strings.Fields(line)
	if len(f) < 5 {
		return mapping{}, false
	}
	low, high, ok := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(low, 16, 64)
	end, err2 := strconv.ParseUint(high, 16, 64)
	off, err3 := strconv.ParseUint(f[2], 16, 64)
	inode, err4 := strconv.ParseUint(f[4], 10, 64)
	if !ok || errors.Join(err1, err2, err3, err4) != nil {
		return mapping{}, false
	}
	m := mapping{start: start, end: end, off: off, id: fileID{f[3], inode}}
	if i := strings.IndexAny(line, "/["); i >= 0 && len(f) > 5 {
		m.path = line[i:]
	}
	return m, true
}
