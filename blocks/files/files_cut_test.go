package files

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// savedObjects returns a saved snapshot of a cluster with one object of each kind, line by
// line.
func savedObjects(t *testing.T) []string {
	t.Helper()
	_, _, path := recorded(t, SaveOptions{}, dir(t, map[string]string{"all.yaml": strings.Join(clusterYAML, "---\n")}))
	text, err := os.ReadFile(path)
	must(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2+len(clusterYAML) || !strings.Contains(lines[0], infoKind) || !strings.Contains(lines[len(lines)-1], endKind) {
		t.Fatalf("saved as %q", lines)
	}
	lines[len(lines)-1] += "\n"
	return lines
}

// gapsOf returns the gaps as strings, without the directory.
func gapsOf(s *blocks.Snapshot, dir string) (out []string) {
	for _, g := range s.Gaps {
		out = append(out, strings.ReplaceAll(g.String(), dir+"/", ""))
	}
	return out
}

// everyKind returns gaps of all resources for one reason.
func everyKind(reason string) (out []string) {
	for _, res := range slices.Sorted(slices.Values(blocks.Resources)) {
		out = append(out, string(res)+": "+reason)
	}
	return out
}

// A saved snapshot is complete only from beginning to end, in one file, with as many
// objects of each kind as it claims. Other objects in the files do not count.
func TestCutSnapshot(t *testing.T) {
	lines := savedObjects(t)
	info, objects, end := lines[0], lines[1:len(lines)-1], lines[len(lines)-1]
	whole := strings.Join(lines, "")
	without := func(i int) string { return info + strings.Join(slices.Delete(slices.Clone(objects), i, i+1), "") + end }
	other := strings.NewReplacer("2025-11-20T12:00:00.5Z", "2025-11-20T13:00:00Z")
	if other.Replace(end) == end {
		t.Fatalf("the end does not say when it was taken: %s", end)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		warns bool
	}{
		"whole":                    {map[string]string{"a.json": whole}, nil, false},
		"the same twice":           {map[string]string{"a.json": whole + whole}, nil, false},
		"the same in two files":    {map[string]string{"a.json": whole, "b.json": whole}, nil, false},
		"of two times":             {map[string]string{"a.json": other.Replace(info) + strings.Join(objects, "") + other.Replace(end) + whole}, nil, true},
		"beside a dump":            {map[string]string{"a.json": strings.Join(objects, "") + whole + strings.Join(objects, "")}, nil, false},
		"no end":                   {map[string]string{"a.json": info + strings.Join(objects, "")}, everyKind("cut off: the snapshot in a.json has no end (SnapshotEnd)"), false},
		"no end, and a whole one":  {map[string]string{"a.json": info + objects[0] + whole}, everyKind("cut off: the snapshot in a.json has no end (SnapshotEnd)"), false},
		"a whole one, and no end":  {map[string]string{"a.json": whole + info + objects[0]}, everyKind("cut off: the snapshot in a.json has no end (SnapshotEnd)"), false},
		"no end, and a dump":       {map[string]string{"a.json": info + objects[0], "b.json": strings.Join(objects[1:], "")}, everyKind("cut off: the snapshot in a.json has no end (SnapshotEnd)"), false},
		"no beginning":             {map[string]string{"a.json": strings.Join(objects, "") + end}, everyKind("cut off: a.json has the end of a snapshot (SnapshotEnd) without its beginning"), false},
		"two ends":                 {map[string]string{"a.json": whole + end}, everyKind("cut off: a.json has the end of a snapshot (SnapshotEnd) without its beginning"), false},
		"the end of another":       {map[string]string{"a.json": info + strings.Join(objects, "") + other.Replace(end)}, everyKind("cut off: the SnapshotEnd in a.json does not belong to the snapshot before it"), false},
		"an end of another size":   {map[string]string{"a.json": info + strings.Join(objects, "") + strings.Replace(end, `"objects":7`, `"objects":60`, 1)}, everyKind("cut off: the SnapshotEnd in a.json does not belong to the snapshot before it"), false},
		"parts in a directory":     {map[string]string{"0.json": info + objects[0], "1.json": strings.Join(objects[1:], "") + end}, everyKind("cut off: the snapshot in 0.json has no end (SnapshotEnd)"), false},
		"no pool":                  {map[string]string{"a.json": without(0)}, []string{"ippools: cut off: a.json holds 0 of 1 objects"}, false},
		"no pod, but in the dump":  {map[string]string{"a.json": without(6), "b.yaml": podYAML}, []string{"pods: cut off: a.json holds 0 of 1 objects"}, false},
		"a pod too many":           {map[string]string{"a.json": info + strings.Join(objects, "") + objects[6] + end}, []string{"pods: cut off: a.json holds 2 of 1 objects"}, false},
		"a list of all":            {map[string]string{"a.json": `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(lines, ",") + `]}`}, nil, false},
		"a list of all but a node": {map[string]string{"a.json": `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(slices.Delete(slices.Clone(lines), 6, 7), ",") + `]}`}, []string{"nodes: cut off: a.json holds 0 of 1 objects"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := dir(t, c.files)
			s, warnings := read(t, root)
			diff(t, "gaps", c.want, gapsOf(s, root))
			if warned := slices.Contains(warnings, "the files hold 2 snapshots from different times, which are read as one"); warned != c.warns {
				t.Errorf("warnings %q", warnings)
			}
			if !s.Cluster.TakenAt.IsZero() && c.warns != s.Cluster.TakenAt.Equal(at("2025-11-20T13:00:00Z")) {
				t.Errorf("taken at %s", s.Cluster.TakenAt)
			}
		})
	}
	// Files without any object are an error.
	root := dir(t, map[string]string{"a.json": info})
	if _, err := ReadFiles([]string{root}, FileOptions{}); err == nil || !strings.Contains(err.Error(), "no object that an audit reads; ippools: cut off: the snapshot in ") {
		t.Errorf("the beginning alone: %v", err)
	}
}

// Kinds that the snapshot command could not read are gaps of its file, too. Kinds that it
// read completely have no gap, even without objects.
func TestSnapshotInfo(t *testing.T) {
	const info = `apiVersion: calico-audit/v1alpha1
kind: SnapshotInfo
takenAt: "2026-01-02T03:04:05Z"
datastore: kubernetes
apiGroup: crd.projectcalico.org/v1
counts: {ipamblocks: 1, widgets: 5}
resources: [ippools, ipamblocks, blockaffinities, ipamhandles, ipamconfigs, nodes]
gaps:
- {resource: pods, reason: "forbidden: needs the right to list pods"}
- {resource: ipamblocks, name: x, reason: found again}
---
`
	const end = "---\n{apiVersion: calico-audit/v1alpha1, kind: SnapshotEnd, takenAt: \"2026-01-02T03:04:05Z\", objects: 6}\n"
	s, _ := read(t, dir(t, map[string]string{"a.yaml": info + blockYAML + end}))
	diff(t, "gaps", []blocks.Gap{{Resource: blocks.Pods, Reason: "forbidden: needs the right to list pods"}}, s.Gaps)
	diff(t, "cluster", blocks.Cluster{Datastore: "files", APIGroup: decode.GroupCRD, APIGroupReason: "recorded when the cluster was read",
		TakenAt: at("2026-01-02T03:04:05Z")}, s.Cluster)

	// Of several snapshots, the API group counts if all name it.
	native := strings.ReplaceAll(info+blockYAML+end, decode.GroupCRD, decode.GroupNative)
	s, _ = read(t, dir(t, map[string]string{"a.yaml": native, "b.yaml": info + blockYAML + end}))
	if len(s.Gaps) != 2 || !strings.HasPrefix(s.Cluster.APIGroupReason, "the files hold objects of both API groups") {
		t.Errorf("gaps %v, group %s: %s", s.Gaps, s.Cluster.APIGroup, s.Cluster.APIGroupReason)
	}
}

// A snapshot of an earlier version records no counts. Its objects are grouped by kind, so
// all kinds but the last are complete.
func TestSnapshotWithoutCounts(t *testing.T) {
	lines := savedObjects(t)
	from := strings.Index(lines[0], `"counts":{`)
	to := strings.Index(lines[0], `"resources":`)
	info, objects, end := lines[0][:from]+lines[0][to:], lines[1:len(lines)-1], lines[len(lines)-1]
	for name, c := range map[string]struct {
		text string
		want []blocks.Resource
	}{
		"all":             {strings.Join(objects, ""), []blocks.Resource{blocks.Namespaces, blocks.Pods}},
		"no pod":          {strings.Join(objects[:6], ""), []blocks.Resource{blocks.Namespaces, blocks.Nodes, blocks.Pods}},
		"out of order":    {objects[6] + strings.Join(objects[:6], ""), blocks.Resources[:slices.Index(blocks.Resources, blocks.Namespaces)+1]},
		"an end of sorts": {strings.Join(objects, "") + end, []blocks.Resource{blocks.Namespaces, blocks.Pods}},
	} {
		t.Run(name, func(t *testing.T) {
			root := dir(t, map[string]string{"old.json": info + c.text})
			s, _ := read(t, root)
			var want []string
			for _, res := range c.want {
				want = append(want, string(res)+": cut off, perhaps: the snapshot in old.json is of an earlier version, which did not count its objects")
			}
			slices.Sort(want)
			diff(t, "gaps", want, gapsOf(s, root))
		})
	}
}

// kubectl prints the kind of a list after its items: any list truncated earlier is invalid.
func TestCutLists(t *testing.T) {
	inJSON := clusterJSON(t)
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nitems:\n" + indented(clusterYAML, "") + "kind:",
		"a.json": "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n" + strings.Join(inJSON, ",\n") + "],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n",
	} {
		path := dir(t, map[string]string{}) + "/" + name
		for at := 0; at <= len(text); at += 3 {
			must(t, os.WriteFile(path, []byte(text[:at]), 0o600))
			if s, err := ReadFiles([]string{path}, FileOptions{}); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
				t.Fatalf("cut at %d: %v, %v", at, s, err)
			}
		}
	}
}

// A truncated object in YAML may still be valid. Tools always end the last line; people do
// not.
func TestUnendedLine(t *testing.T) {
	saved := "# YAML\n" + strings.Join(savedObjects(t), "---\n")
	for text, warns := range map[string]bool{
		poolYAML: false, strings.TrimSuffix(poolYAML, "\n"): true, nodeYAML + "---\n" + poolYAML[:len(poolYAML)-20] + "}": true,
		poolYAML + "---": false, saved: false, strings.TrimSuffix(saved, "\n"): false,
	} {
		root := dir(t, map[string]string{"a.yaml": text})
		_, warnings := read(t, root)
		if warned := slices.Contains(warnings, root+"/a.yaml ends within a line: is it cut off?"); warned != warns {
			t.Errorf("%q: warnings %q", text, warnings)
		}
	}
}

// A list that announces more objects is a gap of its kinds.
func TestPartsOfLists(t *testing.T) {
	inJSON := clusterJSON(t)
	pods, nodes := inJSON[5], inJSON[4]
	const more = "cut off: the list in list is a part of a longer one: metadata.continue is set"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"continue, before the items": {`{"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "x", "remainingItemCount": 5}, "items": [` + pods + `]}`, []string{"pods: " + more}},
		"continue, after the items":  {`{"apiVersion": "v1", "items": [` + pods + `], "kind": "List", "metadata": {"continue": "x"}}`, []string{"pods: " + more}},
		"items without their kind":   {`{"items": [{"metadata": {"name": "n1"}, "status": {}}], "metadata": {"continue": "x"}, "kind": "NodeList", "apiVersion": "v1"}`, []string{"nodes: " + more}},
		"of several kinds":           {`{"apiVersion": "v1", "items": [` + nodes + `,` + pods + `], "kind": "List", "metadata": {"continue": "x"}}`, []string{"nodes: " + more, "pods: " + more}},
		"a count":                    {`{"kind": "PodList", "apiVersion": "v1", "metadata": {"remainingItemCount": 5}, "items": [` + pods + `]}`, []string{"pods: cut off: the list in list is a part of a longer one: metadata.remainingItemCount is 5"}},
		"no items":                   {`{"kind": "IPPoolList", "apiVersion": "crd.projectcalico.org/v1", "metadata": {"continue": "x"}, "items": []}`, []string{"ippools: " + more}},
		"items that are null":        {`{"kind": "IPPoolList", "apiVersion": "crd.projectcalico.org/v1", "metadata": {"continue": "x"}, "items": null}`, []string{"ippools: " + more}},
		"nothing tells":              {`{"kind": "List", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": []}`, everyKind(more)},
		"of no concern":              {`{"kind": "SecretList", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": []}`, nil},
		"others, of no concern":      {`{"kind": "List", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": [{"kind": "Secret", "apiVersion": "v1"}]}`, nil},
		"within a list":              {`{"kind": "List", "apiVersion": "v1", "items": [` + nodes + `, {"kind": "List", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": [` + pods + `]}]}`, []string{"pods: " + more}},
		"around a list":              {`{"kind": "List", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": [{"kind": "List", "apiVersion": "v1", "items": [` + pods + `]}]}`, []string{"pods: " + more}},
		"a document before it":       {nodes + `{"kind": "List", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": [` + pods + `]}`, []string{"pods: " + more}},
		"in YAML":                    {"apiVersion: v1\nitems:\n" + indented([]string{podYAML}, "") + "kind: List\nmetadata:\n  continue: x\n  resourceVersion: \"\"\n", []string{"pods: " + more}},
		"a count, in YAML":           {"kind: PodList\napiVersion: v1\nmetadata:\n  remainingItemCount: 5\nitems:\n" + indented([]string{podYAML}, ""), []string{"pods: cut off: the list in list is a part of a longer one: metadata.remainingItemCount is 5"}},
		"none, in YAML":              {"kind: PodList\napiVersion: v1\nmetadata:\n  continue: x\nitems: []\n", []string{"pods: " + more}},
		"all of it":                  {`{"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "", "remainingItemCount": 0}, "items": [` + pods + `]}`, nil},
		"all of it, too":             {`{"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": null, "remainingItemCount": null}, "items": [` + pods + `]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := inJSON
			root := dir(t, map[string]string{"all.json": strings.Join(files, ""), "list": c.text})
			s, _ := read(t, root, root+"/list")
			diff(t, "gaps", c.want, gapsOf(s, root))

			// The gap survives saving, also with anonymized names.
			for _, o := range []SaveOptions{{}, {Anonymize: true}} {
				before, after, path := recorded(t, o, root, root+"/list")
				if len(before.Gaps) != len(after.Gaps) {
					t.Errorf("gaps %v, once saved %v", before.Gaps, after.Gaps)
				}
				text, err := os.ReadFile(path)
				must(t, err)
				if o.Anonymize && strings.Contains(string(text), root) {
					t.Errorf("the file is named: %s", firstLines(t, path, 1))
				}
			}
		})
	}
}

// Data missing from a file is missing from its saved form, however often it is saved.
func TestSavedGapsOfCutSnapshot(t *testing.T) {
	lines := savedObjects(t)
	root := dir(t, map[string]string{"a.json": strings.Join(slices.Delete(lines, 7, 8), "")})
	for range 2 {
		before, after, path := recorded(t, SaveOptions{}, root)
		sameSnapshot(t, "saved", before, after)
		if len(after.Gaps) != 1 || after.Complete() {
			t.Errorf("gaps %v", after.Gaps)
		}
		root = path
	}
	if got := fmt.Sprint(firstLines(t, root, 1)); !strings.Contains(got, `"gaps":[{"resource":"pods","reason":"cut off: `) {
		t.Errorf("the gap is not told: %s", got)
	}
}
