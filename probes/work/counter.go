package work

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
	"github.com/contention-toolkit/contention/profile"
)

// maxPage bounds a page of counters, in bytes.
const maxPage = 16 << 20

// readTimeout bounds the read of a page.
const readTimeout = 5 * time.Second

// Counter is a count of work that the target serves.
type Counter struct {
	Role   string // profile.WorkPublished or profile.WorkDelivered
	URL    string // of the page
	Metric string // metric family, or path in a JSON page
	Note   string // where it counts something else than its role says; "" when it does not
}

// Parse reads URL#METRIC, such as http://127.0.0.1:9090/metrics#sent_total or
// http://127.0.0.1:8222/varz#in_msgs. An empty role means published.
func Parse(s, role string) (Counter, error) {
	const form = "it looks like http://127.0.0.1:8080/metrics#messages_total"
	switch role {
	case "":
		role = profile.WorkPublished
	case profile.WorkPublished, profile.WorkDelivered:
	default:
		return Counter{}, fmt.Errorf("work counter %q: role %q is neither %s nor %s", s, role, profile.WorkPublished, profile.WorkDelivered)
	}
	page, metric, _ := strings.Cut(s, "#")
	if metric = strings.TrimSpace(metric); metric == "" {
		return Counter{}, fmt.Errorf("work counter %q names no metric; %s", s, form)
	}
	if !strings.Contains(page, "://") {
		page = "http://" + page
	}
	u, err := url.Parse(page)
	if err != nil {
		return Counter{}, fmt.Errorf("work counter %q: %w; %s", s, err, form)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return Counter{}, fmt.Errorf("work counter %q: %q is not an http URL; %s", s, page, form)
	}
	return Counter{Role: role, URL: u.String(), Metric: metric}, nil
}

// Read returns the counter's present value and when the target told it.
func (c Counter) Read(ctx context.Context) (float64, time.Time, error) {
	client := httpget.NewClient()
	defer client.CloseIdleConnections()
	p, at, err := readPage(ctx, client, c.URL)
	if err != nil {
		return 0, at, fmt.Errorf("read work counter: %w", err)
	}
	v, err := p.value(c.Metric)
	if err != nil {
		return 0, at, fmt.Errorf("read work counter: %s: %w", httpget.Redact(c.URL), err)
	}
	return v, at, nil
}

// readPage reads one page of counters. Its errors name the URL.
func readPage(ctx context.Context, client *http.Client, pageURL string) (page, time.Time, error) {
	a, err := httpget.Get(ctx, client, httpget.Request{
		URL: pageURL, Timeout: readTimeout, Limit: maxPage,
		Accept: "application/json, text/plain;version=0.0.4;q=0.9, */*;q=0.1",
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	p, err := parsePage(a.Body)
	if err != nil {
		return nil, a.At, fmt.Errorf("GET %s: %w", httpget.Redact(pageURL), err)
	}
	return p, a.At, nil
}
