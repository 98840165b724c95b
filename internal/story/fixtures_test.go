package story

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// fixture is a cluster state from the testdata of a check that fires on it.
type fixture struct {
	check, name string
	objects     []map[string]any
	at          string
	snap        *blocks.Snapshot
	// files is false if the state is possible in a cluster but cannot be dumped to files
	// completely.
	files bool
	// vms is true if addresses of virtual machines are recorded, which a cluster without KubeVirt
	// cannot report on completely.
	vms bool
}

func (f *fixture) String() string { return f.check + "/" + strings.ReplaceAll(f.name, " ", "_") }

// fixtures returns all states that make a check fire and that API objects can express.
func fixtures(t *testing.T) (out []*fixture) {
	t.Helper()
	for _, path := range testdata(t, "checks/*.txt") {
		group, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".txt"), "_")
		out = append(out, read(t, path, group+"/"+strings.ReplaceAll(name, "_", "-"))...)
	}
	if len(out) < 100 {
		t.Fatalf("there are only %d states", len(out))
	}
	return out
}

// incidents returns the states of incidents and of diagnoses that API objects can express.
func incidents(t *testing.T) (out []*fixture) {
	t.Helper()
	for _, path := range testdata(t, "*.txt") {
		out = append(out, read(t, path, strings.TrimSuffix(filepath.Base(path), ".txt"))...)
	}
	out = slices.DeleteFunc(out, func(f *fixture) bool { return len(f.report().Findings) == 0 })
	if len(out) < 50 {
		t.Fatalf("there are only %d incidents", len(out))
	}
	return out
}

func testdata(t *testing.T, pattern string) []string {
	t.Helper()
	root, err := programs.ModuleRoot()
	must(t, err)
	paths, err := filepath.Glob(filepath.Join(root, "audit/checks/testdata", pattern))
	must(t, err)
	return paths
}

// read reads the states of a file.
func read(t *testing.T, path, check string) (out []*fixture) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	for _, one := range strings.Split("\n"+string(raw), "\n== ")[1:] {
		name, rest, _ := strings.Cut(one, "\n")
		text, want, _ := strings.Cut(rest, "-- want\n")
		if strings.HasPrefix(text, "unread ") {
			continue
		}
		snap, err := statedsl.Parse(text)
		must(t, err)
		unread := snap.Clone()
		unread.NoteUnreadVMs() // VirtualMachineInstances are not in the files
		objects := snap.Clone()
		objects.Hosts = blocks.HostReading{}
		if strings.TrimSpace(want) == "" || strings.HasPrefix(want, "skipped") || !statedsl.HasObjectsOnly(objects) {
			continue
		}
		out = append(out, &fixture{check, name, statedsl.Manifest(snap), snap.Cluster.TakenAt.Format(time.RFC3339), snap,
			// Objects created after the dump are an error in files.
			len(snap.Nodes) > 0 && len(snap.Pools) > 0 && !strings.Contains(text, "future") && len(unread.Gaps) == 0, len(unread.Gaps) > 0})
	}
	return out
}

// live reports whether a test cluster can have the state. Whereabouts and Multus are not installed, and
// no agents run.
func (f *fixture) live() bool {
	foreign := slices.ContainsFunc(f.objects, func(o map[string]any) bool {
		_, err := resourceOf(fmt.Sprint(o["kind"]))
		return err != nil || strings.HasPrefix(fmt.Sprint(o["apiVersion"]), "whereabouts.")
	})
	return !foreign && !f.snap.Hosts.Asked && f.check != "config/migration" && !f.vms
}

// report returns the report on the state without a cluster.
func (f *fixture) report() *audit.Report {
	st := state.New(f.snap.Clone(), state.Options{})
	return audit.NewReport(st, audit.Run(st, checks.All))
}

// write writes the state to files in dir, and returns the flags that read them.
func (f *fixture) write(t *testing.T, dir string) []string {
	t.Helper()
	flags := []string{"-f", "state.json", "--at", f.at}
	for _, v := range f.snap.Hosts.Views {
		if !slices.Contains(flags, "--host-views") {
			flags = append(flags, "--host-views", "views")
		}
		text, err := json.Marshal(v)
		must(t, err)
		must(t, os.MkdirAll(filepath.Join(dir, "views"), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "views", v.Node+".json"), text, 0o600))
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": statedsl.Lists(slices.Clone(f.objects))})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "state.json"), text, 0o600))
	return flags
}

// load replaces the cluster's state with this one. It writes to etcd directly because the
// API server would set new creation times.
func (f *fixture) load(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	must(t, c.Reset(t.Context()))
	for _, content := range f.objects {
		text, err := json.Marshal(content)
		must(t, err)
		u := &unstructured.Unstructured{}
		must(t, u.UnmarshalJSON(text))
		resource, err := resourceOf(u.GetKind())
		must(t, err)
		u.SetResourceVersion("")
		if u.GetUID() != "" { // Calico's client rejects other UIDs
			sum := sha256.Sum256([]byte(u.GetUID()))
			u.SetUID(types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])))
		}
		if u.GetKind() == "ClusterInformation" && u.GetUID() == "" {
			u.SetUID("5ca1ab1e-0ddb-4115-8a1a-b1e0ddba1150")
		}
		if created := u.GetCreationTimestamp(); created.IsZero() && u.GetKind() == "ClusterInformation" { // calicoctl does not update objects without a creation time
			u.SetCreationTimestamp(metav1.NewTime(f.snap.Cluster.TakenAt))
		}
		if u.GetKind() == "BlockAffinity" { // Calico finds affinities by this name only
			must(t, asCalicos(u))
		}
		var object runtime.Object = u
		if typed := coreObject(u.GetKind()); typed != nil {
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed))
			object = typed
		}
		must(t, c.Store(t.Context(), resource, object))
	}
}

// asCalicos gives an affinity the name and labels that Calico uses to find it.
func asCalicos(u *unstructured.Unstructured) error {
	var a libapi.BlockAffinity
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
		return err
	}
	if cidr, err := netip.ParsePrefix(a.Spec.CIDR); err == nil && a.Spec.Type != "virtual" {
		u.SetName(blocks.AffinityName(a.Spec.Node, cidr))
	}
	if u.GetLabels() != nil { // some fixtures omit the labels, like affinities after an upgrade
		model.EnsureBlockAffinityLabels(&a)
		u.SetLabels(a.Labels)
	}
	return nil
}

func resourceOf(kind string) (testcluster.Resource, error) {
	all := slices.Concat(testcluster.CRDv1.Resources(), testcluster.Core, []testcluster.Resource{testcluster.Services, testcluster.Events})
	i := slices.IndexFunc(all, func(r testcluster.Resource) bool { return r.Kind == kind })
	if i < 0 {
		return testcluster.Resource{}, fmt.Errorf("no resource of kind %s", kind)
	}
	return all[i], nil
}

// coreObject returns a new object of a Kubernetes core kind, or nil for custom resources.
// The API server stores core kinds as protobuf instead of JSON.
func coreObject(kind string) interface {
	runtime.Object
	metav1.Object
} {
	switch kind {
	case "Namespace":
		return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	case "Node":
		return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	case "Pod":
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	case "Service":
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	case "Event":
		return &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	}
	return nil
}
