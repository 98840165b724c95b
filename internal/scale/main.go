package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A run holds the parameters of a measurement, and its failures.
type run struct {
	programs []program
	parts    []string
	pods     int
	share    float64
	seed     uint64
	// pairs is the number of measurements of each report; rivalPairs that of calicoctl.
	pairs, rivalPairs int
	// idle and load are how long the exporter is watched without and with load. rate is
	// the load in changes per second, and probes the number of latency measurements.
	idle, load   time.Duration
	rate, probes int
	// then is a shell command to run for each cluster.
	then string

	errs []error
}

// Parts of a run.
const (
	healthyPart  = "healthy"
	exporterPart = "exporter"
	plantPart    = "plant" // only the damage
	damagedPart  = "damaged"
	statesPart   = "states"
)

var allParts = []string{healthyPart, exporterPart, plantPart, damagedPart, statesPart}

func main() {
	asMeasurer()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	r := &run{}
	sizes := flag.String("nodes", "1000,5000", "sizes of the clusters, joined by commas")
	programs := flag.String("binary", "", "the calico-audit to measure, or several as LABEL=PATH joined by commas, which take turns")
	parts := flag.String("parts", "healthy,exporter,damaged,states", "what to measure, joined by commas")
	flag.IntVar(&r.pods, "pods", 30, "pods on each node")
	flag.Float64Var(&r.share, "share", 0.01, "share of the nodes that each kind of damage is done to")
	flag.Uint64Var(&r.seed, "seed", 1, "what chooses these nodes")
	flag.IntVar(&r.pairs, "pairs", 5, "how often a report is measured")
	flag.IntVar(&r.rivalPairs, "rival-pairs", 5, "in how many of these turns calicoctl ipam check runs, too")
	flag.DurationVar(&r.idle, "idle", 20*time.Second, "how long the exporter is watched without load")
	flag.DurationVar(&r.load, "load", time.Minute, "how long it is watched under each load")
	flag.IntVar(&r.rate, "rate", 50, "changes a second under load")
	flag.IntVar(&r.probes, "probes", 10, "how many latencies from event to metric are measured, quiet and under load each")
	flag.StringVar(&r.then, "then", "", "a command for the shell to run when all parts are done, while the cluster stands: with KUBECONFIG, and in SERVERS the process IDs of its etcd and its API server")
	flag.Parse()
	for part := range strings.FieldsFuncSeq(*parts, func(c rune) bool { return c == ',' }) {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-parts: no part is called %q; there are %s", part, strings.Join(allParts, ", "))
		}
		r.parts = append(r.parts, part)
	}
	for text := range strings.SplitSeq(*programs, ",") {
		label, path, ok := strings.Cut(text, "=")
		if !ok {
			label, path = "calico-audit", text
		}
		if _, err := os.Stat(path); err != nil && r.has(healthyPart, exporterPart, damagedPart) {
			return fmt.Errorf("-binary: %w", err)
		}
		r.programs = append(r.programs, program{label, path})
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		nodes, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-nodes: %w", err)
		}
		if err := r.size(ctx, nodes); err != nil {
			return err
		}
	}
	return errors.Join(r.errs...)
}

func (r *run) has(parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(r.parts, p) })
}

// wrong records an error. The run continues, so that all figures are taken.
func (r *run) wrong(what string, err error) {
	if err != nil {
		note("WRONG: %s: %v", what, err)
		r.errs = append(r.errs, fmt.Errorf("%s: %w", what, err))
	}
}

// size measures everything at one cluster size and prints the tables.
func (r *run) size(ctx context.Context, nodes int) error {
	fmt.Printf("\n## %d nodes, %d pods\n\n%s, %s/%s, %d processors, shared with etcd and the API server. Load average before: %s.\n",
		nodes, nodes*r.pods, time.Now().UTC().Format("2 January 2006 15:04 UTC"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), loadAverage())
	defer func() { fmt.Printf("\nLoad average after: %s.\n", loadAverage()) }()
	if r.has(statesPart) {
		t := newTable("All checks over states in memory, by the code of this checkout")
		r.measureStates(t, nodes)
		t.write(os.Stdout)
	}
	if r.then == "" && !r.has(healthyPart, exporterPart, plantPart, damagedPart) {
		return nil
	}
	note("making a cluster of %d nodes", nodes)
	c, err := newCluster(ctx, nodes, r.pods)
	if err != nil {
		return err
	}
	defer c.Close()
	note("made in %s", c.took.Round(time.Second))
	if err := r.cluster(ctx, c); err != nil || r.then == "" {
		return err
	}
	then := exec.CommandContext(ctx, "sh", "-c", r.then)
	then.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath(), "SERVERS="+strings.Trim(fmt.Sprint(c.PIDs()), "[]"))
	then.Stdin, then.Stdout, then.Stderr = os.Stdin, os.Stdout, os.Stderr
	return then.Run()
}

// loadAverage returns the machine's load average on Linux, as a sign of other work on it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// cluster measures the parts that need a cluster.
func (r *run) cluster(ctx context.Context, c *cluster) error {
	for _, part := range []struct {
		name, title string
		do          func(context.Context, *table, *cluster) error
	}{
		{healthyPart, "Reports of the healthy cluster", func(ctx context.Context, t *table, c *cluster) error {
			return r.compareReports(ctx, t, c, expected{})
		}},
		{exporterPart, "The exporter on the healthy cluster", r.exporters},
		{plantPart, "", r.plant},
		{damagedPart, "Reports of the damaged cluster", r.damaged},
	} {
		if !r.has(part.name) {
			continue
		}
		t := newTable(part.title)
		err := part.do(ctx, t, c)
		t.write(os.Stdout)
		if err != nil {
			return err
		}
	}
	return nil
}

// plant plants the damage once.
func (r *run) plant(ctx context.Context, _ *table, c *cluster) (err error) {
	if c.damage != nil {
		return nil
	}
	if c.damage, err = plant(ctx, c, r.share, r.seed); err != nil {
		return err
	}
	fmt.Printf("\nPlanted, and to be found exactly: %d findings (%s).\n", len(c.damage), c.damage.counts())
	return nil
}

// damaged measures reports that must find the damage.
func (r *run) damaged(ctx context.Context, t *table, c *cluster) error {
	if err := r.plant(ctx, t, c); err != nil {
		return err
	}
	want := c.damage
	if err := r.compareReports(ctx, t, c, want); err != nil {
		return err
	}
	if err := r.compareSnapshots(ctx, t, c, want); err != nil {
		return err
	}
	return r.exportersFind(ctx, t, c, want)
}
