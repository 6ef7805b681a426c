package cgroup

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree makes the files of a root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	unified = "30 22 0:27 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	hybrid  = "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		version, cpu string
		at           int
	}{
		"0::/a\n":                               {"v2", "/a", 2},
		"3:cpu,cpuacct:/b\n1:name=systemd:/c\n": {"v1", "/b", 1},
		"1:name=systemd:/c\n0::/a\n":            {"v2", "/a", 2},
		"2:memory:/m\n0::/\n":                   {"v1 and v2", "/", 2},
		"4:cpu:/with:colon\n0::/a":              {"v1 and v2", "/with:colon", 1},
		"":                                      {"", "", 0},
		"nonsense\n0:\n":                        {"", "", 0},
	} {
		m := Parse(text)
		if cpu, at := m.CPU(); m.Version() != want.version || cpu != want.cpu || at != want.at {
			t.Errorf("%q: %s, CPU %s of version %d; want %+v", text, m.Version(), cpu, at, want)
		}
	}
}

func TestLocate(t *testing.T) {
	ms := parseMounts("short\n1 2 3 - \n" + `50 30 0:37 /docker/\134x\040y /mnt/a\040b rw - cgroup2 cgroup2 rw` + "\n60 30 0:5 / /tmp rw - tmpfs tmpfs rw\n")
	if len(ms) != 1 || !ms[0].Has("") || ms[0].Has("cpu") {
		t.Fatalf("mounts %+v, want the one of version 2", ms)
	}
	for path, want := range map[string]string{
		`/docker/\x y`: "/mnt/a b", `/docker/\x y/in`: "/mnt/a b/in", `/docker/\x yz`: "", "/": "", "/docker": "",
	} {
		if got, ok := ms[0].Locate(path); got != want || ok != (want != "") {
			t.Errorf("%s is at %q, %v; want %q", path, got, ok, want)
		}
	}
	root := Mount{Point: "/sys/fs/cgroup", Root: "/"}
	if got, _ := root.Locate("/../../etc"); got != "/sys/fs/cgroup/etc" {
		t.Errorf("a path that climbs leads to %s", got)
	}
}

func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []Limit
		err   error
	}{
		"version 2, own and outer": {map[string]string{
			"proc/self/mountinfo": unified, "proc/9/cgroup": "0::/kubepods/pod1/c1\n",
			"sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "50000 100000\n", "sys/fs/cgroup/kubepods/pod1/cpu.max": "max 100000\n", "sys/fs/cgroup/kubepods/cpu.max": "300000 100000\n",
		}, []Limit{{Path: "/kubepods/pod1/c1", Version: 2, Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}, {Path: "/kubepods", Version: 2, Quota: 300 * time.Millisecond, Period: 100 * time.Millisecond}}, nil},
		"version 1": {map[string]string{
			"proc/self/mountinfo": hybrid, "proc/9/cgroup": "4:cpu,cpuacct:/docker/x\n0::/\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "20000\n", "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "10000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us": "10000\n",
		}, []Limit{{Path: "/docker/x", Version: 1, Quota: 20 * time.Millisecond, Period: 10 * time.Millisecond}}, nil},
		"broken files": {map[string]string{
			"proc/self/mountinfo": unified, "proc/9/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "50000 0\n", "sys/fs/cgroup/a/cpu.max": "x\n",
		}, nil, nil},
		"another cgroup namespace": {map[string]string{"proc/self/mountinfo": unified, "proc/9/cgroup": "0::/../other\n"}, nil, fs.ErrNotExist},
		"nothing mounted":          {map[string]string{"proc/self/mountinfo": "", "proc/9/cgroup": "0::/a\n"}, nil, ErrNoController},
		"no cgroups":               {map[string]string{"proc/9/cgroup": ""}, nil, nil},
		"no process":               {map[string]string{"proc/8/cgroup": ""}, nil, fs.ErrNotExist},
	} {
		got, err := Limits(tree(t, tc.files), "9")
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		for i := range got {
			got[i].dir = ""
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestStat(t *testing.T) {
	for text, want := range map[string]Stat{
		"nr_periods 7\nnr_throttled 3\nthrottled_time 1234\n":                               {7, 3, 1234},
		"usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 12\nnr_bursts 0\nx y\n": {7, 3, 12 * time.Microsecond},
	} {
		got, err := Limit{dir: tree(t, map[string]string{"cpu.stat": text})}.Stat()
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	if _, err := (Limit{Path: "/gone", dir: t.TempDir()}).Stat(); err == nil || !strings.Contains(err.Error(), "/gone") {
		t.Errorf("a cgroup that is gone: %v", err)
	}
}

func TestMemoryLimited(t *testing.T) {
	v1 := func(own, outer string) map[string]string {
		return map[string]string{
			"proc/self/mountinfo": hybrid, "proc/9/cgroup": "4:memory:/a/b\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": own, "sys/fs/cgroup/memory/a/memory.limit_in_bytes": outer,
		}
	}
	for name, tc := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"none":      {v1("9223372036854771712\n", "9223372036854771712\n"), false},
		"outer":     {v1("9223372036854771712\n", "100000000\n"), true},
		"version 2": {map[string]string{"proc/self/mountinfo": unified, "proc/9/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1000\n"}, true},
		"max":       {map[string]string{"proc/self/mountinfo": unified, "proc/9/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, false},
		"gone":      {map[string]string{}, false},
	} {
		if got := MemoryLimited(tree(t, tc.files), "9"); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestContainer(t *testing.T) {
	const a, b = "3f4e0a11c0de3f4e0a11c0de3f4e0a11", "3f4e0a11c0dfffffffffffffffffffff"
	dir := tree(t, map[string]string{
		"proc/20/cgroup": "0::/system.slice/docker-" + a + ".scope\n",
		"proc/3/cgroup":  "4:cpu:/docker/" + a + "/nested\n0::/\n",
		"proc/5/cgroup":  "0::/kubepods.slice/pod7.slice/cri-containerd-" + b + ".scope\n",
		"proc/6/cgroup":  "0::/kubepods/pod7:cri-containerd:" + b + "\n",
		"proc/7/cgroup":  "0::/system.slice/nats.service\n",
		"proc/8/cgroup":  "0::/\n", "proc/self/cgroup": "0::/system.slice/docker-" + a + ".scope\n", "proc/stat": "",
	})
	for id, want := range map[string][]int{
		a: {3, 20}, a[:12]: {3, 20}, b: {5, 6}, "nats.service": {7}, "nats": {7},
	} {
		if got, err := Container(dir, id); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", id, got, err, want)
		}
	}
	for id, want := range map[string]string{
		a[:11]: "12 digits", "": "no process", "nginx": "no process", "3F4E0A11C0DE": "no process",
	} {
		if got, err := Container(dir, id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", id, got, err, want)
		}
	}
	both := tree(t, map[string]string{"proc/1/cgroup": "0::/x/aaaaaaaaaaaa1\n", "proc/2/cgroup": "0::/x/aaaaaaaaaaaa2\n"})
	if _, err := Container(both, "aaaaaaaaaaaa"); err == nil || !strings.Contains(err.Error(), "aaaaaaaaaaaa1, aaaaaaaaaaaa2") {
		t.Errorf("an id of two: %v", err)
	}
	if path, ok := Same(dir, "self", "20"); !ok || !strings.Contains(path, a) {
		t.Errorf("two processes of one container: %s, %v", path, ok)
	}
	if _, ok := Same(dir, "7", "20"); ok {
		t.Error("two processes of different cgroups are the same")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0::/a\n", unified+hybrid)
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		m := Parse(groups)
		for _, mount := range parseMounts(mounts) {
			if dir, ok := mount.Locate(m.V2); ok && !strings.HasPrefix(dir, filepath.Clean(mount.Point)) {
				t.Errorf("%s of %+v leads out of it, to %s", m.V2, mount, dir)
			}
		}
	})
}
