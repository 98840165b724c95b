package decode

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// gadget is the record of a made-up kind.
type gadget struct {
	blocks.Meta
	Size int
	Node string
}

// TestAnyKindByItsDescription: a description suffices to decode, save, store, sort, merge and
// anonymize a kind.
func TestAnyKindByItsDescription(t *testing.T) {
	var place []gadget // in place of a snapshot's field
	k := describe(Kind{
		Resource: "gadgets", Names: []string{"Gadget"},
		keeps: keep.CalicoObject(keep.Reservation, parse.Value("size", 0, keep.Number), parse.Value("node", 0, keep.Node)),
	}, descriptor[gadget]{
		in: func(*blocks.Snapshot) *[]gadget { return &place },
		json: func(d *Decoder, r *parse.Reader, g *gadget) bool {
			d.object(r, &g.Meta, metaHooks{}, r.Known(parse.Members{"size": &g.Size, "node": &g.Node}), nil)
			return d.whole(r, &g.Meta, "")
		},
	})
	const body = `{"kind": "GadgetList", "apiVersion": "crd.projectcalico.org/v1", "metadata": {"resourceVersion": "7"}, "items": [
		{"metadata": {"name": "b", "labels": {"a": "b"}}, "spec": {"size": 2, "node": "machine-x"}},
		{"metadata": {"name": "a"}, "spec": {"size": "large"}},
		{"metadata": {"name": "c"}, "spec": {"size": 3}}]}`
	d := &Decoder{Out: NewObjects(k), Strings: &SharedStrings{}}
	var saved [][]byte
	if _, err := d.Page(strings.NewReader(body), func(o Object) {
		saved = append(saved, k.AppendSaved(nil, GroupCRD, o, nil))
	}); err != nil {
		t.Fatal(err)
	}
	diff(t, "gaps", []blocks.Gap{{Resource: "gadgets", Name: "a", Field: "spec.size", Reason: "is a string, not an integer"}}, d.Out.Gaps)
	if want := `{"apiVersion":"crd.projectcalico.org/v1","kind":"Gadget","metadata":{"name":"b"},"spec":{"size":2,"node":"machine-x"}}`; string(saved[0]) != want {
		t.Errorf("saved as %s, want %s", saved[0], want)
	}
	names := alias.New()
	k.AppendSaved(nil, GroupCRD, Object{Text: saved[0]}, names)
	names.EndCollecting()
	if got := string(k.AppendSaved(nil, GroupCRD, Object{Text: saved[0]}, names)); strings.Contains(got, "machine-x") || !strings.Contains(got, `"node":"node-1"`) {
		t.Errorf("given away as %s", got)
	}

	store := NewStore(k)
	store.Replace(d.Out)
	changed := &Decoder{Out: NewObjects(k), Strings: &SharedStrings{}}
	if err := changed.One(Object{Text: []byte(`{"metadata": {"name": "a"}, "spec": {"size": 1}}`)}); err != nil {
		t.Fatal(err)
	}
	store.Put(blocks.Key{Name: "a"}, changed.Out)
	store.Put(blocks.Key{Name: "c"}, NewObjects(k))
	s := NewSnapshot()
	store.Fill(s)
	named := func(name string, size int, node string) gadget {
		return gadget{Meta: blocks.Meta{Name: name}, Size: size, Node: node}
	}
	diff(t, "stored", []gadget{named("a", 1, ""), named("b", 2, "machine-x")}, place)
	diff(t, "gaps of the store", 0, len(s.Gaps))

	all := NewObjects(k)
	all.Take(s)
	all.Only(func(i int) bool { key, _ := all.At(i); return key.Name != "b" })
	all.Join(changed.Out)
	Replaced(s, []*Objects{all})
	diff(t, "replaced", []gadget{named("a", 1, ""), named("a", 1, "")}, place)
}

// TestListsOfKinds: [blocks.Resources] (in display order) and [Kinds] (in reading order)
// list the same kinds.
func TestListsOfKinds(t *testing.T) {
	for _, k := range Kinds {
		if !slices.Contains(blocks.Resources, k.Resource) {
			t.Errorf("blocks.Resources in blocks/resource.go lacks %s: no snapshot would save it, no second reading confirm by it, and no metric count its watches", k.Resource)
		}
	}
	for _, r := range blocks.Resources {
		if !slices.Contains(Kinds, KindOf(r)) {
			t.Errorf("Kinds in blocks/decode/kinds.go lacks the description of %s: nothing would read it", r)
		}
	}
	if all := slices.Concat(Kinds, OnDemand); len(resourceNames(t)) != len(all) {
		t.Errorf("package blocks names %d resources, %v, of which %d are in Kinds and OnDemand", len(resourceNames(t)), resourceNames(t), len(all))
	}
}

// inParticular lists deliberate uses of specific kinds outside their own files.
var inParticular = map[string][]string{
	"../cluster/discover.go":    {"Blocks"},                                                         // selects the API group
	"../cluster/both_groups.go": {"Blocks", "ClusterInfos", "Migrations", "Nodes", "Pods", "Pools"}, // selects one of two API groups, and detects data elsewhere
	"../cluster/agents.go":      {"Nodes"},
	"../files/files_cut.go":     {"Namespaces"},      // the last kind in snapshots without counts
	"../files/files_merge.go":   {"Blocks", "Pools"}, // selects the API group, and detects data elsewhere
}

// TestAKindIsItsFile: code that handles any kind names none, so that a new kind needs only
// its own file and an entry in the list.
func TestAKindIsItsFile(t *testing.T) {
	var files []string
	for _, dir := range []string{".", "../cluster", "../files"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(found) < 10 {
			t.Fatal(dir, found, err)
		}
		files = append(files, found...)
	}
	used := map[string]map[string]bool{} // the files that use each constant
	resources, set := resourceNames(t), token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := x.X.(*ast.Ident); ok && from.Name == "blocks" && slices.Contains(resources, x.Sel.Name) {
					if used[x.Sel.Name] == nil {
						used[x.Sel.Name] = map[string]bool{}
					}
					used[x.Sel.Name][file] = true
				}
			}
			return true
		})
	}
	if len(used) != len(Kinds)+len(OnDemand) {
		t.Errorf("%d resources are named for %d kinds: %v", len(used), len(Kinds)+len(OnDemand), used)
	}
	for name, in := range used {
		var own []string
		for file := range in {
			if !slices.Contains(inParticular[file], name) {
				own = append(own, file)
			}
		}
		if len(own) != 1 || filepath.Dir(own[0]) != "." {
			t.Errorf("blocks.%s is named in %v: a kind stands in one file", name, own)
		}
	}
}

// resourceNames returns the names of the constants of type Resource in package blocks.
func resourceNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Resource" {
					names = append(names, v.Names[0].Name)
				}
			}
			return true
		})
	}
	return names
}

// TestNames: Calico's IPAM configuration is of another kind in each API group.
func TestNames(t *testing.T) {
	for group, want := range map[string]string{GroupCRD: "IPAMConfig", GroupNative: "IPAMConfiguration"} {
		if got := KindOf(blocks.IPAMConfigs).Name(group); got != want {
			t.Errorf("in %s it is %s, want %s", group, got, want)
		}
	}
}
