package profile_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contention-toolkit/contention/profile"
)

func stream(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := profile.CreateStream(&buf, profile.Meta{Targets: []profile.Target{{PID: 7}}})
	if err == nil {
		err = w.Capture(capture())
	}
	if err == nil {
		err = w.Finish(func(m *profile.Meta) { m.Warnings = []string{"w"} })
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestStreamRoundTrip(t *testing.T) {
	data := stream(t)
	path := filepath.Join(t.TempDir(), "rec.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := profile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c := capture()
	if got := r.Profiles[c.Source]; got == nil || got.String() != c.Profile.String() {
		t.Errorf("the profile read is\n%v\nwritten was\n%v", got, c.Profile)
	}
	if diff := cmp.Diff(c.Slices, r.Slices[c.Source]); diff != "" {
		t.Errorf("slices: %s", diff)
	}
	if r.Meta.Incomplete || len(r.Meta.Warnings) != 1 || r.Meta.Targets[0].PID != 7 {
		t.Errorf("meta is %+v", r.Meta)
	}
	// As unpacked by tar it is a recording directory.
	dir := t.TempDir()
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(tr); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, h.Name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := profile.Open(dir); err != nil || r.Meta.Incomplete || len(r.Profiles) != 1 {
		t.Errorf("unpacked: %v", err)
	}
}

// However a stream is cut, that is told, and what came through whole is there.
func TestStreamCut(t *testing.T) {
	data := stream(t)
	whole := 0
	for n := range len(data) {
		r, err := profile.OpenStream(bytes.NewReader(data[:n]), "rec.tar")
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), "cut after") {
				t.Fatalf("cut after %d bytes: %v", n, err)
			}
		case !r.Meta.Incomplete || !strings.Contains(r.Meta.Why, "cut after"):
			t.Fatalf("cut after %d of %d bytes: it is not said: incomplete %t, %q", n, len(data), r.Meta.Incomplete, r.Meta.Why)
		case len(r.Profiles) == 1:
			whole++
		}
	}
	if whole == 0 {
		t.Error("no cut stream gave the profile that was in it")
	}
}

func TestStreamRefuses(t *testing.T) {
	archive := func(names ...string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range names {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"text":      {bytes.Repeat([]byte("no archive at all\n"), 100), "not a recording's tar stream"},
		"empty":     {nil, "cut after 0 bytes"},
		"others":    {archive("README"), "holds no meta.json"},
		"leaving":   {archive("../meta.json"), "plain files in one directory only"},
		"directory": {archive("rec/meta.json"), "plain files in one directory only"},
		"broken":    {archive("meta.json"), "meta.json"},
	} {
		if _, err := profile.OpenStream(bytes.NewReader(tc.data), "x.tar"); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "x.tar") {
			t.Errorf("%s: %v, want x.tar and %q", name, err, tc.want)
		}
	}
}

func FuzzOpenStream(f *testing.F) {
	data := stream(f)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := profile.OpenStream(bytes.NewReader(data), "x.tar")
		if err != nil {
			return
		}
		for s, p := range r.Profiles {
			if err := p.CheckValid(); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		}
	})
}
