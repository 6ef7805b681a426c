package httpget

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGet(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/who":
			user, password, _ := r.BasicAuth()
			w.Write([]byte(user + "," + password + "," + r.Header.Get("Accept")))
		case "/long":
			w.Write(make([]byte, 100))
		case "/hang":
			<-r.Context().Done()
		case "/away":
			http.Redirect(w, r, "http://192.0.2.1/x", http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/who", http.StatusFound)
		case "/busy":
			http.Error(w, "profile already\x1b[31m in use\nmore", http.StatusInternalServerError)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	c := NewClient()
	defer c.CloseIdleConnections()
	base := strings.Replace(s.URL, "http://", "http://me:secret@", 1)
	for _, x := range []struct {
		r    Request
		kind Kind
		want string // the body, or a part of the error
	}{
		{Request{URL: base + "/who", Accept: "text/plain"}, 0, "me,secret,text/plain"},
		{Request{URL: base + "/near"}, 0, "me,secret,"},
		{Request{URL: base + "/long", Limit: 100}, 0, strings.Repeat("\x00", 100)},
		{Request{URL: base + "/long", Limit: 99, Head: true}, 0, strings.Repeat("\x00", 99)},
		{Request{URL: base + "/long", Limit: 99}, TooLarge, "larger than"},
		{Request{URL: base + "/none"}, Status, "404 Not Found"},
		{Request{URL: base + "/busy"}, Status, `"profile already\x1b[31m in use"`},
		{Request{URL: base + "/away"}, Unreachable, "not followed"},
		{Request{URL: base + "/hang", Timeout: 50 * time.Millisecond}, Timeout, "within 50ms"},
		{Request{URL: "http://me:secret@h/\x7f"}, Invalid, "invalid control character"},
	} {
		a, err := Get(t.Context(), c, x.r)
		if KindOf(err) != x.kind {
			t.Errorf("%s: %v is of kind %d, want %d", x.r.URL, err, KindOf(err), x.kind)
			continue
		}
		if err == nil && string(a.Body) != x.want {
			t.Errorf("%s: %q, want %q", x.r.URL, a.Body, x.want)
		}
		if err != nil && (!strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: error %q, want %q on one line and no password", x.r.URL, err, x.want)
		}
	}
}

func TestCallerGivesUp(t *testing.T) {
	asked := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(errors.New("no time"))
	}()
	c := NewClient()
	defer c.CloseIdleConnections()
	if _, err := Get(ctx, c, Request{URL: s.URL}); KindOf(err) != Canceled || !strings.Contains(err.Error(), "no time") {
		t.Errorf("error %v of kind %d", err, KindOf(err))
	}
}
