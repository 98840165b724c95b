package files

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

func tarred(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name]))}))
		_, err := w.Write([]byte(files[name]))
		must(t, err)
	}
	must(t, w.Close())
	return b.String()
}

func zipped(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		must(t, err)
		_, err = f.Write([]byte(files[name]))
		must(t, err)
	}
	must(t, w.Close())
	return b.String()
}

// skipped is the warning about skipped content.
func skipped(n int) string {
	return fmt.Sprintf("files or documents that are not Kubernetes objects, and were skipped: %d", n)
}

// TestBundles reads typical inputs: bundles of support tools, and the output of scripts. The
// objects are the same as those of a plain dump, and other content is counted.
func TestBundles(t *testing.T) {
	inJSON := clusterJSON(t)
	list := "apiVersion: v1\nitems:\n" + indented(clusterYAML, "") + "kind: List\nmetadata:\n  resourceVersion: \"\"\n"
	listJSON := `{"apiVersion": "v1", "items": [` + strings.Join(inJSON, ",\n") + `], "kind": "List"}`
	want, wantWarnings := read(t, dir(t, map[string]string{"all.yaml": strings.Join(clusterYAML, "---\n")}))
	mustGather := map[string]string{
		"must-gather.local.1/timestamp":                                        "2025-11-20 10:00:00",
		"must-gather.local.1/event-filter.html":                                "<html>",
		"must-gather.local.1/namespaces/shop/pods/p1/app/logs/current.log":     "2025-11-20T10:00:00Z error: no address",
		"must-gather.local.1/namespaces/shop/core/configmaps.yaml":             "apiVersion: v1\nkind: ConfigMapList\nitems: []\n",
		"must-gather.local.1/namespaces/shop/core/values.yaml":                 "{{ .Values }}: [\n",
		"must-gather.local.1/namespaces/shop/core/empty.yaml":                  "",
		"must-gather.local.1/cluster-scoped-resources/core/nodes/version.json": "\"1.34\"",
	}
	for i, y := range clusterYAML {
		mustGather[fmt.Sprintf("must-gather.local.1/cluster-scoped-resources/%d.yaml", i)] = "---\n" + y
	}
	log := "==== START logs for container calico-node of pod kube-system/calico-node-x ====\n{\"level\": \"error\"\nkind: Node\n==== END logs for container calico-node of pod kube-system/calico-node-x ====\n"
	for name, c := range map[string]struct {
		files   map[string]string
		skipped int
		named   bool
	}{
		"must-gather":               {map[string]string{"a.tar.gz": gzipped(t, tarred(t, mustGather))}, 6, true},
		"must-gather, unpacked":     {mustGather, 6, false},
		"kubectl cluster-info dump": {map[string]string{"a.json": strings.Join(inJSON[:3], "\n") + "\n" + log + strings.Join(inJSON[3:], "\n") + "\n" + log}, 0, true},
		"lists without a kind, in a support bundle": {map[string]string{"a.tgz": gzipped(t, tarred(t, map[string]string{
			"b/cluster-resources/all.json": "[" + strings.Join(inJSON, ",") + "]", "b/version.json": `{"info": {"major": "1"}}`, "b/analysis.json": `[{"name": "x"}]`}))}, 2, true},
		"a warning before YAML":              {map[string]string{"a.yaml": "Warning: v1 ComponentStatus is deprecated in v1.19+\n" + list}, 0, true},
		"no resources, and then some":        {map[string]string{"a.yaml": "No resources found in default namespace.\n" + list}, 1, true},
		"an error about another kind":        {map[string]string{"a.json": listJSON + "\nerror: the server doesn't have a resource type \"gadgets\"\n"}, 1, true},
		"an API group that is not served":    {map[string]string{"a.yaml": list + "error: the server doesn't have a resource type \"ippools.projectcalico.org\"\n"}, 0, true},
		"a document of another kind between": {map[string]string{"a.yaml": strings.Join(clusterYAML, "---\n") + "---\nname: x\n---\nhello\n"}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := dir(t, c.files)
			if c.named {
				for file := range c.files {
					path = filepath.Join(path, file)
				}
			}
			got, warnings := read(t, path)
			if c.skipped > 0 {
				diff(t, "the first warning", skipped(c.skipped), warnings[0])
				warnings = warnings[1:]
			}
			diff(t, "warnings", wantWarnings, warnings)
			diff(t, "snapshot", want, got)
		})
	}
}

// TestSavedErrors reads dumps with kubectl's error in place of objects. The error is a gap of its
// kind, and the other kinds are read.
func TestSavedErrors(t *testing.T) {
	const user = `User "ops" cannot list resource `
	for text, c := range map[string]struct {
		file     string
		resource blocks.Resource
	}{
		`Error from server (Forbidden): pods is forbidden: ` + user + `"pods" in API group "" at the cluster scope`:                                                                                                                           {"a.yaml", blocks.Pods},
		`Error from server (Forbidden): ipamblocks.crd.projectcalico.org is forbidden: ` + user + `"ipamblocks" in API group "crd.projectcalico.org" at the cluster scope`:                                                                    {"a.yaml", blocks.Blocks},
		`Error from server (Forbidden): ippools.whereabouts.cni.cncf.io is forbidden: ` + user + `"ippools" in API group "whereabouts.cni.cncf.io" in the namespace "kube-system"`:                                                            {"a.yaml", blocks.WhereaboutsPools},
		`Error from server (NotFound): Unable to list "crd.projectcalico.org/v1, Resource=ipamhandles": the server could not find the requested resource (get ipamhandles.crd.projectcalico.org)`:                                             {"a.json", blocks.Handles},
		`error: the server doesn't have a resource type "ipamconfigurations"`:                                                                                                                                                                 {"a.json", blocks.IPAMConfigs},
		`error: You must be logged in to the server (Unauthorized)`:                                                                                                                                                                           {"blockaffinities.yaml", blocks.Affinities},
		`Unable to connect to the server: net/http: TLS handshake timeout`:                                                                                                                                                                    {"nodes.json", blocks.Nodes},
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"ippools.crd.projectcalico.org is forbidden: User \"ops\" cannot list resource \"ippools\" in API group \"crd.projectcalico.org\" at the cluster scope","code":403}`: {"a.json", blocks.Pools},
		`["pods is forbidden: User \"ops\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop\""]`:                                                                                                                       {"pods-errors.json", blocks.Pods},
	} {
		others := slices.DeleteFunc(slices.Clone(clusterYAML), func(y string) bool {
			return c.resource != blocks.WhereaboutsPools && strings.Contains(y, "kind: "+kindOfPlural(strings.Split(string(c.resource), ".")[0], "").Names[0]+"\n")
		})
		for _, path := range []string{
			dir(t, map[string]string{c.file: text + "\n", "others.yaml": strings.Join(others, "---\n")}),
			filepath.Join(dir(t, map[string]string{"a.tar": tarred(t, map[string]string{c.file: text + "\n", "others.yaml": strings.Join(others, "---\n")})}), "a.tar"),
		} {
			s, _ := read(t, path)
			gap, known := s.Missing(c.resource)
			if quoted := fmt.Sprintf("%s says ", c.file); !known || !strings.Contains(gap.Reason, quoted) {
				t.Errorf("%s: the gaps are %v", text, s.Gaps)
			}
			if len(s.Pools)+len(s.Blocks)+len(s.Affinities)+len(s.Handles)+len(s.Nodes)+len(s.Workloads) < len(others)-2 {
				t.Errorf("%s: it hides other objects: %+v", text, s)
			}
		}
	}
}

// TestBrokenArchives: a truncated archive is an error, because its objects are unknown.
func TestBrokenArchives(t *testing.T) {
	files := map[string]string{}
	for i, y := range clusterYAML {
		files[fmt.Sprintf("%d.yaml", i)] = y
	}
	whole := tarred(t, files)
	for name, c := range map[string]struct{ file, text, want string }{
		"tar cut off":      {"a.tar", whole[:700], "is the file cut off?"},
		"tar.gz cut off":   {"a.tar.gz", gzipped(t, whole)[:600], "is the file cut off?"},
		"zip cut off":      {"a.zip", zipped(t, files)[:600], "not a valid zip file"},
		"a cut member":     {"a.tar", tarred(t, map[string]string{"in/a.yaml": "apiVersion: v1\nitems:\n- kind: Node\n  apiVersion: v1\n  metadata: {name: n1\n"}), "a.tar/in/a.yaml: document 1, line "},
		"packed by xz":     {"a.tar.xz", "\xfd7zXZ\x00\x00\x04", "a.tar.xz is compressed with xz, which is not supported: decompress it first"},
		"packed by zstd":   {"a.tar.zst", "\x28\xb5\x2f\xfd\x04", "zstd"},
		"packed by bzip2":  {"a.tar.bz2", "BZh91AY&SY", "bzip2"},
		"nothing to read":  {"a.tar", tarred(t, map[string]string{"in/a.txt": "x"}), "it holds no .yaml, .yml or .json file"},
		"no object at all": {"a.zip", zipped(t, map[string]string{"in/a.yaml": "x"}), "a.zip/in/a.yaml: document 1, line 1: not a Kubernetes object"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir(t, map[string]string{c.file: c.text}), c.file)
			if _, err := ReadFiles([]string{path}, FileOptions{}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got error %v, want %s", err, c.want)
			}
		})
	}
}
