package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// The size and duration of the benchmark. CALICO_AUDIT_BUSY sets another duration.
const (
	busyNodes, busyPods = 1000, 30 // pods per node
	busyChanges         = 50       // a second
	busyTime            = 30 * time.Second
	busyScrapes         = 15 * time.Second // Prometheus' usual interval
	busyProbes          = 5
)

// BenchmarkExporterBesideKubeControllers runs the exporter and Calico's own
// kube-controllers, with only its node controller, on the same cluster of 1,000 nodes and
// 30,000 pods. 50 pods a second start or stop. Both are scraped as by Prometheus. The
// metrics are:
//
//   - rss/theirs, peak/theirs: the exporter's mean and peak resident memory during the changes, relative to
//     kube-controllers. MiB-rss and similar are absolute values; those of kube-controllers have the prefix kcc.
//   - s-cpu/min: processor time per minute of changes
//   - s-pool, s-pod: the time from the write of a pool, or of a pod with its address, until the metrics show it,
//     during the changes: median and maximum. pool/theirs and pod/theirs compare the medians. The prefix "quiet-"
//     marks the same measurements after the changes.
//   - changes/s: the actual rate of changes; a busy machine does not reach 50
func BenchmarkExporterBesideKubeControllers(b *testing.B) {
	testenv.Linux(b) // reads /proc
	for b.Loop() {
		besideKubeControllers(b)
	}
	b.ReportMetric(0, "ns/op") // meaningless here
}

func besideKubeControllers(b *testing.B) {
	b.Helper()
	ctx := b.Context()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	cluster := testcluster.Start(b, testcluster.Options{WatchCache: true}) // like a real cluster
	seeder, err := seeding.New(cluster)
	must(err)
	must(seeder.Init(ctx))
	must(seeder.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(seeder.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.0.0.0/8", BlockSize: 26}))
	must(seeder.Bulk(ctx, seeding.Bulk{Nodes: busyNodes, PodsPerNode: busyPods}))

	ours := exec.Command(built(b), exporterArgs("--kubeconfig", cluster.KubeconfigPath())...)
	url := "http://" + startExporter(b, ours) + "/metrics"
	theirs := cluster.StartKubeControllers(b)
	const inUse = `calico_audit_pool_in_use_addresses{ip_family="IPv4",ippool="pods"}`
	must(awaitSum(ctx, url, inUse, busyNodes*busyPods))
	must(awaitSum(ctx, theirs.MetricsURL(), "ipam_allocations_per_node{", busyNodes*busyPods))

	stop := changePods(b, seeder)
	scrapeCtx, enough := context.WithCancel(ctx)
	var scrapes sync.WaitGroup
	scrapes.Go(func() { scrapeOften(scrapeCtx, url, theirs.MetricsURL()) })
	pids, names := []int{ours.Process.Pid, theirs.PID()}, []string{"", "kcc-"}
	began, before := time.Now(), []usage{used(b, pids[0]), used(b, pids[1])}
	var after [2]usage
	var rss [2]float64 // mean, because garbage collection makes it fluctuate
	for samples, end := 1.0, began.Add(busyDuration(b)); time.Now().Before(end); samples++ {
		time.Sleep(time.Second)
		for i, pid := range pids {
			after[i] = used(b, pid)
			rss[i] += (after[i].rss - rss[i]) / samples
		}
	}
	minutes := time.Since(began).Minutes()
	enough()
	scrapes.Wait()
	for i, name := range names {
		b.ReportMetric(rss[i], name+"MiB-rss")
		b.ReportMetric(after[i].peak, name+"MiB-peak")
		b.ReportMetric((after[i].cpu-before[i].cpu)/minutes, name+"s-cpu/min")
	}
	b.ReportMetric(rss[0]/rss[1], "rss/theirs")
	b.ReportMetric(after[0].peak/after[1].peak, "peak/theirs")

	pools, pods := probe(b, seeder, 0, url, theirs.MetricsURL())
	b.ReportMetric(stop(), "changes/s")
	time.Sleep(5 * time.Second) // for changes still in progress
	quietPools, quietPods := probe(b, seeder, busyProbes, url, theirs.MetricsURL())
	for what, took := range map[string][2][]float64{"pool": pools, "pod": pods, "quiet-pool": quietPools, "quiet-pod": quietPods} {
		for side, name := range names {
			slices.Sort(took[side])
			b.ReportMetric(took[side][len(took[side])/2], name+"s-"+what+"-median")
			b.ReportMetric(took[side][len(took[side])-1], name+"s-"+what+"-max")
		}
		b.ReportMetric(took[0][len(took[0])/2]/took[1][len(took[1])/2], what+"/theirs")
	}
	if !theirs.Running() {
		b.Errorf("kube-controllers ended:\n%s", theirs.Log())
	}
}

func busyDuration(b *testing.B) time.Duration {
	b.Helper()
	text := os.Getenv("CALICO_AUDIT_BUSY")
	if text == "" {
		return busyTime
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		b.Fatalf("CALICO_AUDIT_BUSY: %v", err)
	}
	return d
}

// built builds the program as released; the test's own executable is larger.
func built(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "calico-audit")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("building the program: %v\n%s", err, out)
	}
	return path
}

// changePods starts and stops pods at a steady rate, with addresses from Calico's own IPAM
// client. The returned function stops it and returns the achieved rate.
func changePods(b *testing.B, seeder *seeding.Seeder) (stop func() float64) {
	b.Helper()
	const workers, live = 10, 20
	ctx, cancel := context.WithCancel(b.Context())
	var changes atomic.Int64
	turns := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		defer close(turns)
		tick := time.NewTicker(time.Second / busyChanges)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				select {
				case turns <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	for w := range workers {
		wait.Go(func() {
			var pods []seeding.Pod
			next := 0
			for range turns {
				var err error
				if len(pods) < live {
					p := seeding.Pod{
						Namespace: fmt.Sprintf("bulk-%03d", w), Name: fmt.Sprintf("app-7f9d8c6b54-%02d-%06d", w, next),
						Node: fmt.Sprintf("bulk-%05d", (next*workers+w)%busyNodes),
					}
					next++
					_, err = seeder.Pod(ctx, p)
					pods = append(pods, p)
				} else {
					err = seeder.DeletePod(ctx, pods[0].Namespace, pods[0].Name, true)
					pods = pods[1:]
				}
				if err != nil && ctx.Err() == nil {
					b.Errorf("changing pods: %v", err)
				}
				changes.Add(1)
			}
		})
	}
	began := time.Now()
	return func() float64 {
		cancel()
		rate := float64(changes.Load()) / time.Since(began).Seconds()
		wait.Wait()
		return rate
	}
}

// scrapeOften scrapes like Prometheus.
func scrapeOften(ctx context.Context, urls ...string) {
	tick := time.NewTicker(busyScrapes)
	defer tick.Stop()
	for {
		for _, url := range urls {
			_, _, _ = get(ctx, url)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probe measures, in seconds, how long it takes until our metrics and theirs show a new
// pool, and a pod with an address of it. Pools are numbered from first.
func probe(b *testing.B, seeder *seeding.Seeder, first int, ours, theirs string) (pools, pods [2][]float64) {
	b.Helper()
	for i := first; i < first+busyProbes; i++ {
		name := fmt.Sprintf("probe-%d", i)
		both := func(to *[2][]float64, write func() error, family, theirFamily string, want float64) {
			b.Helper()
			if err := write(); err != nil {
				b.Fatal(err)
			}
			start := time.Now()
			var group errgroup.Group
			for side, at := range []struct{ url, series string }{
				{ours, fmt.Sprintf(`calico_audit_pool_%s_addresses{ip_family="IPv4",ippool=%q}`, family, name)},
				{theirs, fmt.Sprintf(`%s{ippool=%q`, theirFamily, name)},
			} {
				group.Go(func() error {
					err := awaitSum(b.Context(), at.url, at.series, want)
					to[side] = append(to[side], time.Since(start).Seconds())
					return err
				})
			}
			if err := group.Wait(); err != nil {
				b.Fatal(err)
			}
		}
		both(&pools, func() error {
			return seeder.Pool(b.Context(), name, apiv3.IPPoolSpec{CIDR: fmt.Sprintf("192.168.%d.0/24", i), BlockSize: 26})
		}, "capacity", "ipam_ippool_size", 256)
		both(&pods, func() error {
			_, err := seeder.Pod(b.Context(), seeding.Pod{
				Namespace: "bulk-000", Name: name, Node: "bulk-00000",
				Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": fmt.Sprintf("[%q]", name)},
			})
			return err
		}, "in_use", "ipam_allocations_in_use", 1)
	}
	return pools, pods
}

// awaitSum waits until all series with a prefix add up to at least want.
func awaitSum(ctx context.Context, url, series string, want float64) error {
	sum := 0.0
	for deadline := time.Now().Add(eventTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		status, body, err := get(ctx, url)
		if err != nil || status != http.StatusOK {
			continue
		}
		sum = 0
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, series) {
				v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
				if err != nil {
					return fmt.Errorf("reading %q: %w", line, err)
				}
				sum += v
			}
		}
		if sum >= want {
			return nil
		}
	}
	return fmt.Errorf("%s of %s came to %v, not to %v", series, url, sum, want)
}

// usage is the resource usage of a process: present and peak memory in MiB, and processor
// time in seconds.
type usage struct{ rss, peak, cpu float64 }

func used(b *testing.B, pid int) usage {
	b.Helper()
	read := func(name string) string {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			b.Fatal(err)
		}
		return string(content)
	}
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	var u usage
	for line := range strings.Lines(read("status")) {
		switch fields := strings.Fields(line); fields[0] {
		case "VmRSS:":
			u.rss = number(fields[1]) / 1024
		case "VmHWM:":
			u.peak = number(fields[1]) / 1024
		}
	}
	stat := read("stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const utime, stime, ticks = 14 - 3, 15 - 3, 100 // see proc(5), USER_HZ
	u.cpu = (number(fields[utime]) + number(fields[stime])) / ticks
	return u
}
