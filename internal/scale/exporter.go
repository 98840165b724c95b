package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// An exporter is a running exporter.
type exporter struct {
	cmd   *exec.Cmd
	url   string
	ready time.Duration // time from start to ready
	ended chan error
	said  *bytes.Buffer
}

// plain is a client that leaves decompression to its caller.
var plain = &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 2 * time.Minute}

// startExporter starts an exporter and waits until it is ready.
func startExporter(ctx context.Context, p program, c *cluster) (*exporter, error) {
	e := &exporter{ended: make(chan error, 1), said: &bytes.Buffer{}}
	e.cmd = exec.Command(p.path, "exporter", "--listen", "127.0.0.1:0", "--log-format", "json", "--kubeconfig", c.KubeconfigPath())
	dieWithParent(e.cmd)
	logs, err := e.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			e.said.WriteString(lines.Text() + "\n")
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && strings.HasPrefix(line.Msg, "Listening") {
				address <- line.Address
			}
		}
		e.ended <- e.cmd.Wait()
	}()
	select {
	case at := <-address:
		e.url = "http://" + at
	case err := <-e.ended:
		return nil, fmt.Errorf("the exporter of %s ended before it listened: %w\n%s", p.path, err, e.said)
	case <-ctx.Done():
		_ = e.cmd.Process.Kill()
		return nil, ctx.Err()
	}
	for {
		answer, err := e.get(ctx, "/readyz", nil)
		if err == nil && answer.status == http.StatusOK {
			e.ready = time.Since(began)
			return e, nil
		}
		if ctx.Err() != nil || time.Since(began) > 10*time.Minute {
			return nil, errors.Join(fmt.Errorf("the exporter of %s is not ready: %s", p.path, answer.body), ctx.Err(), e.stop())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stop interrupts the exporter. It returns an error unless the exporter exits with code
// 0.
func (e *exporter) stop() error {
	_ = e.cmd.Process.Signal(os.Interrupt)
	kill := time.AfterFunc(30*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer kill.Stop()
	if err := <-e.ended; err != nil {
		return fmt.Errorf("the exporter ended badly: %w\n%s", err, e.said)
	}
	return nil
}

type answer struct {
	status int
	body   []byte
}

func (e *exporter) get(ctx context.Context, path string, header http.Header) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	request.Header = header
	response, err := plain.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, body}, err
}

// scrape scrapes as Prometheus does. It returns the time, the compressed size and the
// uncompressed text.
func (e *exporter) scrape(ctx context.Context) (took time.Duration, packed int, text []byte, err error) {
	began := time.Now()
	got, err := e.get(ctx, "/metrics", http.Header{"Accept-Encoding": {"gzip"}})
	took = time.Since(began)
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("scraping: status %d", got.status)
	}
	if err != nil {
		return 0, 0, nil, err
	}
	if !bytes.HasPrefix(got.body, []byte{0x1f, 0x8b}) {
		return took, len(got.body), got.body, nil // not compressed
	}
	unpack, err := gzip.NewReader(bytes.NewReader(got.body))
	if err != nil {
		return 0, 0, nil, err
	}
	text, err = io.ReadAll(unpack)
	return took, len(got.body), text, err
}

// sample returns the value of the first series whose line begins with the given text, or
// 0.
func sample(text []byte, series string) float64 {
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, series) {
			v, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			return v
		}
	}
	return 0
}

// watched is the resource usage of an exporter while it was watched.
type watched struct {
	resident series // sampled every second
	peak     int64
	share    float64 // of one processor
	audits   float64
}

// scrapeInterval is a common scrape interval of Prometheus.
const scrapeInterval = 15 * time.Second

// watch measures an exporter for the given time while it is scraped.
func (e *exporter) watch(ctx context.Context, d time.Duration) (watched, error) {
	var w watched
	pid := e.cmd.Process.Pid
	_, _, text, err := e.scrape(ctx)
	if err != nil {
		return w, err
	}
	const audits = "calico_audit_audits_total"
	auditsBefore := sample(text, audits)
	_, _, before, err := memory(pid)
	if err != nil {
		return w, err
	}
	began, scraped := time.Now(), time.Now()
	for time.Since(began) < d && ctx.Err() == nil {
		time.Sleep(min(time.Second, d/4))
		resident, peak, _, err := memory(pid)
		if err != nil {
			return w, err
		}
		w.resident.add(float64(resident))
		w.peak = peak
		if time.Since(scraped) > scrapeInterval {
			scraped = time.Now()
			if _, _, _, err := e.scrape(ctx); err != nil {
				return w, err
			}
		}
	}
	_, _, after, err := memory(pid)
	w.share = (after - before).Seconds() / time.Since(began).Seconds()
	if err == nil {
		_, _, text, err = e.scrape(ctx)
	}
	auditsAfter := sample(text, audits)
	w.audits = auditsAfter - auditsBefore
	return w, errors.Join(err, ctx.Err())
}

// exporters measures the exporter of each program in turn.
func (r *run) exporters(ctx context.Context, t *table, c *cluster) error {
	p, err := newProbe(ctx, c)
	if err != nil {
		return err
	}
	for _, program := range r.programs {
		if err := r.exporter(ctx, t, c, program, p); err != nil {
			return err
		}
	}
	return p.remove(ctx)
}

func (r *run) exporter(ctx context.Context, t *table, c *cluster, program program, p *probe) error {
	took, _, err := floor(ctx, c.Config, "")
	if err != nil {
		return err
	}
	e, err := startExporter(ctx, program, c)
	if err != nil {
		return err
	}
	set := func(row, text string) {
		note("%s: %s: %s", program.label, row, text)
		t.set(row, program.label, text)
	}
	show := func(row string, w watched) {
		set(row+": processor", percent(w.share)+" of one")
		set(row+": resident memory, mean", megabytes(mean(w.resident)))
		set(row+": peak memory until then", megabytes(float64(w.peak)))
		set(row+": audits", number(w.audits))
	}
	set("ready after", seconds(e.ready.Seconds()))
	set("ready, over the LISTs alone just before", ratio(e.ready.Seconds()/took.Seconds()))
	err = func() error {
		idle, err := e.watch(ctx, r.idle)
		if err != nil {
			return err
		}
		show("idle", idle)
		var scrapes series
		var packed int
		var text []byte
		for range 20 {
			took, n, body, err := e.scrape(ctx)
			if err != nil {
				return err
			}
			scrapes.time(took)
			packed, text = n, body
		}
		set("a scrape", scrapes.show(seconds))
		set("a scrape's size", fmt.Sprintf("%.0f kB, %.0f kB compressed, %d lines", float64(len(text))/1e3, float64(packed)/1e3, bytes.Count(text, []byte("\n"))))
		quiet, err := p.latencies(ctx, e, r.probes, 3*time.Second)
		if err != nil {
			return err
		}
		set("from event to metric, quiet", quiet.show(seconds))

		patches := r.patchPods(ctx, c)
		w, err := e.watch(ctx, r.load)
		did, loadErr := patches.stop()
		if err := errors.Join(err, loadErr); err != nil {
			return err
		}
		show("irrelevant pod patches", w)
		set("irrelevant pod patches: rate", rate(did))

		churn := r.churnPods(ctx, c)
		w, err = e.watch(ctx, r.load)
		var latencies series
		if err == nil {
			latencies, err = p.latencies(ctx, e, r.probes, 0)
		}
		did, loadErr = churn.stop()
		if err := errors.Join(err, loadErr, churn.clean(context.WithoutCancel(ctx))); err != nil {
			return err
		}
		show("pods come and go", w)
		set("pods come and go: rate", rate(did))
		set("pods come and go: from event to metric", latencies.show(seconds))
		return nil
	}()
	return errors.Join(err, e.stop())
}

func mean(s series) float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(max(1, len(s)))
}

// exportersFind checks that each program's exporter finds the planted damage. Some
// findings appear only after a second reading confirms them.
func (r *run) exportersFind(ctx context.Context, t *table, c *cluster, want expected) error {
	for _, program := range r.programs {
		e, err := startExporter(ctx, program, c)
		if err != nil {
			return err
		}
		began := time.Now()
		for {
			got, err := e.get(ctx, "/report.json", nil)
			if err == nil {
				err = want.verify(got.body)
			}
			if err == nil {
				t.set("exporter, all of it found after", program.label, seconds((e.ready + time.Since(began)).Seconds()))
				break
			}
			if time.Since(began) > 2*time.Minute || ctx.Err() != nil {
				r.wrong(program.label+", report of the exporter", err)
				break
			}
			time.Sleep(500 * time.Millisecond)
		}
		if err := e.stop(); err != nil {
			return err
		}
	}
	return nil
}
