package main

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// A program is a build of calico-audit to measure.
type program struct{ label, path string }

// floorLabel and rivalLabel are the table columns of the comparisons.
const floorLabel, rivalLabel = "the LISTs alone", "calicoctl ipam check"

// figures are the measurements of one program's runs.
type figures struct{ wall, cpu, rss, served series }

func (f *figures) add(u usage) {
	f.wall.time(u.Wall)
	f.cpu.time(u.CPU)
	f.rss.add(float64(u.RSS))
}

// compareReports runs each program's report, the floor and calicoctl in turn. Each round
// starts with another one. A wrong report counts as an error, but all rounds are
// finished.
func (r *run) compareReports(ctx context.Context, t *table, c *cluster, want expected) error {
	calicoctl, err := programs.Binary(ctx, "calicoctl")
	if err != nil {
		return err
	}
	all := map[string]*figures{}
	bytes := series{}
	type turn struct {
		label string
		do    func() (usage, error)
	}
	var turns []turn
	for _, p := range r.programs {
		turns = append(turns, turn{p.label, func() (usage, error) {
			out := c.file("report.json")
			u, err := measure(ctx, out, nil, p.path, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json")
			if err == nil {
				r.wrong(p.label+", report of the cluster", want.verifyFile(out))
			}
			return u, err
		}})
	}
	turns = append(turns, turn{floorLabel, func() (usage, error) {
		took, n, err := floor(ctx, c.Config, "")
		bytes.add(float64(n))
		return usage{Wall: took}, err
	}})
	env := []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + c.KubeconfigPath()}
	rival := turn{rivalLabel, func() (usage, error) {
		return measure(ctx, c.file("calicoctl.txt"), env, calicoctl, "ipam", "check")
	}}
	for pair := range r.pairs {
		now := turns
		if pair < r.rivalPairs {
			now = append(now[:len(now):len(now)], rival)
		}
		for i := range now {
			it := now[(i+pair)%len(now)]
			before, err := c.cpu()
			if err != nil {
				return err
			}
			u, err := it.do()
			if err != nil {
				return fmt.Errorf("measuring %s: %w", it.label, err)
			}
			note("%s: %s wall, %s CPU, %s", it.label, seconds(u.Wall.Seconds()), seconds(u.CPU.Seconds()), megabytes(float64(u.RSS)))
			if all[it.label] == nil {
				all[it.label] = &figures{}
			}
			all[it.label].add(u)
			after, err := c.cpu()
			if err != nil {
				return err
			}
			all[it.label].served.time(after - before)
		}
	}
	for _, it := range append(turns, rival) {
		f := all[it.label]
		if f == nil {
			continue
		}
		t.set("report, wall", it.label, f.wall.show(seconds))
		t.set("CPU of etcd and the API server meanwhile", it.label, f.served.show(seconds))
		if it.label == floorLabel {
			t.set("bytes read", it.label, series{bytes[0]}.show(megabytes))
			continue
		}
		t.set("report, CPU", it.label, f.cpu.show(seconds))
		t.set("report, peak memory", it.label, f.rss.show(megabytes))
		t.set("wall, over the LISTs alone", it.label, f.wall.over(all[floorLabel].wall).show(ratio))
		if theirs := all[rivalLabel]; theirs != nil && it.label != rivalLabel {
			t.set("wall, over calicoctl's", it.label, f.wall.over(theirs.wall).show(ratio))
			t.set("peak memory, over calicoctl's", it.label, f.rss.over(theirs.rss).show(ratio))
		}
	}
	return nil
}

// compareSnapshots measures the report of a saved snapshot.
func (r *run) compareSnapshots(ctx context.Context, t *table, c *cluster, want expected) error {
	saved := c.file("snapshot.json.gz")
	took, err := measure(ctx, c.file("snapshot.out"), nil, r.programs[0].path, "snapshot", "--kubeconfig", c.KubeconfigPath(), "-o", saved)
	if err != nil {
		return err
	}
	t.set("snapshot of it, wall", r.programs[0].label, seconds(took.Wall.Seconds()))
	all := make([]figures, len(r.programs))
	for pair := range r.pairs {
		for i := range r.programs {
			i = (i + pair) % len(r.programs)
			out := c.file("report.json")
			u, err := measure(ctx, out, nil, r.programs[i].path, "report", "-f", saved, "-o", "json")
			if err != nil {
				return err
			}
			r.wrong(r.programs[i].label+", report of a snapshot", want.verifyFile(out))
			all[i].add(u)
		}
	}
	for i, p := range r.programs {
		t.set("report of the snapshot, wall", p.label, all[i].wall.show(seconds))
		t.set("report of the snapshot, CPU", p.label, all[i].cpu.show(seconds))
		t.set("report of the snapshot, peak memory", p.label, all[i].rss.show(megabytes))
	}
	return nil
}
