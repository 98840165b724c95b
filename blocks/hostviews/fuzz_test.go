package hostviews_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/calico-audit/calico-audit/blocks/hostviews"
)

// FuzzHostViews reads any text as a host view, named directly and in a directory, and
// expects a view or a reason. Kept views must satisfy the invariants that other packages
// rely on.
func FuzzHostViews(f *testing.F) {
	f.Add("n1.json", goodView)
	f.Add("n1.yaml", "# YAML\n"+goodView)
	f.Add("n1.json", `[{"dst":"default","gateway":"192.168.0.1","flags":["dead"],"nexthops":[{"dev":"eth0","via":{"host":"fe80::1"}}]},{"type":"blackhole","dst":"10.0.0.0/26","table":7,"metric":1e3}]`)
	f.Add("n2.json.gz", "\x1f\x8b\x08\x00")
	s := viewCluster()
	f.Fuzz(func(t *testing.T, name, text string) {
		dir := t.TempDir()
		path := filepath.Join(dir, "n1"+filepath.Ext(filepath.Base(name)))
		if filepath.Ext(path) == "" {
			path += ".json"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Skip("not a file name")
		}
		named, err := hostviews.Read(s, []string{path}, hostviews.Options{})
		if err == nil && len(named.Views)+len(named.Gaps) == 0 {
			t.Errorf("%q gives neither a view nor a reason", text)
		}
		for _, v := range named.Views {
			if v.Node != "n1" && v.Node != "n2" || v.TakenAt.IsZero() || v.TakenAt.Sub(viewTime).Minutes() > 1 {
				t.Errorf("%q gives a view of %q, taken at %s", text, v.Node, v.TakenAt)
			}
			for _, r := range v.Routes {
				if !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || r.Type == "" || r.Table == "" {
					t.Errorf("%q gives the route %+v", text, r)
				}
			}
			for _, l := range v.Lookups {
				if !l.Dst.IsValid() || l.Dst != l.Dst.Masked() || l.Result == "" {
					t.Errorf("%q gives the lookup %+v", text, l)
				}
			}
			for _, n := range v.Namespaces {
				for _, a := range n.Addresses {
					if !a.IsValid() {
						t.Errorf("%q gives the address %v", text, a)
					}
				}
			}
		}
		ext := filepath.Ext(path)
		if ext != ".json" && ext != ".yaml" && ext != ".yml" {
			return
		}
		if _, err := hostviews.Read(s, []string{dir}, hostviews.Options{}); err != nil {
			t.Errorf("%q in a directory is an error: %v", text, err)
		}
	})
}
