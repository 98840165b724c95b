package files

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

func recorder(t *testing.T) *Recorder {
	t.Helper()
	r, err := NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
			t.Errorf("%s is left behind: %v", r.dir, err)
		}
	})
	return r
}

// save writes the recorded objects of a snapshot to a file.
func save(t *testing.T, r *Recorder, s *blocks.Snapshot, o SaveOptions) (path string, names alias.Names) {
	t.Helper()
	var text bytes.Buffer
	names, err := r.Save(s, o, func(object []byte) error {
		if !json.Valid(object) || bytes.ContainsAny(object, "\n\r") {
			t.Errorf("no JSON on one line: %s", object)
		}
		text.Write(object)
		return text.WriteByte('\n')
	})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, names
}

// recorded reads files, saves them, and reads the saved snapshot.
func recorded(t *testing.T, o SaveOptions, paths ...string) (before, after *blocks.Snapshot, path string) {
	t.Helper()
	r := recorder(t)
	before, err := ReadFiles(paths, FileOptions{Record: r})
	if err != nil {
		t.Fatal(err)
	}
	path, _ = save(t, r, before, o)
	after, _ = read(t, path)
	return before, after, path
}

// sameSnapshot compares snapshots, except for the sources of gaps.
func sameSnapshot(t *testing.T, what string, want, got *blocks.Snapshot) {
	t.Helper()
	options := cmp.Options{equal, cmpopts.IgnoreFields(blocks.Gap{}, "Source"), cmpopts.IgnoreFields(blocks.Cluster{}, "Datastore", "Live")}
	if d := cmp.Diff(want, got, options); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func examples(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../../examples/snapshots/*")
	if err != nil || len(found) < 4 {
		t.Fatal(err, found)
	}
	return found
}

// A saved cluster reads as the same snapshot.
func TestSavedIsWhatWasRead(t *testing.T) {
	for _, example := range examples(t) {
		before, after, path := recorded(t, SaveOptions{}, example)
		sameSnapshot(t, example, before, after)
		again, twice, second := recorded(t, SaveOptions{}, path)
		sameSnapshot(t, example+", saved from its snapshot", again, twice)
		first, err := os.ReadFile(path)
		must(t, err)
		text, err := os.ReadFile(second)
		must(t, err)
		// The first line names the source, which differs.
		_, first, _ = bytes.Cut(first, []byte("\n"))
		_, text, _ = bytes.Cut(text, []byte("\n"))
		if !bytes.Equal(first, text) {
			t.Errorf("%s: saved from its snapshot it differs:\n%s", example, cmp.Diff(string(first), string(text)))
		}
	}
}

// Gaps survive saving. Gaps within an object are found again there, once.
func TestSavedGaps(t *testing.T) {
	before, after, path := recorded(t, SaveOptions{}, dir(t, map[string]string{
		"pool.yaml": poolYAML, "block.yaml": blockYAML, "bad.yaml": strings.Replace(blockYAML, "10.0.0.0/26", "10.0.0.64/x", 1),
		"config.yaml": "apiVersion: crd.projectcalico.org/v1\nkind: IPAMConfig\nmetadata: {name: default}\nspec: {strictAffinity: maybe}\n",
	}))
	sameSnapshot(t, "saved", before, after)
	if len(before.Gaps) != 6 {
		t.Errorf("gaps %v, want those of affinities, handles, nodes, pods, a block and the configuration", before.Gaps)
	}
	for _, line := range firstLines(t, path, 1) {
		var info savedInfo
		must(t, json.Unmarshal([]byte(line), &info))
		if info.Kind != infoKind || info.APIVersion != blocks.APIVersion || len(info.Gaps) != 4 || info.TakenAt == "" || info.Datastore != "files" {
			t.Errorf("%+v", info)
		}
	}
	text, err := os.ReadFile(path)
	must(t, err)
	const ours, strange = "kubectl get --raw /api", "curl http://example.com"
	s, _ := read(t, dir(t, map[string]string{"strange.json": strings.ReplaceAll(string(text), ours, strange)}))
	if !strings.Contains(string(text), ours) || !slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return strings.HasPrefix(g.Read, ours) }) ||
		slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return strings.Contains(g.Read, strange) }) {
		t.Errorf("commands of a file that a stranger wrote: %+v", s.Gaps)
	}
}

func firstLines(t *testing.T, path string, n int) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitN(string(text), "\n", n+1)[:n]
}

// A saved snapshot records that a complete reading found no objects of a kind.
func TestSavedEmptyKinds(t *testing.T) {
	r := recorder(t)
	r.of(blocks.Blocks).Object(decode.GroupCRD, decode.Object{Text: []byte(`{"metadata":{"name":"10-0-0-0-26"},"spec":{"cidr":"10.0.0.0/26","allocations":[],"unallocated":[],"attributes":[]}}`)})
	s := &blocks.Snapshot{Cluster: blocks.Cluster{Live: true, TakenAt: at("2026-01-01T00:00:00.5Z")}}
	path, _ := save(t, r, s, SaveOptions{})
	got, warnings := read(t, path)
	if len(got.Gaps)+len(warnings) > 0 || len(got.Blocks) != 1 || !got.Cluster.TakenAt.Equal(s.Cluster.TakenAt) {
		t.Errorf("gaps %v, warnings %q, %d blocks, taken at %s", got.Gaps, warnings, len(got.Blocks), got.Cluster.TakenAt)
	}
}

// Saved objects contain no data beyond an audit's needs.
func TestSavedIsSparse(t *testing.T) {
	_, _, path := recorded(t, SaveOptions{}, dir(t, map[string]string{"all.yaml": poolYAML + "---\n" + nodeYAML + `---
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: ns
  labels: {app: secret-1}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: secret-2, cni.projectcalico.org/podIP: 10.0.0.1/32}
  managedFields: [{manager: secret-3, time: "2026-01-01T00:00:00Z"}]
  ownerReferences: [{name: secret-4}]
spec: {nodeName: n1, containers: [{name: secret-5, env: [{name: A, value: secret-6}]}]}
status: {phase: Running, message: secret-7, containerStatuses: [{image: secret-8}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2, annotations: {example.org/x: secret-9}, labels: {kept-label: "1"}}
spec: {providerID: secret-10, externalID: secret-11, taints: [{key: kept-taint, value: kept-value, effect: NoSchedule}]}
status: {nodeInfo: {machineID: secret-12, operatingSystem: linux}, images: [{names: [secret-13]}]}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata:
  name: other
  annotations: {projectcalico.org/metadata: '{"annotations":{"a":"secret-14"}}', projectcalico.org/kept-annotation: "1"}
  labels: {app: secret-15, app.kubernetes.io/managed-by: kept-manager-2}
  managedFields: [{manager: kept-manager, operation: Apply, fieldsV1: {"f:secret-16": {}}, time: "2026-01-01T00:00:00Z"}]
spec: {cidr: 10.1.0.0/24, newField: {kept-field: 12345678901234567890}}
---
apiVersion: crd.projectcalico.org/v1
kind: KubeControllersConfiguration
metadata: {name: default}
spec: {controllers: {node: {leakGracePeriod: 5m}}}
status: {environmentVars: {A: secret-17}}
---
apiVersion: v1
kind: Secret
metadata: {name: secret-18}
data: {a: c2VjcmV0}
`}))
	text, err := os.ReadFile(path)
	must(t, err)
	if i := bytes.Index(text, []byte("secret-")); i >= 0 {
		t.Errorf("it holds %s", text[i:i+9])
	}
	for _, want := range []string{"kept-label", "kept-taint", "kept-value", "kept-annotation", "kept-manager", "kept-manager-2", `"newField":{"kept-field":12345678901234567890}`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("it lacks %s", want)
		}
	}
}

// A full disk or deleted files are an error, not a shorter snapshot.
func TestSaveFails(t *testing.T) {
	r := recorder(t)
	must(t, os.RemoveAll(r.dir))
	s, err := ReadFiles([]string{examples(t)[0]}, FileOptions{Record: r})
	must(t, err)
	if _, err := r.Save(s, SaveOptions{}, func([]byte) error { return nil }); err == nil {
		t.Error("no error though nothing could be kept")
	}
}
