package pprofhttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/contention-toolkit/contention/profile"
)

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestTargetFaults: whatever the target answers, one line says what is wrong
// and with which address, and nothing hangs.
func TestTargetFaults(t *testing.T) {
	good := encode(t, map[string][2]int64{"a;root": {10, 1000}})
	body := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Write(b) }
	}
	var bomb bytes.Buffer
	zw, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(zw, zeros{}, maxDecoded+1024); err != nil {
		t.Fatal(err)
	}
	zw.Close()
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"not served":     {http.NotFound, "404 Not Found: the target does not serve net/http/pprof there"},
		"forbidden":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "wants credentials"},
		"reason told":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "already in use\nsecond line", 500) }, `500 Internal Server Error: "already in use"`},
		"HTML":           {body([]byte("<!DOCTYPE html><title>welcome</title>")), "text/html, not a profile"},
		"text":           {body([]byte("hello")), "text/plain, not a profile"},
		"empty":          {body(nil), "empty"},
		"cut gzip":       {body(good[:len(good)-9]), "ended early"},
		"cut connection": {cutConnection, "ended early"},
		"broken gzip":    {body(append([]byte{0x1f, 0x8b}, make([]byte, 30)...)), "broken gzip"},
		"not protobuf":   {body(gz(t, []byte{0xff, 0xff, 0xff})), "not a profile"},
		"gzip bomb":      {body(bomb.Bytes()), "larger than 64 MiB"},
		"too large":      {func(w http.ResponseWriter, _ *http.Request) { io.CopyN(w, zeros{}, maxBody+10) }, "larger than 16 MiB"},
		"too many":       {body(gz(t, bytes.Repeat([]byte{2<<3 | 2, 0}, maxMessages+1))), "more than 4000000 objects"},
		"unfolds":        {body(gz(t, unfolding(4000, 1, 1001))), "unfolds to more than"},
		"deep":           {body(gz(t, unfolding(500, 500, 1))), "a stack of 250000 frames"},
		"other kind":     {body(cpuProfile(t)), "another kind of profile"},
		"a difference":   {body(encode(t, map[string][2]int64{"a;root": {-1, 5}})), "negative"},
		"slow":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no complete answer within 500ms"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := 10 * time.Second
			if name == "slow" {
				timeout = 500 * time.Millisecond
			}
			url := serve(t, c.h)
			_, err := Start(t.Context(), Options{BaseURL: url, Timeout: timeout, Sources: []profile.Source{profile.SourceBlock}})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), url) {
				t.Fatalf("error %v, want %q and the address", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %q", err)
			}
		})
	}
}

// unfolding is a small profile of samples that each refer so many times to one
// location of so many lines.
func unfolding(lines, times, samples int) []byte {
	var p, loc, sample []byte
	str := func(s string) { p = protowire.AppendString(protowire.AppendTag(p, 6, protowire.BytesType), s) }
	sub := func(n protowire.Number, b []byte) {
		p = protowire.AppendBytes(protowire.AppendTag(p, n, protowire.BytesType), b)
	}
	str("")
	sub(1, nil) // a sample type
	loc = protowire.AppendVarint(protowire.AppendTag(loc, 1, protowire.VarintType), 1)
	for range lines {
		loc = protowire.AppendBytes(protowire.AppendTag(loc, 4, protowire.BytesType), []byte{1 << 3, 1})
	}
	sub(4, loc)
	sub(5, []byte{1 << 3, 1}) // the function of every line
	sample = protowire.AppendBytes(protowire.AppendTag(sample, 1, protowire.BytesType), bytes.Repeat([]byte{1}, times))
	sample = protowire.AppendBytes(protowire.AppendTag(sample, 2, protowire.BytesType), []byte{1})
	for range samples {
		sub(2, sample)
	}
	return p
}

func cutConnection(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	w.Write([]byte{0x1f, 0x8b})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, err = Start(t.Context(), Options{BaseURL: addr})
	if err == nil || strings.Count(err.Error(), "connection refused: nothing listens there") != 2 {
		t.Errorf("error %v, want one reason per source", err)
	}
}

// TestOneSourceMissing: what is not served does not stop what is.
func TestOneSourceMissing(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/block", &script{bodies: [][]byte{encode(t, nil), encode(t, map[string][2]int64{"a;root": {1, 10}})}})
	asked := make(chan struct{}, 1)
	mux.HandleFunc("/debug/fgprof", func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		http.NotFound(w, r)
	})
	r := start(t, Options{BaseURL: serve(t, mux), Duration: time.Second, Sources: []profile.Source{profile.SourceMutex, profile.SourceBlock, profile.SourceFgprof}})
	<-asked // within the last second of its piece, so Stop waits for the answer
	captures, absent := stop(t, r)
	if len(captures) != 1 || captures[0].Source != profile.SourceBlock || len(absent) != 2 {
		t.Fatalf("captures %v, absent %v", captures, absent)
	}
	if a := absent[1]; a.Source != profile.SourceFgprof || !strings.Contains(a.Reason, "does not serve fgprof") {
		t.Errorf("absent %+v", a)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(unfolding(2, 3, 4))
	f.Add(gz(f, unfolding(3, 2, 1)))
	f.Add(encode(f, map[string][2]int64{"a;root": {1, 2}}))
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decode(b)
		if err != nil {
			return
		}
		if err := d.CheckValid(); err != nil {
			t.Fatal(err)
		}
		if checkContention(d.Profile) == nil {
			if x := subtract(d.Profile, d.Profile); len(x.p.Samples) != 0 || x.down != 0 {
				t.Fatalf("a profile less itself is %s", x.p)
			}
		}
	})
}

func FuzzMutexFraction(f *testing.F) {
	f.Add([]byte("--- mutex:\ncycles/second=1\nsampling period=5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := mutexFraction(b); n < unknown {
			t.Fatalf("fraction %d", n)
		}
	})
}
