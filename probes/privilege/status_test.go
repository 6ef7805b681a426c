package privilege

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

const status = `Name:	nats-server
PPid:	7
Uid:	1000	1001	1002	1003
Gid:	10	11	12	13
NSpid:	4242	17
CapInh:	0000000000000000
CapPrm:	0000008000080000
CapEff:	000000c000000000
CapBnd:	000001ffffffffff
NoNewPrivs:	1
Seccomp:	2
`

func TestParseStatus(t *testing.T) {
	got, err := parseStatus(status)
	want := Status{
		Name: "nats-server", PPID: 7, UIDs: [3]int{1000, 1001, 1002}, GIDs: [3]int{10, 11, 12}, NSPIDs: []int{4242, 17},
		Permitted: SetOf(SysPtrace, BPF), Effective: SetOf(Perfmon, BPF), Bounding: 1<<41 - 1, NoNewPrivs: true, Seccomp: 2,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if names := got.Effective.Names(); !reflect.DeepEqual(names, []string{"CAP_PERFMON", "CAP_BPF"}) {
		t.Errorf("names are %v", names)
	}
	for _, bad := range []string{"", "Name:\tx\n", "Uid:\t1\t2\n", "Uid:\tx\t1\t1\t1\n", "Uid:\t1\t1\t1\t1\nCapEff:\tzz\n"} {
		if got, err := parseStatus(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func TestReadStatusOfThisProcess(t *testing.T) {
	s, err := ReadStatus("", "self")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	if s.UIDs[0] != os.Getuid() || s.UIDs[1] != os.Geteuid() || s.PPID != os.Getppid() {
		t.Errorf("%+v; want uid %d and parent %d", s, os.Getuid(), os.Getppid())
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(status)
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseStatus(text); err == nil {
			_ = s.Effective.Names()
		}
	})
}

// fixture writes files under a root.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLockdown(t *testing.T) {
	const path = "sys/kernel/security/lockdown"
	for text, want := range map[string]string{
		"none [integrity] confidentiality\n": "integrity", "[none] integrity confidentiality\n": "none",
		"none": "", "[none": "", "": "",
	} {
		if got := Lockdown(fixture(t, map[string]string{path: text})); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := Lockdown(t.TempDir()); got != "" {
		t.Errorf("without the file it is %q", got)
	}
}

func TestMissingBPF(t *testing.T) {
	for _, c := range []struct {
		effective Set
		want      []string
	}{
		{0, []string{"CAP_BPF", "CAP_PERFMON"}},
		{SetOf(BPF), []string{"CAP_PERFMON"}},
		{SetOf(BPF, Perfmon), nil},
		{SetOf(SysAdmin), nil},
	} {
		if got := MissingBPF(c.effective); !reflect.DeepEqual(got, c.want) {
			t.Errorf("MissingBPF(%#x) = %v, want %v", uint64(c.effective), got, c.want)
		}
	}
}
