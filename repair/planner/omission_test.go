package planner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// TestOmissionsAreNeverCleanNorAlarming withholds objects from every state, in the ways in
// which a reading loses them. The partial reading must have no error, critical finding or
// step that the whole one lacks, and must explain each finding that it lost or weakened by
// a gap or a skipped check, and by being incomplete.
func TestOmissionsAreNeverCleanNorAlarming(t *testing.T) {
	states := drawnStates(t)
	names := slices.Sorted(maps.Keys(states))
	broken := map[string]int{}
	tried := 0
	for _, name := range testenv.Sample(t, 24, names) {
		whole := dumpOf(states[name]())
		references := map[bool]read{false: reading(t, whole), true: reading(t, whole.snapshot())}
		for _, o := range omissions(whole) {
			partial := reading(t, o.dump)
			tried++
			for _, v := range partial.violations(references[o.dump.counts != nil], o) {
				key := o.how + " " + o.what + ": " + v.kind
				if broken[key]++; broken[key] == 1 && !slices.Contains(openViolations, key) {
					t.Errorf("%s: %s %s: %s: %s", name, o.how, o.what, v.kind, v.text)
				}
			}
		}
	}
	if tried < 300 {
		t.Errorf("only %d omissions were tried", tried)
	}
	total := 0
	for _, key := range slices.Sorted(maps.Keys(broken)) {
		total += broken[key]
		t.Logf("%5d  %s", broken[key], key)
	}
	t.Logf("%d violations in %d omissions", total, tried)
}

// A dump is what files hold of a cluster.
type dump struct {
	objects []map[string]any
	// empty are the kinds of which a List without items is in the files.
	empty map[*decode.Kind]bool
	// counts are those of a saved snapshot; nil makes a plain dump.
	counts map[blocks.Resource]int
	hosts  blocks.HostReading
	// refused are the kinds that the API server refused to list; nil for files.
	refused map[blocks.Resource]bool
	at      string
}

// kindOf returns the kind of an object; nil if an audit does not read it.
func kindOf(object map[string]any) *decode.Kind {
	for _, k := range decode.Kinds {
		if slices.Contains(k.Names, fmt.Sprint(object["kind"])) && k.Version(decode.GroupCRD) == object["apiVersion"] {
			return k
		}
	}
	return nil
}

// dumpOf returns a plain dump of a state, in which each kind without an object is an empty List.
func dumpOf(s *blocks.Snapshot) dump {
	d := dump{objects: statedsl.Manifest(s), empty: map[*decode.Kind]bool{}, hosts: s.Hosts, at: s.Cluster.TakenAt.UTC().Format("2006-01-02T15:04:05Z07:00")}
	for _, k := range decode.Kinds {
		d.empty[k] = d.count(k) == 0
	}
	have := map[any]bool{}
	for _, o := range slices.Clone(d.objects) {
		if meta, _ := o["metadata"].(map[string]any); o["kind"] == "Namespace" {
			have[meta["name"]] = true
		}
	}
	for _, o := range slices.Clone(d.objects) {
		if meta, _ := o["metadata"].(map[string]any); meta["namespace"] != nil && !have[meta["namespace"]] {
			have[meta["namespace"]] = true
			d.objects = append(d.objects, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": meta["namespace"]}})
		}
	}
	return d
}

func (d dump) count(k *decode.Kind) (n int) {
	for _, o := range d.objects {
		if kindOf(o) == k {
			n++
		}
	}
	return n
}

// without returns the dump without the objects that drop is true for.
func (d dump) without(drop func(map[string]any) bool) dump {
	d.objects = slices.DeleteFunc(slices.Clone(d.objects), drop)
	return d
}

// lists returns the dump with an empty List of a kind, or without one.
func (d dump) lists(k *decode.Kind, empty bool) dump {
	d.empty = maps.Clone(d.empty)
	d.empty[k] = empty
	return d
}

// snapshot returns the dump as "calico-audit snapshot" saves it.
func (d dump) snapshot() dump {
	d.counts = map[blocks.Resource]int{}
	for _, o := range d.objects {
		if k := kindOf(o); k != nil {
			d.counts[k.Resource]++
		}
	}
	return d
}

func (d dump) read(t *testing.T) *blocks.Snapshot {
	t.Helper()
	var out bytes.Buffer
	write := func(object any) {
		line, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	if d.counts != nil {
		write(map[string]any{"apiVersion": blocks.APIVersion, "kind": "SnapshotInfo", "takenAt": d.at, "datastore": "kubernetes", "counts": d.counts, "resources": blocks.Resources})
	}
	for _, o := range d.objects {
		write(o)
	}
	if d.counts != nil {
		n := 0
		for _, c := range d.counts {
			n += c
		}
		write(map[string]any{"apiVersion": blocks.APIVersion, "kind": "SnapshotEnd", "takenAt": d.at, "objects": n})
	} else {
		for _, k := range decode.Kinds {
			if d.empty[k] {
				write(map[string]any{"apiVersion": k.Version(decode.GroupCRD), "kind": k.Names[0] + "List", "items": []any{}})
			}
		}
	}
	path := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := files.ReadFiles([]string{path}, files.FileOptions{})
	if err != nil {
		return nil // as an input without any object
	}
	s.Hosts = d.hosts
	for r := range d.refused {
		s.Gaps = append(s.Gaps, blocks.Gap{Resource: r, Reason: "forbidden"})
	}
	if at, err := time.Parse(time.RFC3339, d.at); err == nil {
		s.Cluster.TakenAt = at
	}
	return s
}

// An omission is a dump that lacks something.
type omission struct {
	how, what string
	dump      dump
	// corrupt is the object that cannot be decoded, if any.
	corrupt bool
	// assumed is true if a kind was left out that is assumed absent, required if it must be
	// there in every case.
	assumed, required bool
}

// assumedAbsent are the kinds that need not be in files.
var assumedAbsent = []blocks.Resource{
	blocks.Reservations, blocks.BGPFilters, blocks.ClusterInfos, blocks.FelixConfigs, blocks.ControllerConfig,
	blocks.VMs, blocks.VMInstances,
}

// alwaysNeeded are the kinds without which a dump is incomplete.
var alwaysNeeded = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs}

// assumesAbsent reports whether a kind may be left out of a dump by the contract: one of
// Whereabouts' only with all the others of Whereabouts.
func (d dump) assumesAbsent(k *decode.Kind) bool {
	if k.Foreign == "" {
		return slices.Contains(assumedAbsent, k.Resource)
	}
	return !slices.ContainsFunc(d.objects, func(o map[string]any) bool {
		other := kindOf(o)
		return other != nil && other != k && other.Foreign == decode.KindOf(blocks.WhereaboutsPools).Foreign
	})
}

// omissions returns the ways in which a dump loses one kind, one namespace's pods or one
// object.
func omissions(d dump) (out []omission) {
	for _, k := range decode.Kinds {
		if d.count(k) == 0 {
			continue
		}
		of := func(o map[string]any) bool { return kindOf(o) == k }
		r := k.Resource
		out = append(out, omission{how: "no", what: string(r), dump: d.without(of).lists(k, false), assumed: d.assumesAbsent(k), required: slices.Contains(alwaysNeeded, r)})
		refused := d.without(of).lists(k, true)
		refused.refused = map[blocks.Resource]bool{r: true}
		out = append(out, omission{how: "refused", what: string(r), dump: refused})
		saved := d.snapshot()
		half := 0
		out = append(out, omission{how: "snapshot with half of", what: string(r), dump: saved.without(func(o map[string]any) bool {
			if !of(o) {
				return false
			}
			half++
			return half%2 == 1
		})})
		done := false
		broken := d.without(func(map[string]any) bool { return false })
		for i, o := range broken.objects {
			if of(o) && !done && o["spec"] != nil {
				done = true
				changed := maps.Clone(o)
				changed["spec"] = "garbage"
				broken.objects[i] = changed
			}
		}
		if done {
			out = append(out, omission{how: "undecodable one of", what: string(r), dump: broken, corrupt: true})
		}
	}
	for _, ns := range d.namespacesOfPods() {
		out = append(out, omission{how: "no pods of", what: "one namespace", dump: d.without(func(o map[string]any) bool {
			meta, _ := o["metadata"].(map[string]any)
			return o["kind"] == "Pod" && meta["namespace"] == ns
		}).lists(decode.KindOf(blocks.Pods), false)})
	}
	return out
}

// namespacesOfPods returns the namespaces with pods that allocations name.
func (d dump) namespacesOfPods() (out []string) {
	have := map[string]bool{}
	for _, o := range d.objects {
		if meta, _ := o["metadata"].(map[string]any); o["kind"] == "Pod" {
			have[fmt.Sprint(meta["namespace"])] = true
		}
	}
	for _, o := range d.objects {
		spec, _ := o["spec"].(map[string]any)
		attributes, _ := spec["attributes"].([]any)
		for _, a := range attributes {
			attr, _ := a.(map[string]any)
			secondary, _ := attr["secondary"].(map[string]any)
			if ns, _ := secondary["namespace"].(string); have[ns] && !slices.Contains(out, ns) {
				out = append(out, ns)
			}
		}
	}
	return out
}

// read holds what a reading says.
type read struct {
	unreadable bool
	report     *audit.Report
	steps      map[string]bool
}

// reading returns the report and the steps of all plans of a dump.
func reading(t *testing.T, d dump) read {
	t.Helper()
	s := d.read(t)
	if s == nil {
		return read{unreadable: true}
	}
	st := state.New(s, state.Options{})
	out := read{report: audit.NewReport(st, audit.Run(st, checks.All)), steps: map[string]bool{}}
	for _, text := range []string{"all allow-newer without-host-evidence", "strict=true allow-newer", "strict=false allow-newer"} {
		req, _ := parseRequest(t, text)
		for _, step := range Build(st, req).Steps {
			out.steps[step.ID] = true
		}
	}
	return out
}

// A violation is a way in which a partial reading says more or less than the whole one.
type violation struct{ kind, text string }

func (r read) violations(whole read, o omission) (out []violation) {
	if r.unreadable || o.assumed { // the reading says what it assumes
		return nil
	}
	had, has := bySeverity(whole.report), bySeverity(r.report)
	for print, f := range has {
		if f.Severity >= state.Error && (had[print] == nil || had[print].Severity < f.Severity) && (!o.corrupt || f.Check != "block/corrupt") {
			out = append(out, violation{"new " + f.Check, f.Severity.String() + " " + f.Subject.ID() + ": " + f.Message})
		}
	}
	for id := range r.steps {
		if !whole.steps[id] {
			kind, _, _ := strings.Cut(id, ":")
			out = append(out, violation{"new step " + kind, id})
		}
	}
	for print, f := range had {
		if has[print] != nil && has[print].Severity >= f.Severity {
			continue
		}
		switch explained := slices.ContainsFunc(r.report.SkippedChecks, func(s audit.Skipped) bool { return s.Check == f.Check }); {
		case r.report.Complete && !explained:
			out = append(out, violation{"lost " + f.Check, f.Severity.String() + " " + f.Subject.ID() + ", and the report is complete"})
		case r.report.Complete:
			out = append(out, violation{"complete without " + f.Check, f.Severity.String() + " " + f.Subject.ID()})
		}
	}
	if r.report.Complete && len(out) == 0 && o.required {
		out = append(out, violation{"complete", "no finding is lost"})
	}
	return out
}

func bySeverity(r *audit.Report) map[string]*audit.Finding {
	out := map[string]*audit.Finding{}
	for i := range r.Findings {
		if f := &r.Findings[i]; out[f.Fingerprint] == nil || out[f.Fingerprint].Severity < f.Severity {
			out[f.Fingerprint] = f
		}
	}
	return out
}

// openViolations are the ways in which the law is still broken: each is a mistake of the
// program, and goes from this list with its mending.
var openViolations = []string{
	"no nodes: new ip/host-in-use",
	"no nodes: new pool/exhausted",
	"no pods: new ip/host-in-use",
	"no pods: new pool/exhausted",
	"refused blockaffinities: new step release-ip",
	"refused clusterinformations: new node/no-block",
	"refused clusterinformations: new pool/no-free-blocks",
	"refused ipamhandles: new block/no-affinity",
	"refused ipamhandles: new step release-block",
	"refused ipamhandles: new step set-strict-affinity",
	"refused nodes: new ip/host-in-use",
	"refused nodes: new pool/exhausted",
	"refused pods: new block/no-affinity",
	"refused pods: new ip/host-in-use",
	"refused pods: new pool/exhausted",
	"snapshot with half of clusterinformations: new node/no-block",
	"snapshot with half of clusterinformations: new pool/no-free-blocks",
	"snapshot with half of nodes: new ip/host-in-use",
	"snapshot with half of nodes: new pool/exhausted",
	"snapshot with half of pods: new ip/host-in-use",
	"snapshot with half of pods: new pool/exhausted",
	"undecodable one of blockaffinities: new node/block-limit",
	"undecodable one of blockaffinities: new step claim-block",
	"undecodable one of blockaffinities: new step cordon-node",
	"undecodable one of blockaffinities: new step evict-pod",
	"undecodable one of blockaffinities: new step release-block",
	"undecodable one of blockaffinities: new step reserve-block",
	"undecodable one of blockaffinities: new step uncordon-node",
	"undecodable one of blockaffinities: new step unreserve-block",
	"undecodable one of clusterinformations: new node/no-block",
	"undecodable one of clusterinformations: new pool/no-free-blocks",
	"undecodable one of ipamblocks: new affinity/not-owner",
	"undecodable one of ipamblocks: new block/size-mismatch",
	"undecodable one of ipamblocks: new ip/duplicate",
	"undecodable one of ipamblocks: new ip/unallocated",
	"undecodable one of ipamblocks: new step cordon-node",
	"undecodable one of ipamblocks: new step delete-handle",
	"undecodable one of ipamblocks: new step evict-pod",
	"undecodable one of ipamblocks: new step release-block",
	"undecodable one of ipamblocks: new step restore-affinity",
	"undecodable one of ipamblocks: new step set-strict-affinity",
	"undecodable one of ipamblocks: new step uncordon-node",
	"undecodable one of ipamhandles: new step create-handle",
	"undecodable one of ippools: new node/no-block",
	"undecodable one of ippools: new step cordon-node",
	"undecodable one of ippools: new step evict-pod",
	"undecodable one of ippools: new step restore-affinity",
	"undecodable one of ippools: new step uncordon-node",
	"undecodable one of ipreservations: new block/size-mismatch",
	"undecodable one of ipreservations: new ip/host-in-use",
	"undecodable one of ipreservations: new step release-block",
	"undecodable one of ipreservations: new step reserve-block",
	"undecodable one of ipreservations: new step restore-affinity",
	"undecodable one of nodes: new ip/host-in-use",
	"undecodable one of nodes: new ip/unallocated",
	"undecodable one of nodes: new pool/exhausted",
	"undecodable one of nodes: new pool/no-free-blocks",
	"undecodable one of pods: new ip/host-in-use",
	"undecodable one of pods: new node/no-block",
	"undecodable one of pods: new pool/exhausted",
	"undecodable one of pods: new step claim-block",
	"undecodable one of pods: new step delete-affinity",
	"undecodable one of pods: new step delete-handle",
	"undecodable one of pods: new step disown-block",
	"undecodable one of pods: new step evict-pod",
	"undecodable one of pods: new step release-block",
	"undecodable one of pods: new step reserve-block",
	"undecodable one of pods: new step unreserve-block",
}
