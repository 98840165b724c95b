package clitest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// Exporter is a running exporter.
type Exporter struct {
	t *testing.T
	// URL is the exporter's address, and Client a client of it. End ends the exporter.
	URL    string
	Client *http.Client
	End    func() (code int, logs string)
	// Restarted is true if the test itself leaves goroutines, such as connections to a restarted
	// API server.
	Restarted bool
}

// StartExporter starts an exporter and ends it with the test. It must end without an error, and
// leave no goroutines.
func StartExporter(t *testing.T, kubeconfig string, args ...string) *Exporter {
	t.Helper()
	before := goleak.IgnoreCurrent()
	logs, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		args := append([]string{"calico-audit", "exporter", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
		code <- cli.Main(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: writer})
		_ = writer.Close()
	}()
	r := &Exporter{t: t, Client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}}
	var text strings.Builder
	lines := bufio.NewScanner(logs)
	for r.URL == "" && lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		var line struct{ Msg, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("a log line is no JSON: %s", lines.Text())
		}
		if strings.HasPrefix(line.Msg, "Listening") {
			r.URL = "http://" + line.Address
		}
	}
	read := make(chan struct{})
	go func() {
		_, _ = io.Copy(&text, logs)
		close(read)
	}()
	r.End = sync.OnceValues(func() (int, string) {
		r.Client.CloseIdleConnections()
		cancel()
		got := <-code
		<-read
		if err := goleak.Find(before); err != nil && !r.Restarted {
			t.Errorf("it left something behind: %v", err)
		}
		return got, text.String()
	})
	if r.URL == "" {
		got, logs := r.End()
		t.Fatalf("it does not listen: exit code %d\n%s", got, logs)
	}
	t.Cleanup(func() {
		got, logs := r.End()
		if got != exit.CodeOK {
			t.Errorf("it ended with %d", got)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", logs)
		}
	})
	return r
}

// Get returns the status code and body of a path.
func (r *Exporter) Get(path string) (int, string) { r.t.Helper(); return r.GetAs(path, "*/*") }

// GetAs is Get with an Accept header.
func (r *Exporter) GetAs(path, accept string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequest(http.MethodGet, r.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	answer, err := r.Client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Series are the samples of one scrape, by name and labels.
type Series map[string]float64

// Scrape reads the exporter's metrics.
func (r *Exporter) Scrape() Series { return Scrape(r.t, r.Client, r.URL+"/metrics") }

// Scrape reads the metrics at a URL.
func Scrape(t *testing.T, client *http.Client, url string) Series {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	out := Series{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		text := lines.Text()
		if text == "" || text[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(text, ' ')
		v, err := strconv.ParseFloat(text[i+1:], 64)
		if err != nil {
			t.Fatalf("reading %q: %v", text, err)
		}
		out[text[:i]] = v
	}
	return out
}

// Report returns the live report.
func (r *Exporter) Report() *audit.Report {
	r.t.Helper()
	status, body := r.Get("/report.json")
	if status != http.StatusOK {
		r.t.Fatalf("/report.json: %d %s", status, body)
	}
	return Outcome{Stdout: body}.Report(r.t)
}

// Await waits for a condition.
func Await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about that %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Ready waits until the exporter is ready.
func (r *Exporter) Ready() {
	r.t.Helper()
	Await(r.t, "the exporter is ready", func() bool { status, _ := r.Get("/readyz"); return status == http.StatusOK })
}
