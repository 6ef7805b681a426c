package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

func TestFramed(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		m    elf.Machine
		code []byte
		want bool
	}{
		{"push, mov", elf.EM_X86_64, []byte{0x55, 0x48, 0x89, 0xe5, 0x90}, true},
		{"endbr64 first", elf.EM_X86_64, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, true},
		{"the other mov", elf.EM_X86_64, []byte{0x55, 0x48, 0x8b, 0xec}, true},
		{"push only", elf.EM_X86_64, []byte{0x55, 0x53, 0x48, 0x83, 0xec, 0x08}, false},
		{"mov before push", elf.EM_X86_64, []byte{0x48, 0x89, 0xe5, 0x55, 0x90}, false},
		{"stp with write-back", elf.EM_AARCH64, []byte{0xfd, 0x7b, 0xbf, 0xa9}, true},
		{"paciasp first", elf.EM_AARCH64, []byte{0x3f, 0x23, 0x03, 0xd5, 0xfd, 0x7b, 0xbd, 0xa9}, true},
		{"sub sp; stp", elf.EM_AARCH64, []byte{0xff, 0x83, 0x00, 0xd1, 0xfd, 0x7b, 0x01, 0xa9}, true},
		{"another pair", elf.EM_AARCH64, []byte{0xf3, 0x53, 0xbe, 0xa9}, false},
		{"another machine", elf.EM_RISCV, []byte{0x55, 0x48, 0x89, 0xe5}, false},
	} {
		if got := framed(c.m, le, c.code); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The same program, built with and without frame pointers, is told apart, also
// without its symbol table.
func TestFrameUse(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil || runtime.GOOS != "linux" {
		if os.Getenv("CONTENTION_REQUIRE_BPF") == "1" {
			t.Fatalf("gcc is needed: %v", err)
		}
		t.Skipf("gcc is needed: %v", err)
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "x.c")
	var code bytes.Buffer
	code.WriteString("#include <stdio.h>\n")
	for i := range 40 {
		name := string(rune('a'+i/10)) + string(rune('0'+i%10))
		code.WriteString("int " + name + "(int x) { char b[64]; snprintf(b, sizeof b, \"%d\", x); return b[0] + puts(b); }\n")
	}
	code.WriteString("int main(void) { return a0(1); }\n")
	if err := os.WriteFile(src, code.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]bool{"-fno-omit-frame-pointer": true, "-fomit-frame-pointer": false} {
		exe := filepath.Join(dir, "x"+flag)
		if out, err := exec.Command(gcc, "-O2", "-s", flag, "-o", exe, src).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		use, err := fileFrames(exe)
		if err != nil || use.Functions < 40 || (use.Share() >= framedShare) != want {
			t.Errorf("%s: %+v, share %.2f, %v", flag, use, use.Share(), err)
		}
		f, err := os.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		if !stripped(f) {
			t.Errorf("%s: it is stripped", exe)
		}
		f.Close()
	}
}

func FuzzFrameUse(f *testing.F) {
	if self, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(self)
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		use, err := frameUse(bytes.NewReader(data))
		if err == nil && (use.Functions == 0 || use.Framed > use.Functions || use.Functions > 2*maxSampled) {
			t.Errorf("%+v", use)
		}
	})
}
