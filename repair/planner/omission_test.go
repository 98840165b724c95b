package planner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/calico-audit/calico-audit/repair"
)

// brokeOnce are parts of names of states that broke the law in a run of every state.
var brokeOnce = []string{
	"affinity_not_owner.txt, nothing: a claim in flight: the affinity was confirmed", "delete_affinity.txt, automatic blocks are off: pods ask for a pool",
	"pod_missing_network.txt, a pod that started before Multus did", "projectcalico/calico#2597", "kubernetes/kubernetes#97117, projectcalico/calico#2485",
	"pool_no_route.txt, nothing: a node's calico-node was not read", "pool_no_route.txt, nothing: the mesh is off, and a BGPPeer exists",
	"pool_no_route.txt, a route reflector is in no mesh",
	"node_network_unavailable.txt, one node of Cluster API's is left behind", "release_ip.txt, a pod's floating IP is not released",
	"release_block.txt, Calico gives an empty block to a node by itself, and once", "release_block.txt, the only block that is left would hand out",
}

// TestOmissionsAreNeverCleanNorAlarming removes objects from every state as a partial reading would.
// The partial reading must have no error, critical finding or step that the complete one lacks. It
// must be incomplete, and a gap or a skipped check must explain each lost or weakened finding. A
// plain dump cannot show that it lacks one object; instead, no step of its plans may run on the
// complete cluster.
func TestOmissionsAreNeverCleanNorAlarming(t *testing.T) {
	states, random := drawnStates(t), testenv.Rand(t)
	names := slices.Sorted(maps.Keys(states))
	broken, tried := map[string]int{}, 0
	tries := testenv.Sample(t, 12, names)
	for _, part := range brokeOnce {
		i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, part) })
		if i < 0 {
			t.Fatalf("no state is named %q", part)
		}
		if !slices.Contains(tries, names[i]) {
			tries = append(tries, names[i])
		}
	}
	for _, name := range tries {
		whole := dumpOf(states[name]())
		tried += checkOmissions(t, name, whole, slices.Concat(kindOmissions(whole), objectOmissions(whole, random, testenv.EveryCase())), broken)
	}
	if tried < 200 {
		t.Errorf("only %d omissions were tried", tried)
	}
	for _, key := range slices.Sorted(maps.Keys(broken)) {
		t.Logf("%5d  %s", broken[key], key)
	}
	t.Logf("%d omissions were tried", tried)
}

// checkOmissions checks the law of [TestOmissionsAreNeverCleanNorAlarming] for omissions from a state.
// It counts violations in broken, by kind, and returns the number of omissions.
func checkOmissions(t *testing.T, name string, whole dump, omissions []omission, broken map[string]int) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dump.json")
	references := map[bool]read{false: reading(t, path, whole), true: reading(t, path, whole.snapshot())}
	for _, o := range omissions {
		partial, reference := reading(t, path, o.dump), references[o.dump.counts != nil]
		found := partial.violations(reference, o)
		if o.unnoticed {
			found = partial.carriedOut(reference)
		}
		for _, v := range found {
			key := o.how + " " + o.what + ": " + v.kind
			if broken[key]++; broken[key] <= 3 {
				t.Errorf("%s: %s %s (%s): %s: %s", name, o.how, o.what, o.object, v.kind, v.text)
			}
		}
	}
	return len(omissions)
}

// drawnDump is a dump of a random state.
type drawnDump struct{ seed, state uint64 }

// checkDrawn checks the law of [TestOmissionsAreNeverCleanNorAlarming] for all omissions from a random
// state, or for one. It returns the number of omissions.
func checkDrawn(t *testing.T, d drawnDump, only string, broken map[string]int) int {
	t.Helper()
	random := rand.New(rand.NewPCG(d.seed, d.state))
	draw := []func(*rand.Rand) string{statedsl.Tight, statedsl.Rare, statedsl.Limited}[d.state%3]
	snap, err := statedsl.Parse(draw(random))
	if err != nil {
		t.Fatal(err)
	}
	whole := dumpOf(snap)
	if whole.read(t, filepath.Join(t.TempDir(), "dump.json")).Gaps != nil {
		return 0 // it seems to lack something
	}
	omissions := slices.DeleteFunc(slices.Concat(kindOmissions(whole), objectOmissions(whole, random, only != "" || testenv.EveryCase())), func(o omission) bool {
		return only != "" && o.how+" "+o.what != only
	})
	for i, o := range omissions {
		// Without a namespace, a dump with one pool a family is complete; here some namespaces ask for others.
		omissions[i].unnoticed = o.unnoticed || o.how == "no" && o.what == string(blocks.Namespaces)
	}
	return checkOmissions(t, fmt.Sprintf("random state %d of seed %d", d.state, d.seed), whole, omissions, broken)
}

// TestOmissionsFromRandomStates tries a sample of random states.
func TestOmissionsFromRandomStates(t *testing.T) {
	var all []drawnDump
	for i := range uint64(600) {
		all = append(all, drawnDump{1, i})
	}
	broken, tried := map[string]int{}, 0
	for _, d := range testenv.Sample(t, 8, all) {
		tried += checkDrawn(t, d, "", broken)
	}
	if tried < 50 {
		t.Errorf("only %d omissions were tried", tried)
	}
	for _, key := range slices.Sorted(maps.Keys(broken)) {
		t.Logf("%5d  %s", broken[key], key)
	}
	t.Logf("%d omissions were tried", tried)
}

// TestOmissionsThatBrokeOnce tries omissions from random states that broke the law once.
func TestOmissionsThatBrokeOnce(t *testing.T) {
	for _, x := range []struct {
		dump     drawnDump
		omission string
	}{
		{drawnDump{1, 14}, "undecodable one of ippools"},
		{drawnDump{1, 23}, "undecodable field of blockaffinities"},
		{drawnDump{1, 25}, "undecodable one of pods"},
		{drawnDump{1, 32}, "undecodable field of blockaffinities"},
		{drawnDump{1, 60}, "undecodable field of blockaffinities"},
		{drawnDump{1, 86}, "undecodable field of blockaffinities"},
		{drawnDump{1, 110}, "undecodable one of ippools"},
		{drawnDump{1, 126}, "refused clusterinformations"},
		{drawnDump{1, 126}, "undecodable one of clusterinformations"},
		{drawnDump{1, 178}, "undecodable one of pods"},
		{drawnDump{1, 203}, "undecodable one of blockaffinities"},
		{drawnDump{1, 205}, "undecodable one of ippools"},
		{drawnDump{1, 210}, "refused blockaffinities"},
		{drawnDump{1, 257}, "undecodable one of ipamblocks"},
		{drawnDump{1, 259}, "undecodable one of ippools"},
		{drawnDump{1, 508}, "undecodable one of ippools"},
		{drawnDump{1, 514}, "undecodable one of ipamblocks"},
		{drawnDump{2, 13}, "undecodable one of pods"},
		{drawnDump{2, 147}, "refused clusterinformations"},
		{drawnDump{2, 285}, "snapshot without one of blockaffinities"},
		{drawnDump{2, 340}, "undecodable one of ipamblocks"},
		{drawnDump{2, 370}, "undecodable one of blockaffinities"},
		{drawnDump{3, 49}, "undecodable one of pods"},
		{drawnDump{3, 79}, "cut off blockaffinities"},
		{drawnDump{3, 544}, "undecodable one of ippools"},
		{drawnDump{3, 553}, "cut off blockaffinities"},
		{drawnDump{11, 189}, "undecodable one of pods"},
		{drawnDump{11, 313}, "undecodable field of ipamblocks"},
		{drawnDump{11, 466}, "undecodable field of blockaffinities"},
		{drawnDump{12, 16}, "undecodable one of blockaffinities"},
		{drawnDump{12, 151}, "no blockaffinities"},
	} {
		if checkDrawn(t, x.dump, x.omission, map[string]int{}) == 0 {
			t.Errorf("random state %d of seed %d has no omission %q", x.dump.state, x.dump.seed, x.omission)
		}
	}
}

// stored are members that every object in a cluster has. Other members may be absent, and then have a
// default.
var stored = []string{
	"ippools spec.cidr",
	"ipamblocks spec.cidr", "ipamblocks spec.allocations", "ipamblocks spec.attributes", "ipamblocks spec.sequenceNumber",
	"blockaffinities spec.cidr", "blockaffinities spec.node", "blockaffinities spec.state",
	"ipamhandles spec.handleID", "ipamhandles spec.block",
	"ipamconfigs spec.strictAffinity", "ipamconfigs spec.autoAllocateBlocks", "kubecontrollersconfigurations spec.controllers",
	"bgppeers spec.peerIP", "bgppeers spec.peerSelector", "pods status.phase",
}

// TestFilteredMembers removes a member from all objects of a kind, as jq or a plug-in of kubectl does.
// The law of [TestOmissionsAreNeverCleanNorAlarming] holds if each object in a cluster has the member.
// No dump shows that another member was removed; no step may be carried out on the complete cluster.
func TestFilteredMembers(t *testing.T) {
	states, path := drawnStates(t), filepath.Join(t.TempDir(), "dump.json")
	broken, tried := map[string]int{}, 0
	for _, name := range testenv.Sample(t, 6, slices.Sorted(maps.Keys(states))) {
		whole := dumpOf(states[name]())
		reference := reading(t, path, whole)
		for member, filtered := range whole.filtered() {
			tried++
			partial := reading(t, path, filtered)
			found := partial.carriedOut(reference)
			if slices.Contains(stored, member) {
				found = append(found, partial.violations(reference, omission{})...)
			}
			for _, v := range found {
				key := member + ": " + v.kind
				if broken[key]++; broken[key] <= 3 {
					t.Errorf("%s: without %s: %s: %s", name, member, v.kind, v.text)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(broken)) {
		t.Logf("%5d  %s", broken[key], key)
	}
	t.Logf("%d omissions were tried", tried)
}

// filtered returns the dump without a member of all objects of a kind, by kind and member.
func (d dump) filtered() map[string]dump {
	out := map[string]dump{}
	for _, o := range d.objects {
		k := kindOf(o)
		if k == nil || k.Foreign != "" {
			continue
		}
		for _, part := range []string{"metadata", "spec", "status"} {
			members, _ := o[part].(map[string]any)
			for member := range members {
				name := string(k.Resource) + " " + part + "." + member
				if _, done := out[name]; done || part == "metadata" && member != "labels" && member != "annotations" {
					continue
				}
				less := d.without(func(map[string]any) bool { return false })
				for i, o := range less.objects {
					if fields, _ := o[part].(map[string]any); kindOf(o) == k && fields[member] != nil {
						fields = maps.Clone(fields)
						delete(fields, member)
						less = less.with(i, part, fields)
					}
				}
				out[name] = less
			}
		}
	}
	return out
}

// TestUnreadableObjects checks the law of [TestOmissionsAreNeverCleanNorAlarming] for single fields
// that broke it once. It does not depend on the day's sample.
func TestUnreadableObjects(t *testing.T) {
	states, path := drawnStates(t), filepath.Join(t.TempDir(), "dump.json")
	for _, x := range []struct{ state, object, field string }{
		{"consolidate.txt, Without the consent nothing is cordoned, and so nothing is begun", "Pod shop/web-2", "status.conditions.0.status"},
		{"node_no_block.txt, critical: blocks are left for one pod that waits, and none for another", "Pod shop/c", "spec"},
		{"record_ip.txt, a handle that is missing, and that others are recorded under, is created first", "IPAMBlock 10-0-0-0-26", "spec"},
		{"record_ip.txt, a handle that is marked deleted", "IPAMHandle k8s-pod-network.a", "spec"},
		{"pod_waiting.txt, warning: the owner of the address is ending on a node that answers", "Node n1", "status.conditions.0.status"},
		{"block_empty.txt, a block without its affinity does not count as kept", "BlockAffinity n1-10.0.0.64-26", "spec.cidr"},
	} {
		t.Run(x.object+" "+x.field, func(t *testing.T) {
			if states[x.state] == nil {
				t.Fatalf("no state %q", x.state)
			}
			whole := dumpOf(states[x.state]())
			i := slices.IndexFunc(whole.objects, func(o map[string]any) bool { return fmt.Sprint(o["kind"], " ", nameOf(o)) == x.object })
			if i < 0 {
				t.Fatalf("%s has no %s", x.state, x.object)
			}
			part, rest, _ := strings.Cut(x.field, ".")
			partial := reading(t, path, whole.with(i, part, spoil(whole.objects[i][part], strings.FieldsFunc(rest, func(c rune) bool { return c == '.' }))))
			for _, v := range partial.violations(reading(t, path, whole), omission{corrupt: true, required: true}) {
				t.Errorf("%s: %s", v.kind, v.text)
			}
		})
	}
}

// spoil returns a copy of a value with the field at a path changed to another type.
func spoil(value any, field []string) any {
	if len(field) == 0 {
		return 5
	}
	switch v := value.(type) {
	case map[string]any:
		v = maps.Clone(v)
		v[field[0]] = spoil(v[field[0]], field[1:])
		return v
	case []any:
		i, _ := strconv.Atoi(field[0])
		v = slices.Clone(v)
		v[i] = spoil(v[i], field[1:])
		return v
	}
	panic(fmt.Sprintf("%v has no field %v", value, field))
}

// dump holds the files' data about a cluster.
type dump struct {
	objects []map[string]any
	// empty are the kinds with a List without items in the files.
	empty map[*decode.Kind]bool
	// counts are the counts of a saved snapshot; nil makes a plain dump.
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

// dumpOf returns a plain dump of a state, with an empty List for each kind without an object.
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

// without returns the dump without the objects for which drop returns true.
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

func (d dump) read(t *testing.T, path string) *blocks.Snapshot {
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
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := files.ReadFiles([]string{path}, files.FileOptions{})
	if err != nil {
		return nil // as an input without any object
	}
	if d.counts != nil && len(s.Cluster.Assumes) > 0 {
		t.Errorf("although a snapshot counts its objects is assumed: %q", s.Cluster.Assumes)
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

// omission is a dump that lacks something.
type omission struct {
	how, what string
	// object is the missing object, if it is a single one.
	object string
	dump   dump
	// corrupt is true if the object cannot be decoded.
	corrupt bool
	// assumed is true if a missing kind is assumed to be absent; required, if the reading must be
	// incomplete.
	assumed, required bool
	// unnoticed is true if the object looks deleted.
	unnoticed bool
}

// assumedAbsent are the kinds that files may lack.
var assumedAbsent = []blocks.Resource{
	blocks.Reservations, blocks.BGPFilters, blocks.ClusterInfos, blocks.FelixConfigs, blocks.ControllerConfig,
	blocks.VMs, blocks.VMInstances,
}

// alwaysNeeded are the kinds without which a dump is incomplete.
var alwaysNeeded = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs}

// assumesAbsent reports whether the contract allows a dump without a kind. A Whereabouts kind may
// be missing only if all of them are.
func (d dump) assumesAbsent(k *decode.Kind) bool {
	switch {
	case k.Foreign == "":
		return slices.Contains(assumedAbsent, k.Resource)
	case k.Resource == blocks.NodeSlicePools: // unless a network attachment gives slices to nodes
		return !slices.ContainsFunc(d.objects, func(o map[string]any) bool { return strings.Contains(fmt.Sprint(o["spec"]), "node_slice_size") })
	}
	return !slices.ContainsFunc(d.objects, func(o map[string]any) bool {
		other := kindOf(o)
		return other != nil && other != k && other.Foreign == decode.KindOf(blocks.WhereaboutsPools).Foreign
	})
}

// kindOmissions returns the ways to lose one kind, or one namespace's pods. An API server that does
// not serve a kind leaves the same gap as one that refuses it.
func kindOmissions(d dump) (out []omission) {
	for _, k := range decode.Kinds {
		if d.count(k) == 0 {
			continue
		}
		r := k.Resource
		of := func(o map[string]any) bool { return kindOf(o) == k }
		half := func(d dump) dump {
			nth := 0
			return d.without(func(o map[string]any) bool {
				if of(o) {
					nth++
				}
				return of(o) && nth%2 == 1
			})
		}
		out = append(out, omission{how: "no", what: string(r), dump: d.without(of).lists(k, false), assumed: d.assumesAbsent(k), required: slices.Contains(alwaysNeeded, r)})
		refused := d.without(of).lists(k, true)
		refused.refused = map[blocks.Resource]bool{r: true}
		cut := half(d)
		cut.refused = refused.refused
		out = append(out, omission{how: "refused", what: string(r), dump: refused, required: true}, omission{how: "cut off", what: string(r), dump: cut, required: true},
			omission{how: "snapshot without any of", what: string(r), dump: d.snapshot().without(of), required: true},
			omission{how: "snapshot with half of", what: string(r), dump: half(d.snapshot()), required: true})
	}
	for _, ns := range d.namespacesOfPods() {
		out = append(out, omission{how: "no pods of", what: "one namespace", object: ns, dump: d.without(func(o map[string]any) bool {
			meta, _ := o["metadata"].(map[string]any)
			return o["kind"] == "Pod" && meta["namespace"] == ns
		}).lists(decode.KindOf(blocks.Pods), false)})
	}
	return out
}

// objectOmissions returns the ways to lose one object: a random one of each kind, or each.
func objectOmissions(d dump, random *rand.Rand, each bool) (out []omission) {
	of := map[*decode.Kind][]int{}
	for i, o := range d.objects {
		if k := kindOf(o); k != nil {
			of[k] = append(of[k], i)
		}
	}
	for _, k := range decode.Kinds {
		places := of[k]
		if len(places) > 1 && !each {
			places = []int{places[random.IntN(len(places))]}
		}
		for _, i := range places {
			o := omission{what: string(k.Resource), object: nameOf(d.objects[i])}
			add := func(how string, dump dump, corrupt, unnoticed bool) {
				o.how, o.dump, o.corrupt, o.unnoticed = how, dump, corrupt, unnoticed
				o.required = how != "undecodable field of" && k.Resource != blocks.NetworkAttachments && // anyone may write those
					(k.Resource != blocks.IPAMConfigs || nameOf(d.objects[i]) == "default") // others do not count
				out = append(out, o)
			}
			less := d.without(func(map[string]any) bool { return false })
			less.objects = slices.Delete(less.objects, i, i+1)
			saved := less
			saved.counts = d.snapshot().counts
			add("snapshot without one of", saved, false, false)
			add("without one of", less.lists(k, len(of[k]) == 1), false, true)
			for _, part := range []string{"spec", "status"} {
				if d.objects[i][part] == nil {
					continue
				}
				if (part == "status") == (k.Resource == blocks.NodeSlicePools) {
					add("undecodable one of", d.with(i, part, "garbage"), true, false)
				}
				field, changed := garbled(d.objects[i][part], random)
				o.object = nameOf(d.objects[i]) + " " + part + field
				add("undecodable field of", d.with(i, part, changed), true, false)
			}
		}
	}
	return out
}

// nameOf returns the name of an object, with its namespace.
func nameOf(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	return strings.TrimPrefix(fmt.Sprint(meta["namespace"], "/", meta["name"]), "<nil>/")
}

// with returns the dump with another value in a field of one object.
func (d dump) with(i int, field string, value any) dump {
	d.objects = slices.Clone(d.objects)
	d.objects[i] = maps.Clone(d.objects[i])
	d.objects[i][field] = value
	return d
}

// garbled returns a copy of a value with one random field changed to another type, and the path of
// that field.
func garbled(value any, random *rand.Rand) (path string, out any) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) > 0 {
			key := slices.Sorted(maps.Keys(v))[random.IntN(len(v))]
			v = maps.Clone(v)
			path, v[key] = garbled(v[key], random)
			return "." + key + path, v
		}
	case []any:
		if i := random.IntN(len(v) + 1); i < len(v) {
			v = slices.Clone(v)
			path, v[i] = garbled(v[i], random)
			return fmt.Sprintf("[%d]%s", i, path), v
		}
	case string:
		return "", map[string]any{"garbage": true}
	}
	return "", "garbage"
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

// read holds the results of a reading.
type read struct {
	unreadable bool
	state      *state.State
	report     *audit.Report
	plans      []*repair.Plan
	steps      map[string]bool
}

// reading writes a dump to a file, and returns its report and plans.
func reading(t *testing.T, path string, d dump) read {
	t.Helper()
	s := d.read(t, path)
	if s == nil {
		return read{unreadable: true}
	}
	st := state.New(s, state.Options{})
	out := read{state: st, report: audit.NewReport(st, audit.Run(st, checks.All)), steps: map[string]bool{}}
	for _, text := range []string{
		"all allow-newer without-host-evidence", "strict=true allow-newer", "strict=false allow-newer",
		"rehome cordon-full evict-singletons allow-newer", "consolidate cordon-full evict-singletons allow-newer", // "all" may postpone these
	} {
		req, _ := parseRequest(t, text)
		plan := Build(st, req)
		out.plans = append(out.plans, plan)
		for _, step := range plan.Steps {
			out.steps[step.ID] = true
		}
	}
	return out
}

// meshAssumed reports whether a check assumes a mesh because the BGPConfiguration is missing: the
// contract calls for it only if an address is borrowed.
func (o omission) meshAssumed(check string) bool {
	return check == "pool/no-route" && o.what == string(blocks.BGPConfigs)
}

// violation describes a result of a partial reading that contradicts the complete one.
type violation struct{ kind, text string }

func (r read) violations(whole read, o omission) (out []violation) {
	if r.unreadable || o.assumed { // the reading names its assumptions
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
	tolerated := slices.ContainsFunc(r.report.Gaps, func(g blocks.Gap) bool { return g.Tolerated }) // the object is listed, and makes no reading incomplete
	for _, f := range audit.Compare(whole.report, r.report).Findings {
		if f.Change == audit.Fixed && !tolerated && !o.meshAssumed(f.Check) {
			out = append(out, violation{"fixed " + f.Check, f.Severity.String() + " " + f.Subject.ID()})
		}
	}
	for print, f := range had {
		if has[print] != nil && has[print].Severity >= f.Severity || tolerated || o.meshAssumed(f.Check) {
			continue
		}
		switch explained := slices.ContainsFunc(r.report.SkippedChecks, func(s audit.Skipped) bool { return s.Check == f.Check }); {
		case r.report.Complete && !explained:
			out = append(out, violation{"lost " + f.Check, f.Severity.String() + " " + f.Subject.ID() + ", and the report is complete"})
		case r.report.Complete:
			out = append(out, violation{"complete without " + f.Check, f.Severity.String() + " " + f.Subject.ID()})
		}
	}
	if r.report.Complete && len(out) == 0 && o.required && len(r.report.Gaps) == 0 {
		out = append(out, violation{"complete", "no finding is lost"})
	}
	return out
}

// carriedOut returns the steps that an apply would carry out on the complete cluster although the
// complete cluster's own plans lack them.
func (r read) carriedOut(whole read) (out []violation) {
	for _, plan := range r.plans {
		for i := range plan.Steps {
			s := &plan.Steps[i]
			if whole.steps[s.ID] {
				continue
			}
			kind := KindOf(s.Kind)
			derived, _ := Derive(whole.state, plan.Request, s.ID)
			if derived == nil || kind.Restores && !Stands(s, whole.state) || !derived.SameTarget(s) || kind.Changed(whole.state, s, derived) != "" {
				continue
			}
			out = append(out, violation{"carries out " + string(s.Kind), s.ID})
		}
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
