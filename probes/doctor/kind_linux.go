package doctor

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// inspect finds out what a target is made of, as far as its files can be read.
func inspect(root string, t *TargetFacts) {
	dir := filepath.Join("/", root, "proc", strconv.Itoa(t.PID))
	t.Kind = KindUnknown
	t.Exe, _ = os.Readlink(filepath.Join(dir, "exe")) // "" where not told
	t.Exe = strings.TrimSuffix(t.Exe, " (deleted)")
	f, err := os.Open(filepath.Join(dir, "exe"))
	if err != nil {
		t.ExeErr = err
		return
	}
	defer f.Close()
	if info, err := buildinfo.Read(f); err == nil {
		t.Kind, t.GoVersion = KindGo, info.GoVersion
		t.Stripped = stripped(f)
		return
	}
	t.Stripped = stripped(f)
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		t.ExeErr = err
		return
	}
	if mapped(maps, "libjvm.so") != "" {
		t.Kind, t.JVM = KindJVM, jvm(dir, t.NSPIDs)
	} else {
		t.Kind = KindNative
		t.Frames, t.FramesErr = frameUse(f)
	}
	if path := libc(maps); path != "" {
		if use, err := fileFrames(filepath.Join(dir, "root", path)); err == nil {
			t.LibcFrames = &use
		}
	}
}

func fileFrames(path string) (FrameUse, error) {
	f, err := os.Open(path)
	if err != nil {
		return FrameUse{}, err
	}
	defer f.Close()
	return frameUse(f)
}

func stripped(r io.ReaderAt) bool {
	f, err := elf.NewFile(r)
	if err != nil {
		return false
	}
	_, err = f.Symbols()
	return errors.Is(err, elf.ErrNoSymbols)
}

// mapped is the path of the first mapped file of a base name, "" without.
func mapped(maps []byte, base string) string {
	for line := range bytes.Lines(maps) {
		if i := bytes.IndexByte(line, '/'); i >= 0 {
			if path := strings.TrimRight(string(line[i:]), "\n"); filepath.Base(path) == base {
				return path
			}
		}
	}
	return ""
}

func libc(maps []byte) string {
	for line := range bytes.Lines(maps) {
		i := bytes.IndexByte(line, '/')
		if i < 0 {
			continue
		}
		path := strings.TrimRight(string(line[i:]), "\n")
		if base := filepath.Base(path); strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "libc-") || strings.HasPrefix(base, "libc.musl") {
			return path
		}
	}
	return ""
}

// jvm reads what a Java process was started with.
func jvm(dir string, nspids []int) JVMFacts {
	var j JVMFacts
	args, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // without it nothing is known
	env := bytes.Contains(args, []byte("-XX:-PreserveFramePointer"))
	j.PreserveFramePointer = bytes.Contains(args, []byte("-XX:+PreserveFramePointer")) && !env
	if len(nspids) > 0 {
		path := fmt.Sprintf("/tmp/perf-%d.map", nspids[len(nspids)-1])
		if _, err := os.Stat(filepath.Join(dir, "root", path)); err == nil {
			j.PerfMap = path
		}
	}
	return j
}
