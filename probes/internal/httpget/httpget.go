// Package httpget reads one HTTP answer with every bound set: size, time,
// redirects. The probes that talk to a target over HTTP share it, so that a slow,
// broken or hostile target gives the same clear errors everywhere.
package httpget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// Kind says how a read failed.
type Kind int

// The kinds of failure.
const (
	Unreachable Kind = iota + 1 // no connection, or it broke before an answer
	Timeout                     // no complete answer in time
	Status                      // an answer, but not 200
	TooLarge                    // more than Limit bytes
	Truncated                   // the connection broke inside the answer
	Canceled                    // the caller gave up
	Invalid                     // the URL cannot be asked
)

// Error is a failed read. Its text names the URL, the cause and what to do.
type Error struct {
	URL    string
	Kind   Kind
	Status int // with Kind Status
	msg    string
	err    error
}

func (e *Error) Error() string { return "GET " + e.URL + ": " + e.msg }

// Unwrap returns the cause, nil where the answer itself was the fault.
func (e *Error) Unwrap() error { return e.err }

// KindOf returns the kind of a failed read, 0 for any other error.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return 0
}

// Request is one read.
type Request struct {
	URL     string
	Accept  string        // Accept header, "" for none
	Timeout time.Duration // for the whole answer; 0 means 10 s
	Limit   int64         // bytes of the body; 0 means 16 MiB
	Head    bool          // stop after Limit bytes without an error: only the start is wanted
}

// Answer is a 200 answer.
type Answer struct {
	Body        []byte
	ContentType string
	At          time.Time // when its first bytes came: what it says was true just before
}

// NewClient returns a client for a target on this machine: it uses no proxy,
// asks for no compression (profiles are compressed already) and follows no
// redirect to another host. Call CloseIdleConnections when done with it.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 2,
			IdleConnTimeout:     30 * time.Second,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 3 || r.URL.Host != via[0].URL.Host {
				return fmt.Errorf("redirected to %.200q, which is not followed", r.URL.String())
			}
			return nil
		},
	}
}

// Get reads one answer. Every error is an *Error.
func Get(ctx context.Context, c *http.Client, r Request) (*Answer, error) {
	if r.Timeout <= 0 {
		r.Timeout = 10 * time.Second
	}
	if r.Limit <= 0 {
		r.Limit = 16 << 20
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, nil)
	if err != nil {
		return nil, &Error{URL: Redact(r.URL), Kind: Invalid, msg: cause(err), err: err}
	}
	r.URL = req.URL.Redacted() // from here on only for messages
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, r.failed(parent, err, Unreachable)
	}
	defer resp.Body.Close()
	a := &Answer{At: time.Now(), ContentType: resp.Header.Get("Content-Type")}
	if resp.StatusCode != http.StatusOK {
		return nil, r.status(resp)
	}
	// A few bytes more than the limit tell "too large" from "just fits".
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, r.Limit+1))
	if int64(len(a.Body)) > r.Limit {
		a.Body = a.Body[:r.Limit]
		if !r.Head {
			return nil, &Error{URL: r.URL, Kind: TooLarge, msg: fmt.Sprintf("the answer is larger than %d MiB, the most that is read", r.Limit>>20)}
		}
		return a, nil
	}
	if err != nil {
		return nil, r.failed(parent, err, Truncated)
	}
	return a, nil
}

// Redact hides the password of a URL, for messages and files.
func Redact(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(a URL that cannot be parsed)"
	}
	return u.Redacted()
}

// failed names the cause of an error of the transport; broken is what it is
// when nothing more is known.
func (r Request) failed(parent context.Context, err error, broken Kind) *Error {
	e := &Error{URL: r.URL, Kind: broken, err: err}
	switch {
	case parent.Err() != nil:
		e.Kind, e.msg = Canceled, "given up before the answer was complete: "+context.Cause(parent).Error()
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		e.Kind, e.msg = Timeout, fmt.Sprintf("no complete answer within %s; the target is stopped, overloaded, or slow to serve this", r.Timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		e.msg = "connection refused: nothing listens there; check the address, and that the target still runs"
	case broken == Truncated:
		e.msg = "the answer ended early: " + cause(err)
	default:
		e.msg = "no answer: " + cause(err)
	}
	return e
}

// status describes an answer that is not 200 with the first line that the
// target sent, which is where net/http/pprof says why.
func (r Request) status(resp *http.Response) *Error {
	e := &Error{URL: r.URL, Kind: Status, Status: resp.StatusCode}
	e.msg = fmt.Sprintf("the target answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return e
	}
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // a part is good enough
	line, _, _ := strings.Cut(strings.TrimSpace(string(head)), "\n")
	if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, fmt.Sprint(resp.StatusCode)) {
		e.msg += fmt.Sprintf(": %q", line)
	}
	return e
}

// cause drops the method and URL that net/http and net/url put in front of
// every error.
func cause(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	return err.Error()
}
