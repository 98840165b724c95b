package files

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// dir creates a directory of files and returns its path.
func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// read reads files, which must be valid, and returns the warnings.
func read(t *testing.T, paths ...string) (*blocks.Snapshot, []string) {
	t.Helper()
	var warnings []string
	s, err := ReadFiles(paths, FileOptions{WarnIgnored: true, Warn: func(w string) { warnings = append(warnings, w) }})
	if err != nil {
		t.Fatal(err)
	}
	return s, warnings
}

// A cluster of one node, pool, block and pod, object by object.
const (
	poolYAML = `apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: pods, creationTimestamp: "2025-11-20T10:00:00Z"}
spec: {cidr: 10.0.0.0/24, natOutgoing: true}
`
	blockYAML = `apiVersion: crd.projectcalico.org/v1
kind: IPAMBlock
metadata:
  name: 10-0-0-0-26
  resourceVersion: "7"
spec:
  cidr: 10.0.0.0/26
  affinity: host:n1
  allocations: [0, null]
  unallocated: [1]
  attributes:
  - handle_id: h1
    secondary:
      namespace: ns
      node: n1
      pod: p1
      timestamp: 2025-11-20 12:00:00.5 +0000 UTC
  sequenceNumber: 18446744073709551615
`
	affinityYAML = `apiVersion: crd.projectcalico.org/v1
kind: BlockAffinity
metadata: {name: n1-10-0-0-0-26}
spec: {cidr: 10.0.0.0/26, node: n1, type: host, state: confirmed, deleted: "false"}
`
	handleYAML = `apiVersion: crd.projectcalico.org/v1
kind: IPAMHandle
metadata: {name: h1}
spec: {handleID: h1, block: {10.0.0.0/26: 1}}
`
	nodeYAML = `apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {pods: "110"}}
`
	podYAML = `apiVersion: v1
kind: Pod
metadata: {name: p1, namespace: ns}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.0.0.0}]}
`
)

const configYAML = `apiVersion: crd.projectcalico.org/v1
kind: IPAMConfig
metadata:
  name: default
  creationTimestamp: "2025-11-20T10:00:00Z"
spec:
  strictAffinity: false
  autoAllocateBlocks: true
`

var clusterYAML = []string{poolYAML, blockYAML, affinityYAML, handleYAML, nodeYAML, podYAML, configYAML}

func clusterJSON(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, y := range clusterYAML {
		j, err := yamlToJSON([]byte(y))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(j))
	}
	return out
}

func indented(objects []string, indent string) string {
	var b strings.Builder
	for _, o := range objects {
		for i, line := range strings.Split(strings.TrimSuffix(o, "\n"), "\n") {
			lead := "  "
			if i == 0 {
				lead = "- "
			}
			b.WriteString(indent + lead + line + "\n")
		}
	}
	return b.String()
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The snapshot does not depend on the format of the objects.
func TestFileForms(t *testing.T) {
	inJSON := clusterJSON(t)
	want, wantWarnings := read(t, dir(t, map[string]string{"all.yaml": strings.Join(clusterYAML, "---\n")}))
	if len(wantWarnings) != 1 || len(want.Gaps) > 0 { // the warning lists the kinds assumed absent
		t.Fatalf("warnings %v, gaps %v", wantWarnings, want.Gaps)
	}
	if len(want.Blocks) != 1 || want.Blocks[0].Sequence != 18446744073709551615 || want.Blocks[0].Attributes[0].Pod != "p1" {
		t.Fatalf("blocks %+v", want.Blocks)
	}
	if len(want.Pools) != 1 || len(want.Affinities) != 1 || len(want.Handles) != 1 || len(want.Nodes) != 1 || len(want.Workloads) != 1 {
		t.Fatalf("snapshot %+v", want)
	}
	list := "apiVersion: v1\nitems:\n" + indented(clusterYAML, "") + "kind: List\nmetadata:\n  resourceVersion: \"\"\n"
	listJSON := `{"apiVersion": "v1", "items": [` + strings.Join(inJSON, ",\n") + `], "kind": "List"}`
	one := map[string]string{}
	for i, y := range clusterYAML {
		one[fmt.Sprintf("sub/%d.yml", i)] = y
	}
	for name, files := range map[string]map[string]string{
		"a file each":                one,
		"List of kubectl, YAML":      {"a.yaml": list},
		"List, items indented":       {"a.yaml": "apiVersion: v1\nkind: List\nitems:\n\n# why\n" + indented(clusterYAML, "  ") + "# end\n"},
		"List, Windows line ends":    {"a.yaml": strings.ReplaceAll(list, "\n", "\r\n")},
		"List, byte order mark":      {"a.yaml": "\xef\xbb\xbf" + list},
		"List of kubectl, JSON":      {"a.json": listJSON},
		"List, kind first":           {"a.json": `{"kind": "List", "apiVersion": "v1", "items": [` + strings.Join(inJSON, ",") + `]}`},
		"JSON lines":                 {"a.json": strings.Join(inJSON, "\n")},
		"JSON, nothing between":      {"a.json": strings.Join(inJSON, "")},
		"JSON with YAML's markers":   {"a.json": "\n" + strings.Join(inJSON, "\n---\n")},
		"JSON in a YAML file":        {"a.yaml": "---\n" + strings.Join(inJSON, "\n---\n") + "\n...\n"},
		"a JSON list of objects":     {"a.json": "[" + strings.Join(inJSON, ",") + "]"},
		"compressed":                 {"a.yaml.gz": gzipped(t, list), ".hidden.yaml": "{", ".git/x.yaml": "{"},
		"compressed JSON":            {"a.json.gz": gzipped(t, listJSON)},
		"tar":                        {"a.tar": tarred(t, one)},
		"tar, compressed":            {"a.tar.gz": gzipped(t, tarred(t, one))},
		"tgz with a compressed file": {"a.tgz": gzipped(t, tarred(t, map[string]string{"./b/a.json.gz": gzipped(t, listJSON), "./b/._a.json": "{"}))},
		"zip":                        {"a.zip": zipped(t, one)},
		"archives in an archive":     {"a.zip": zipped(t, map[string]string{"in/a.tgz": gzipped(t, tarred(t, one)), "in/b.zip": zipped(t, one)})},
		"lists within lists": {"a.json": `{"kind": "List", "apiVersion": "v1", "items": [{"kind": "List", "apiVersion": "v1", "items": [` +
			strings.Join(inJSON[1:], ",") + `]}, ` + inJSON[0] + `]}`},
		"documents and comments": {"a.yaml": "%YAML 1.1\n---\n# nothing\n---\n" + strings.Join(clusterYAML, "\n--- # next\n") + "---\n\n---\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings := read(t, dir(t, files))
			diff(t, "warnings", wantWarnings, warnings)
			diff(t, "snapshot", want, got)
		})
	}
}

// The API server's own output (kubectl get --raw) omits the kind of items, and for some
// kinds puts the list's kind after the items.
func TestListsThatNameTheKindOnce(t *testing.T) {
	const item = `{"metadata": {"name": "n1"}}`
	for name, files := range map[string]map[string]string{
		"JSON, kind before": {"a.json": `{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [` + item + `]}`},
		"JSON, kind after":  {"a.json": `{"items": [` + item + `], "metadata": {}, "apiVersion": "v1", "kind": "NodeList"}`},
		"YAML, kind before": {"a.yaml": "kind: NodeList\napiVersion: v1\nitems:\n- metadata:\n    name: n1\n"},
		"YAML, kind after":  {"a.yaml": "items:\n- metadata:\n    name: n1\nkind: NodeList\napiVersion: v1\n"},
		"within a list":     {"a.json": `{"kind":"List","apiVersion":"v1","items":[{"kind": "NodeList", "apiVersion": "v1", "items": [` + item + `]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := read(t, dir(t, files))
			if len(s.Nodes) != 1 || s.Nodes[0].Name != "n1" {
				t.Errorf("nodes %+v", s.Nodes)
			}
		})
	}
}

// Mistakes of the caller are errors with a position.
func TestFileErrors(t *testing.T) {
	truncated := "apiVersion: v1\nitems:\n" + indented([]string{nodeYAML, podYAML}, "")
	list := truncated + "kind: List\nmetadata:\n  resourceVersion: \"\"\n"
	compressed := gzipped(t, list)
	for name, c := range map[string]struct{ file, text, want string }{
		"empty":                  {"a.yaml", "", "a.yaml: it holds no object"},
		"comments":               {"a.yaml", "# nothing\n---\n", "a.yaml: it holds no object"},
		"broken YAML":            {"a.yaml", poolYAML + "---\nkind: Node\nmetadata: {name: n1\n", "a.yaml: document 2, line 7: "},
		"broken YAML item":       {"a.yaml", "apiVersion: v1\nitems:\n- kind: Node\n- kind: Pod\n   bad: [\nkind: List\n", "a.yaml: document 1, line "},
		"YAML list cut off":      {"a.yaml", truncated, "a.yaml: document 1, line 1: a list without kind; is the file cut off?"},
		"YAML cut off":           {"a.yaml", "apiVersion: v1\nkind: Node\nmetadata:\n  name: \"n1", "a.yaml: document 1, line 4: "},
		"broken JSON":            {"a.json", "{\"kind\": \"Node\",\n \"apiVersion\" \"v1\"}", `a.json: document 1, line 2: invalid character '"' after object name (expecting ':')`},
		"broken value":           {"a.json", "{\"kind\": \"Node\",\n \"apiVersion\": \"v1\",\n\n\"spec\": {\n\"a\": tru}}", `a.json: document 1, line 5: invalid character '}' in literal true (expecting 'e')`},
		"JSON cut off":           {"a.json", "{\"kind\": \"List\", \"items\": [\n{\"kind\": \"Node\", \"apiVersion\": \"v1\", \"metadata\": {", "a.json: document 1, line 2: unexpected end of JSON input; is the file cut off?"},
		"second document":        {"a.json", "{\"kind\":\"Node\",\"apiVersion\":\"v1\"}\n{\"kind\":}", "a.json: document 2, line 2: "},
		"no kind":                {"a.yaml", "---\nname: x\n", "a.yaml: document 1, line 2: not a Kubernetes object: it has no kind"},
		"no apiVersion":          {"a.yaml", "kind: Node\n", "a.yaml: document 1, line 1: not a Kubernetes object: the Node has no apiVersion"},
		"a text":                 {"a.yaml", "hello\n", `a.yaml: document 1, line 1: not a Kubernetes object, but "hello"`},
		"numbers":                {"a.json", "[1, 2]", "a.json: document 1, line 1: not a Kubernetes object, but 1"},
		"no JSON":                {"a.json", "{]", `a.json: document 1, line 1: unexpected ']', wanted a key`},
		"gzip cut off":           {"a.json.gz", gzipped(t, strings.Repeat(" ", 5000)+"{}")[:20], "a.json.gz: unexpected EOF; is the file cut off?"},
		"gzip of YAML cut off":   {"a.yaml.gz", compressed[:len(compressed)-1], "a.yaml.gz: unexpected EOF; is the file cut off?"},
		"gzip, cut in its head":  {"a.yaml.gz", compressed[:5], "a.yaml.gz: reading gzip: unexpected EOF"},
		"two documents in one":   {"a.yaml", nodeYAML + podYAML, `a.yaml: document 1, line 5: broken YAML: the key "apiVersion" is there twice; is a line "---" missing between two documents?`},
		"two lists in one":       {"a.yaml", list + list, `the key "apiVersion" is there twice`},
		"a cut list and another": {"a.yaml", truncated + list, `the key "apiVersion" is there twice`},
		"a list cut in its kind": {"a.yaml", truncated + "kind:", "a list without kind; is the file cut off?"},
		"a list without items":   {"a.yaml", "apiVersion: v1\nkind: PodList\nmetadata:\n  resourceVersion: \"1\"\n", "a PodList without items; is the file cut off?"},
		"a List without items":   {"a.json", `{"apiVersion": "v1", "kind": "List"}`, "a List without items; is the file cut off?"},
		"no object":              {"a.yaml", "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n", "a.yaml: no object that an audit reads"},
		"no object of a kind":    {"d.json", `{"kind": "IPPoolList", "apiVersion": "crd.projectcalico.org/v1", "metadata": {}, "items": null}`, "d.json: no object that an audit reads"},
		"budgets alone":          {"a.yaml", "kind: PodDisruptionBudget\napiVersion: policy/v1\nmetadata: {name: b, namespace: shop}\n", "a.yaml: no object that an audit reads, only 1 PodDisruptionBudget object"},
		"nothing of use":         {"a.yaml", "kind: ConfigMap\napiVersion: v1\n---\nkind: Secret\napiVersion: v1\n", "no object that an audit reads, only 1 ConfigMap object, 1 Secret object"},
		"Calico's own nodes":     {"a.yaml", "kind: Node\napiVersion: projectcalico.org/v3\n", "only 1 Node object of projectcalico.org/v3"},
		"lists without end":      {"a.json", strings.Repeat(`{"kind":"List","apiVersion":"v1","items":[`, 20) + strings.Repeat(`]}`, 20), "lists within lists, more than 8 deep"},
		"an invalid snapshot":    {"a.yaml", "kind: SnapshotInfo\napiVersion: calico-audit/v1alpha1\ntakenAt: noon\n", "SnapshotInfo: takenAt is not a time in RFC 3339"},
		"a snapshot's counts":    {"a.yaml", "kind: SnapshotInfo\napiVersion: calico-audit/v1alpha1\ncounts: {pods: many}\n", "a.yaml: document 1, line 1: SnapshotInfo: counts is a string, not a number"},
		"a snapshot's gaps":      {"a.yaml", "kind: SnapshotInfo\napiVersion: calico-audit/v1alpha1\ngaps: {pods: many}\n", "SnapshotInfo: gaps is an object, not a list"},
		"a snapshot's end":       {"a.yaml", "kind: SnapshotEnd\napiVersion: calico-audit/v1alpha1\nobjects: 1.5\n", "SnapshotEnd: objects cannot be 1.5"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir(t, map[string]string{c.file: c.text}), c.file)
			s, err := ReadFiles([]string{path}, FileOptions{})
			if err == nil {
				t.Fatalf("no error, but %+v", s)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error  %v\nwant part  %s", err, c.want)
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
	empty := t.TempDir()
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{nil, "no file given"},
		{[]string{filepath.Join(empty, "missing.yaml")}, "missing.yaml: no such file or directory"},
		{[]string{empty}, "it holds no .yaml, .yml or .json file"},
	} {
		if _, err := ReadFiles(c.paths, FileOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got error %v, want %s", c.paths, err, c.want)
		}
	}
}

// A bad object does not hide the others.
func TestGarbageBesideGoodObjects(t *testing.T) {
	bad := strings.NewReplacer("name: 10-0-0-0-26", "name: 10-0-0-64-26", "cidr: 10.0.0.0/26", "cidr: ten").Replace(blockYAML)
	root := dir(t, map[string]string{"a.yaml": strings.Join(append([]string{bad}, clusterYAML...), "---\n")})
	s, _ := read(t, root)
	if len(s.Blocks) != 1 || s.Blocks[0].CIDR != prefix("10.0.0.0/26") {
		t.Errorf("blocks %+v", s.Blocks)
	}
	diff(t, "gaps", []blocks.Gap{{
		Resource: blocks.Blocks, Name: "10-0-0-64-26", Field: "spec.cidr", Reason: `"ten" is not a CIDR`,
		Source: filepath.Join(root, "a.yaml"), Prefix: prefix("10.0.0.64/26"),
		Owner: blocks.Owner{Kind: "host", Name: "n1"}, OwnerKnown: true,
	}}, s.Gaps)
}

func TestMissingKindsAreGaps(t *testing.T) {
	reasons := func(s *blocks.Snapshot) (out []string) {
		for _, g := range s.Gaps {
			out = append(out, g.String())
		}
		return out
	}
	s, warnings := read(t, dir(t, map[string]string{"a.yaml": blockYAML}))
	const noConfig = "ipamconfigs: no IPAMConfig in the files: strict affinity, automatic blocks and the limit of blocks are not known"
	rest := []string{"ippools: no IPPool in the files", "nodes: no Node in the files", "pods: no Pod in the files"}
	diff(t, "gaps", append([]string{"blockaffinities: no BlockAffinity in the files", noConfig, "ipamhandles: no IPAMHandle in the files"}, rest...), reasons(s))
	for _, g := range s.Gaps {
		if !strings.HasPrefix(g.Read, "kubectl get --raw /api") || !strings.HasSuffix(g.Read, fmt.Sprintf("/%s >%[1]s.json", g.Resource)) {
			t.Errorf("%s is read by %q", g.Resource, g.Read)
		}
	}
	assumed := "; not in the files, and assumed to have no objects: ipreservations, clusterinformations, kubecontrollersconfigurations, felixconfigurations, bgpconfigurations, bgppeers, bgpfilters, namespaces"
	if len(warnings) != 1 || !strings.Contains(warnings[0], assumed) || !strings.Contains(warnings[0], `. A file of "calico-audit snapshot" holds all kinds, as does: `+
		"for r in pods nodes namespaces; do kubectl get --raw /api/v1/$r >$r.json; done; for r in ipamhandles blockaffinities ippools ipamconfigs ") ||
		!strings.HasSuffix(warnings[0], "; do kubectl get --raw /apis/crd.projectcalico.org/v1/$r >$r.json; done") {
		t.Errorf("warnings %q", warnings)
	}

	// An undecodable block counts as a block, too.
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.ReplaceAll(blockYAML, "cidr: 10.0.0.0/26", "cidr: x") + "---\n" + nodeYAML}))
	diff(t, "gaps", []string{"ippools: no IPPool in the files", "pods: no Pod in the files"}, reasons(s)[len(reasons(s))-2:])

	// Only pools do not describe a cluster, and empty Lists show that it has no such objects.
	s, _ = read(t, dir(t, map[string]string{"a.yaml": poolYAML}))
	diff(t, "kinds that were not read", 6, len(reasons(s)))
	empty := poolYAML
	for _, kind := range []string{"IPAMBlock", "BlockAffinity", "IPAMHandle", "IPAMConfig"} {
		empty += "---\napiVersion: crd.projectcalico.org/v1\nkind: " + kind + "List\nitems: []\n"
	}
	s, _ = read(t, dir(t, map[string]string{"a.yaml": empty + "---\n" + nodeYAML + "---\napiVersion: v1\nkind: PodList\nitems: []\n"}))
	diff(t, "kinds that were not read", []string{"bgpconfigurations"}, strings.Split(strings.Join(reasons(s), ""), ":")[:1])

	// So do empty Lists after an object, in JSON.
	s, _ = read(t, dir(t, map[string]string{"a.json": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}{"apiVersion":"v1","kind":"PodList","items":[]}`}))
	diff(t, "a gap of pods", false, strings.Contains(strings.Join(reasons(s), "\n"), "pods:"))

	// A namespace's addresses are not leaks if the files hold no pod of it.
	elsewhere := strings.ReplaceAll(podYAML, "namespace: ns", "namespace: elsewhere")
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join([]string{poolYAML, blockYAML, affinityYAML, handleYAML, nodeYAML, elsewhere, configYAML}, "---\n")}))
	diff(t, "gaps", []string{`pods: blocks name pods of namespace "ns", and the files hold none of them`}, reasons(s))

	// Nor if the files hold some namespaces, but not those of their pods.
	const other, second = "apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n", "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: second}\nspec: {cidr: 10.9.0.0/24}\n"
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join([]string{poolYAML, blockYAML, affinityYAML, handleYAML, nodeYAML, elsewhere, configYAML, other}, "---\n")}))
	diff(t, "gaps", []string{`pods: blocks name pods of namespace "ns", and the files hold none of them`}, reasons(s))
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join(append([]string{second, other}, clusterYAML...), "---\n")}))
	diff(t, "gaps", []string{`namespaces: the files hold pods of namespace "ns", but not the namespace, so it is not known which pools namespaces ask for by annotation`}, reasons(s))

	// Pods or nodes were filtered by node or by label.
	daemon := func(node string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: daemon-%s, namespace: ns, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: daemon, uid: u, controller: true}]}
spec: {nodeName: %s, hostNetwork: true}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
`, node, node)
	}
	const ready = "apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {}\nstatus: {conditions: [{type: Ready, status: \"True\"}]}\n"
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join([]string{poolYAML, blockYAML, affinityYAML, handleYAML, fmt.Sprintf(ready, "n1"), fmt.Sprintf(ready, "n2"), daemon("n2"), configYAML}, "---\n")}))
	diff(t, "gaps", `pods: blocks name pods on node "n1", and the files hold none of its pods, not even of DaemonSets`, reasons(s)[1])
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join(append([]string{daemon("n2")}, clusterYAML...), "---\n")}))
	diff(t, "gaps", []string{`nodes: pod ns/daemon-n2 of a DaemonSet runs on node "n2", and the files do not hold the node`}, reasons(s))

	// Labels of namespaces matter only if a pool selects by them.
	selecting := strings.Replace(poolYAML, "natOutgoing: true", "namespaceSelector: all()", 1)
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join(append([]string{selecting}, clusterYAML[1:]...), "---\n")}))
	diff(t, "gaps", []string{"namespaces: no Namespace in the files, but a pool selects namespaces by label"}, reasons(s))

	// A BGPFilter that a peer names but the files lack may block routes.
	const peer = "apiVersion: crd.projectcalico.org/v1\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {peerIP: 10.1.1.1, asNumber: 64600, filters: [f]}\n"
	const filter = "apiVersion: crd.projectcalico.org/v1\nkind: BGPFilter\nmetadata: {name: g}\nspec: {exportV4: [{action: Reject}]}\n"
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join(append([]string{peer}, clusterYAML...), "---\n")}))
	diff(t, "gaps", []string{"bgpfilters: the files hold no BGPFilter, but a BGPPeer names one"}, reasons(s))
	s, _ = read(t, dir(t, map[string]string{"a.yaml": strings.Join(append([]string{peer, filter}, clusterYAML...), "---\n")}))
	diff(t, "gaps", []string(nil), reasons(s))
}

// TestTwoClusters: objects that live as long as their cluster show that files are of two.
func TestTwoClusters(t *testing.T) {
	for _, kind := range []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system, uid: ", "apiVersion: crd.projectcalico.org/v1\nkind: ClusterInformation\nmetadata: {name: default, uid: "} {
		one, other := poolYAML+"---\n"+kind+"one}\nspec: {}\n", kind+"other}\nspec: {}\n"
		if s, _ := read(t, dir(t, map[string]string{"a.yaml": one, "b.yaml": kind + "one}\nspec: {}\n"})); len(s.Pools) != 1 {
			t.Errorf("one cluster, read twice: %+v", s.Pools)
		}
		_, err := ReadFiles([]string{dir(t, map[string]string{"a.yaml": one, "b.yaml": other})}, FileOptions{})
		if err == nil || !strings.Contains(err.Error(), "the files are from two clusters") || !strings.Contains(err.Error(), "has the UIDs one and other; give the files of one") {
			t.Errorf("got %v", err)
		}
	}
}

// TestSettingsTwice: a setting that is in the files twice, with different UIDs, may be of another
// cluster, so neither counts. Two versions of one setting are of one cluster.
func TestSettingsTwice(t *testing.T) {
	config := func(uid, version string) string {
		return fmt.Sprintf("apiVersion: crd.projectcalico.org/v1\nkind: IPAMConfig\nmetadata: {name: default, uid: %s, resourceVersion: %q}\nspec: {strictAffinity: true, autoAllocateBlocks: true}\n", uid, version)
	}
	for uid, want := range map[string]bool{"a": false, "b": true} {
		s, _ := read(t, dir(t, map[string]string{"a.yaml": poolYAML + "---\n" + config("a", "7"), "b.yaml": config(uid, "9")}))
		gap, missing := s.Missing(blocks.IPAMConfigs)
		if missing != want || want && !strings.HasSuffix(gap.Reason, `"default" is in the files twice, with different UIDs: the files are from two clusters or from two points in time`) {
			t.Errorf("UID %s: %v %v", uid, missing, gap)
		}
	}
}

// An empty List, as kubectl prints it, is not an error if there are other objects.
func TestEmptyLists(t *testing.T) {
	want, _ := read(t, dir(t, map[string]string{"a.yaml": poolYAML}))
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
		"b.yaml": "apiVersion: v1\nitems:\nkind: List\n",
		"c.json": `{"apiVersion": "v1", "items": [], "kind": "List", "metadata": {"resourceVersion": ""}}`,
		"d.json": `{"kind": "IPReservationList", "apiVersion": "crd.projectcalico.org/v1", "metadata": {}, "items": null}`,
	} {
		got, _ := read(t, dir(t, map[string]string{name: text, "pool.yaml": poolYAML}))
		diff(t, name, want, got)
	}
}

// Directories may contain links, as in a mounted ConfigMap.
func TestLinkedFiles(t *testing.T) {
	root := dir(t, map[string]string{"..2025/all.yaml": poolYAML})
	must(t, os.Symlink("..2025", filepath.Join(root, "..data")))
	must(t, os.Symlink(filepath.Join("..data", "all.yaml"), filepath.Join(root, "all.yaml")))
	s, _ := read(t, root)
	if len(s.Pools) != 1 {
		t.Errorf("pools %+v", s.Pools)
	}
}

// TestLinkedDirectory: a path that links to a directory is read as that directory, and its
// files have names below that path. Links to directories further down are not followed.
func TestLinkedDirectory(t *testing.T) {
	for _, path := range []string{"dump", "dump/", "./dump"} {
		root := dir(t, map[string]string{"2025/all.yaml": poolYAML, "2025/sub/bad.yaml": strings.ReplaceAll(blockYAML, "cidr: 10", "cidr: x"), "2024/all.yaml": nodeYAML})
		must(t, os.Symlink("2025", filepath.Join(root, "dump")))
		must(t, os.Symlink(filepath.Join("..", "2024"), filepath.Join(root, "2025", "older")))
		must(t, os.Symlink(filepath.Join("..", "2025"), filepath.Join(root, "2025", "again")))
		t.Chdir(root)
		s, _ := read(t, path)
		if len(s.Pools) != 1 || len(s.Nodes) != 0 || len(s.Gaps) == 0 || !slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return g.Source == "dump/sub/bad.yaml" }) {
			t.Errorf("%s: pools %+v, nodes %+v, gaps %+v", path, s.Pools, s.Nodes, s.Gaps)
		}
	}
}

func TestStandardInput(t *testing.T) {
	in, out, err := os.Pipe()
	must(t, err)
	stdin := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = stdin }()
	_, err = out.WriteString(poolYAML)
	must(t, err)
	must(t, out.Close())
	s, _ := read(t, "-")
	if len(s.Pools) != 1 {
		t.Errorf("pools %+v", s.Pools)
	}
}

func TestTakenAt(t *testing.T) {
	deleting := strings.Replace(podYAML, "namespace: ns", `namespace: ns, deletionTimestamp: "2030-01-01T00:00:00Z"`, 1)
	root := dir(t, map[string]string{"a.yaml": poolYAML + "---\n" + blockYAML + "---\n" + deleting})
	s, _ := read(t, root)
	if want := at("2025-11-20T12:00:00.5Z"); !s.Cluster.TakenAt.Equal(want) {
		t.Errorf("newest time in the files: got %v, want %v", s.Cluster.TakenAt, want)
	}
	heartbeat := nodeYAML[:len(nodeYAML)-2] + `, conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2025-11-20T12:03:00Z"}]}`
	s, _ = read(t, dir(t, map[string]string{"a.yaml": poolYAML + "---\n" + heartbeat}))
	if want := at("2025-11-20T12:03:00Z"); !s.Cluster.TakenAt.Equal(want) {
		t.Errorf("a node's heartbeat: got %v, want %v", s.Cluster.TakenAt, want)
	}
	when := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("x", 3600))
	s, err := ReadFiles([]string{root}, FileOptions{At: when})
	if err != nil || !s.Cluster.TakenAt.Equal(when) || s.Cluster.TakenAt.Location() != time.UTC {
		t.Errorf("given time: got %v, %v", s.Cluster.TakenAt, err)
	}
}

func TestOneObjectTwice(t *testing.T) {
	block := func(uid, version, sequence string) string {
		return fmt.Sprintf("apiVersion: crd.projectcalico.org/v1\nkind: IPAMBlock\nmetadata: {name: b, uid: %q, resourceVersion: %q}\n"+
			"spec: {cidr: 10.0.0.0/26, allocations: [], attributes: [], unallocated: [], sequenceNumber: %s}\n", uid, version, sequence)
	}
	for name, c := range map[string]struct {
		first, second string
		want          uint64
		warns         bool
	}{
		"the newer first":                 {block("u", "10", "1"), block("u", "9", "2"), 1, false},
		"the newer second":                {block("u", "9", "1"), block("u", "10", "2"), 2, false},
		"the same twice":                  {block("u", "9", "1"), block("u", "9", "1"), 1, false},
		"no versions: the later":          {block("", "", "1"), block("", "", "2"), 2, false},
		"created again, of different UID": {block("u", "10", "1"), block("v", "9", "2"), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, warnings := read(t, dir(t, map[string]string{"a.yaml": c.first, "b.yaml": c.second}))
			if len(s.Blocks) != 1 || s.Blocks[0].Sequence != c.want {
				t.Errorf("blocks %+v, want sequence number %d", s.Blocks, c.want)
			}
			warned := strings.Contains(strings.Join(warnings, "\n"), `ipamblocks "b" is in the files twice, with different UIDs`)
			if warned != c.warns {
				t.Errorf("warnings %v", warnings)
			}
		})
	}
}

func TestBothGroupsInFiles(t *testing.T) {
	native := func(text string) string { return strings.ReplaceAll(text, decode.GroupCRD, decode.GroupNative) }
	other := strings.NewReplacer("10-0-0-0-26", "10-0-0-64-26", "10.0.0.0/26", "10.0.0.64/26").Replace(blockYAML)

	// During a migration, Calico reads the older group as long as it exists.
	s, warnings := read(t, dir(t, map[string]string{"a.yaml": blockYAML, "b.yaml": native(blockYAML), "c.yaml": native(other)}))
	if len(s.Blocks) != 1 || s.Cluster.APIGroup != decode.GroupCRD || !strings.Contains(s.Cluster.APIGroupReason, "objects of both API groups") {
		t.Errorf("%d blocks of %s: %s", len(s.Blocks), s.Cluster.APIGroup, s.Cluster.APIGroupReason)
	}
	if !strings.Contains(strings.Join(warnings, "\n"), "left out 1 ipamblocks that only the other API group has") {
		t.Errorf("warnings %v", warnings)
	}

	// Without blocks of the newer group, both show the same objects.
	affinity := func(node string) string {
		return "apiVersion: " + decode.GroupCRD + "\nkind: BlockAffinity\nmetadata: {name: " + node + "-10-0-0-0-26}\nspec: {cidr: 10.0.0.0/26, node: " + node + ", state: confirmed}\n"
	}
	s, _ = read(t, dir(t, map[string]string{"a.yaml": blockYAML, "b.yaml": affinity("n1"), "c.yaml": native(affinity("n1")), "d.yaml": native(affinity("n2"))}))
	want := blocks.Gap{Resource: blocks.Affinities, Reason: "those of crd.projectcalico.org/v1 lack 1 that the files hold of projectcalico.org/v3"}
	if len(s.Affinities) != 1 || !slices.Contains(s.Gaps, want) {
		t.Errorf("%d affinities, gaps %v", len(s.Affinities), s.Gaps)
	}

	// Pools are often dumped through Calico's aggregated API.
	s, _ = read(t, dir(t, map[string]string{"a.yaml": blockYAML, "b.yaml": native(poolYAML)}))
	if len(s.Blocks) != 1 || len(s.Pools) != 1 || s.Cluster.APIGroup != decode.GroupCRD {
		t.Errorf("%d blocks, %d pools of %s", len(s.Blocks), len(s.Pools), s.Cluster.APIGroup)
	}

	s, _ = read(t, dir(t, map[string]string{"a.yaml": native(blockYAML), "b.yaml": native(poolYAML)}))
	if len(s.Blocks) != 1 || s.Cluster.APIGroup != decode.GroupNative {
		t.Errorf("%d blocks of %s", len(s.Blocks), s.Cluster.APIGroup)
	}
}

// TestEmptyListOfOtherGroup: an empty List proves nothing about the API group that is read.
func TestEmptyListOfOtherGroup(t *testing.T) {
	for _, group := range []string{decode.GroupCRD, decode.GroupNative} {
		for _, k := range decode.Kinds {
			if !k.OfCalico() || k.Resource == blocks.Blocks {
				continue
			}
			list := fmt.Sprintf("apiVersion: %s\nkind: %sList\nitems: []\n", group, k.Names[0])
			s, _, _ := recorded(t, SaveOptions{}, dir(t, map[string]string{"a.yaml": blockYAML, "b.yaml": list}))
			_, missing := s.Missing(k.Resource)
			_, without := mustRead(t, blockYAML).Missing(k.Resource)
			if want := without && group != decode.GroupCRD; missing != want {
				t.Errorf("%s of %s: missing is %t, want %t", k.Resource, group, missing, want)
			}
		}
	}
}

func mustRead(t *testing.T, text string) *blocks.Snapshot {
	t.Helper()
	s, _ := read(t, dir(t, map[string]string{"a.yaml": text}))
	return s
}

// TestListsOfTwoTimes: objects that a newer list of the same objects lacks may have been deleted
// since.
func TestListsOfTwoTimes(t *testing.T) {
	list := func(version int, pods ...string) string {
		text := "apiVersion: v1\nkind: List\nitems:\n"
		for i, name := range pods {
			namespace, name, _ := strings.Cut(name, "/")
			text += fmt.Sprintf("- {apiVersion: v1, kind: Pod, metadata: {name: p%s, namespace: %s, resourceVersion: \"%d\"}, spec: {nodeName: n}, status: {phase: Running}}\n", name, namespace, version+i)
		}
		return text
	}
	for name, c := range map[string]struct {
		old, recent string
		want        bool
	}{
		"one was deleted":                     {list(10, "a/1", "a/2", "a/3"), list(20, "a/1", "a/2"), true},
		"one was created":                     {list(10, "a/1", "a/2"), list(20, "a/1", "a/2", "a/3"), false},
		"the same list, one shorter":          {list(10, "a/1", "a/2", "a/3"), list(10, "a/1", "a/2"), false},
		"one object, read again":              {list(10, "a/1", "a/2", "a/3"), list(20, "a/1"), false},
		"two namespaces":                      {list(10, "a/1", "a/2", "a/3"), list(20, "b/1", "b/2"), false},
		"one namespace, read again":           {list(10, "a/1", "a/2", "b/3"), list(20, "a/1", "a/2"), false},
		"one namespace, in which one is gone": {list(10, "a/1", "a/2", "a/4", "b/3"), list(20, "a/1", "a/2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, files := range []map[string]string{{"1.yaml": c.old, "2.yaml": c.recent}, {"1.yaml": c.recent, "2.yaml": c.old}} {
				s, _ := read(t, dir(t, files))
				gap, missing := s.Missing(blocks.Pods)
				if missing != c.want || c.want && !strings.Contains(gap.Reason, ".yaml is older than ") {
					t.Errorf("%v %v", missing, gap)
				}
			}
		})
	}
}

func TestIgnoredKinds(t *testing.T) {
	root := dir(t, map[string]string{"a.yaml": poolYAML + strings.Repeat("---\nkind: ConfigMap\napiVersion: v1\n", 3) +
		"---\nkind: Node\napiVersion: projectcalico.org/v3\n"})
	s, warnings := read(t, root)
	if len(s.Pools) != 1 {
		t.Errorf("pools %+v", s.Pools)
	}
	diff(t, "warning", "ignored 3 ConfigMap objects, 1 Node object of projectcalico.org/v3: not part of an audit", warnings[0])
}

// A huge object is read or rejected with a clear error, in bounded memory.
func TestHugeObject(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	block := func(entries int) string {
		return `{"apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock", "metadata": {"name": "10-0-0-0-8"},
			"spec": {"cidr": "10.0.0.0/8", "affinity": "host:n1", "allocations": [` + repeat("0", entries, ",\n") + `]}}`
	}
	annotated := strings.Replace(nodeYAML, "labels: {zone: a}", "annotations: {note: "+strings.Repeat("x", 10<<20)+"}", 1)
	root := dir(t, map[string]string{
		"long.json": block(4 << 20), "node.yaml": annotated, "good.yaml": strings.Join(clusterYAML, "---\n"),
		"toolong.json": `{"kind": "Pod", "apiVersion": "v1", "note": "` + strings.Repeat("x", maxObject+1) + `"}`,
		"toolong.yaml": "kind: Pod\napiVersion: v1\nlist:\n" + strings.Repeat("- some text that fills a line\n", maxYAMLObject/30+1),
	})
	path := func(name string) string { return filepath.Join(root, name) }

	peak := peakMemory(func() {
		s, _ := read(t, path("long.json"), path("node.yaml"), path("good.yaml"))
		if len(s.Blocks) != 1 || len(s.Nodes) != 1 || len(s.Gaps) != 1 {
			t.Errorf("%d blocks, %d nodes, gaps %v", len(s.Blocks), len(s.Nodes), s.Gaps)
			return
		}
		want := blocks.Gap{Resource: blocks.Blocks, Name: "10-0-0-0-8", Field: "spec.allocations[65536]",
			Source: path("long.json"), Reason: "has more than 65536 entries", Prefix: prefix("10.0.0.0/8"),
			Owner: blocks.Owner{Kind: "host", Name: "n1"}, OwnerKnown: true}
		diff(t, "gap", want, s.Gaps[0])
	})
	t.Logf("peak heap with objects of 10 MB: %d MiB", peak>>20)
	if peak > 500<<20 {
		t.Errorf("reading objects of 10 MB took %d MiB", peak>>20)
	}
	for name, want := range map[string]string{
		"toolong.json": "an object of more than 64 MiB: larger than anything that Kubernetes stores",
		"toolong.yaml": "an object of more than 16 MiB as YAML: larger than anything that Kubernetes stores",
	} {
		if _, err := ReadFiles([]string{path(name)}, FileOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// TestMemoryOfLists: a list takes the memory of one item, in any order of fields, with or
// without the items' kinds.
func TestMemoryOfLists(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: reads lists of 40 MiB")
	}
	const kind = `"kind": "ConfigMapList", "apiVersion": "v1"`
	items := func(own string, size int) string {
		item := `{` + own + `"metadata": {"name": "s", "annotations": {"note": "` + strings.Repeat("x", 10_000) + `"}}}`
		return `"items": [` + repeat(item, size/len(item), ",\n") + `]`
	}
	lines := func(own string, size int) string {
		item := "- " + own + "metadata:\n    name: s\n    annotations:\n      note: " + strings.Repeat("x", 10_000) + "\n"
		return "items:\n" + strings.Repeat(item, size/len(item))
	}
	const own = `"kind": "ConfigMap", "apiVersion": "v1", `
	const most = 40 << 20
	for name, c := range map[string]struct{ head, own, tail string }{
		"kind.json":     {"{" + kind + ", ", "", "}"},
		"after.json":    {"{", "", ", " + kind + "}"},
		"between.json":  {`{"apiVersion": "v1", `, "", `, "kind": "ConfigMapList"}`},
		"own.json":      {"{", own, `, "kind": "List", "apiVersion": "v1"}`},
		"kind.yaml":     {"kind: ConfigMapList\napiVersion: v1\n", "", ""},
		"after.yaml":    {"", "", "kind: ConfigMapList\napiVersion: v1\n"},
		"own.yaml":      {"apiVersion: v1\n", "kind: ConfigMap\n  apiVersion: v1\n  ", "kind: List\n"},
		"own.kind.yaml": {"kind: List\napiVersion: v1\n", "kind: ConfigMap\n  apiVersion: v1\n  ", ""},
	} {
		list := items
		if strings.HasSuffix(name, ".yaml") {
			list = lines
		}
		path := dir(t, map[string]string{name: c.head + list(c.own, most) + c.tail, "pool.yaml": poolYAML})
		count := strings.Count(list(c.own, most), `"metadata"`) + strings.Count(list(c.own, most), "metadata:")
		var warnings []string
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		peak := peakMemory(func() { _, warnings = read(t, path) })
		if want := fmt.Sprintf("ignored %d ConfigMap objects: not part of an audit", count); !slices.Contains(warnings, want) {
			t.Errorf("%s: warnings %q, want %q", name, warnings, want)
		}
		if used := int64(peak) - int64(before.HeapAlloc); used > most/2 {
			t.Errorf("%s: a list of %d MiB took %d MiB", name, most>>20, used>>20)
		} else {
			t.Logf("%s: %d MiB", name, used>>20)
		}
	}
}

// peakMemory runs fn and returns the largest heap, including garbage.
func peakMemory(fn func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as in the program, whatever GOGC says
	runtime.GC()
	done, result := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		var m runtime.MemStats
		for {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				result <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	fn()
	close(done)
	return <-result
}

// FuzzFiles: any file yields a snapshot or an error.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(strings.Join(clusterYAML, "---\n")))
	f.Add([]byte("apiVersion: v1\nitems:\n" + indented(clusterYAML, "") + "kind: List\n"))
	for _, seed := range []string{
		`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n"}}]}`, "[{}]", "items:\n-\n-", "---\n...\n---", "{\"items\":[",
		"items:\n- a\n b\n", "\xef\xbb\xbf", "kind: SnapshotInfo\napiVersion: calico-audit/v1alpha1\ngaps: [{resource: pods}]\n",
		`{"kind":"SnapshotInfo","apiVersion":"calico-audit/v1alpha1","counts":{"pods":1}}{"kind":"SnapshotEnd","apiVersion":"calico-audit/v1alpha1","objects":1}`,
		`{"kind":"PodList","apiVersion":"v1","items":[],"metadata":{"continue":"x","remainingItemCount":5}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newFileReader(FileOptions{})
		if _, err := Split(bytes.NewReader(text), r.object, r.endList); err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		r.endSaved()
		s, err := r.snapshot([]string{"x"})
		if err != nil {
			return
		}
		for _, g := range s.Gaps {
			if g.Resource == "" || g.Reason == "" && !g.Whole() {
				t.Fatalf("gap %+v", g)
			}
		}
	})
}

// TestStoryWithoutBlocks: a dump of a cluster without its blocks must not look like a
// cluster that has no blocks.
func TestStoryWithoutBlocks(t *testing.T) {
	const story = "../../examples/snapshots/story"
	files, err := filepath.Glob(filepath.Join(story, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("reading the example: %v, %v", files, err)
	}
	dir := t.TempDir()
	for _, f := range files {
		if filepath.Base(f) == "ipamblocks.yaml" {
			continue
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := ReadFiles([]string{dir}, FileOptions{Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if g, missing := s.Missing(blocks.Blocks); !missing || !strings.Contains(g.Reason, "no IPAMBlock in the files") {
		t.Errorf("blocks are not a gap: %v", s.Gaps)
	}
}

// TestNoBlockBesideItsAddresses: an empty list of blocks, as of a cluster that keeps its data in
// etcd, does not prove that there are none if pods have Calico's addresses.
func TestNoBlockBesideItsAddresses(t *testing.T) {
	const empty = `{"kind": "IPAMBlockList", "apiVersion": "crd.projectcalico.org/v1", "metadata": {}, "items": []}`
	for podCIDR, kept := range map[string]bool{"10.1.0.0/24": true, "10.0.0.0/24": false} {
		s, _ := read(t, dir(t, map[string]string{
			"blocks.json": empty,
			"node.yaml":   "apiVersion: v1\nkind: Node\nmetadata: {name: n1, uid: u1}\nspec: {podCIDR: " + podCIDR + ", podCIDRs: [" + podCIDR + "]}\n",
			"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, uid: u2, annotations: {cni.projectcalico.org/podIPs: 10.0.0.5/32}}\n" +
				"spec: {nodeName: n1}\nstatus: {phase: Running, podIP: 10.0.0.5, podIPs: [{ip: 10.0.0.5}]}\n",
		}))
		if g, missing := s.Missing(blocks.Blocks); missing != kept || kept && !strings.Contains(g.Reason, blocks.Elsewhere) {
			t.Errorf("podCIDR %s: blocks are a gap: %t, %v", podCIDR, missing, s.Gaps)
		}
	}
}

// TestTimeBeforeTheData: the reference time must not be before the creation of objects or
// before the snapshot.
func TestTimeBeforeTheData(t *testing.T) {
	const object = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: \"2026-01-02T03:04:05Z\"}\n"
	const info = "apiVersion: calico-audit/v1alpha1\nkind: SnapshotInfo\ntakenAt: \"2026-03-02T03:04:05Z\"\n---\n"
	for _, c := range []struct{ text, at, want string }{
		{object, "2026-01-02T03:04:04Z", `is before that of the data: Node "n1" was created at 2026-01-02T03:04:05Z`},
		{object, "2026-01-02T03:04:05Z", ""},
		{info + object, "2026-03-02T03:04:04Z", "is before that of the data: the snapshot was taken at 2026-03-02T03:04:05Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		must(t, err)
		_, err = ReadFiles([]string{dir(t, map[string]string{"a.yaml": c.text})}, FileOptions{At: at})
		if c.want == "" {
			must(t, err)
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("at %s: %v, want %q", c.at, err, c.want)
		}
	}
}

// TestFilteredDumps filters the shipped dumps as "kubectl get" does by node, label or namespace.
func TestFilteredDumps(t *testing.T) {
	type object struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ NodeName string }
	}
	of := map[string]func(o object) string{
		"pods.yaml node":      func(o object) string { return o.Spec.NodeName },
		"pods.yaml namespace": func(o object) string { return o.Metadata.Namespace },
		"nodes.yaml":          func(o object) string { return o.Metadata.Name },
		"namespaces.yaml":     func(o object) string { return o.Metadata.Name },
	}
	tried := 0
	for _, root := range []string{"story", "healthy", "dual-stack"} {
		root = filepath.Join("../../examples/snapshots", root)
		whole, err := ReadFiles([]string{root}, FileOptions{})
		must(t, err)
		inUse, daemons := map[string]bool{}, false // by name of a namespace or node
		for _, w := range whole.Workloads {
			inUse[w.Namespace], inUse[w.Node] = true, true
			daemons = daemons || w.OfDaemonSet()
		}
		for i := range whole.Blocks {
			for _, a := range whole.Blocks[i].Attributes {
				if a.Pod != "" {
					inUse["pods of "+a.Namespace], inUse["pods of "+a.Node] = true, true
				}
			}
		}
		for filter, value := range of {
			file, _, _ := strings.Cut(filter, " ")
			raw, err := os.ReadFile(filepath.Join(root, file))
			must(t, err)
			var list struct{ Items []map[string]any }
			raw, err = yamlToJSON(raw)
			must(t, err)
			must(t, json.Unmarshal(raw, &list))
			groups := map[string][]map[string]any{}
			for _, item := range list.Items {
				var o object
				text, _ := json.Marshal(item)
				must(t, json.Unmarshal(text, &o))
				groups[value(o)] = append(groups[value(o)], item)
			}
			for left := range groups {
				switch {
				case !inUse[left], file == "pods.yaml" && !inUse["pods of "+left]:
					continue // nothing else names it
				case file == "namespaces.yaml" && len(whole.Pools) == 1:
					continue // no verdict needs namespaces
				case !daemons && (filter == "pods.yaml node" || file == "nodes.yaml"):
					continue // a node without DaemonSets may have no pods
				}
				tried++
				t.Run(filepath.Base(root)+"/"+filter+"/"+left, func(t *testing.T) {
					var rest []map[string]any
					for name, items := range groups {
						if name != left {
							rest = append(rest, items...)
						}
					}
					text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": rest})
					must(t, err)
					filtered := t.TempDir()
					must(t, os.CopyFS(filtered, os.DirFS(root)))
					must(t, os.WriteFile(filepath.Join(filtered, file), text, 0o600))
					s, _ := read(t, filtered)
					if s.Complete() {
						t.Errorf("without %s the dump is called complete", left)
					}
				})
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d filters were tried", tried)
	}
}
