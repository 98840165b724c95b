package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestManifestsBesideADump: a dump's directory also holds a chart, a manifest of an existing pool
// and one of a new pool. They do not prevent the reading, and only objects that the cluster
// returned count.
func TestManifestsBesideADump(t *testing.T) {
	live := "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata:\n  name: pods\n  uid: u1\n  resourceVersion: \"7\"\nspec:\n  cidr: 10.0.0.0/24\n  blockSize: 28\n"
	manifest := "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata:\n  name: pods\nspec:\n  cidr: 10.0.0.0/24\n  disabled: true\n"
	for _, names := range [][2]string{{"a.yaml", "b.yaml"}, {"b.yaml", "a.yaml"}} {
		dir := t.TempDir()
		for name, text := range map[string]string{names[0]: live, names[1]: manifest, "new.yaml": strings.ReplaceAll(manifest, "pods", "more"), "Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, warnings := read(t, dir)
		if !slices.Contains(warnings, "left out ippools more, which no cluster returned: manifests have no UID") {
			t.Errorf("warnings %q", warnings)
		}
		if len(s.Pools) != 1 || s.Pools[0].Disabled || s.Pools[0].BlockSize != 28 {
			t.Errorf("the manifest in %s counts: %+v", names[1], s.Pools)
		}
	}
}

// TestObjectWithoutKind: an object without its kind is an error, because nothing else shows that it
// is missing.
func TestObjectWithoutKind(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "kind: Namespace\napiVersion: v1\nmetadata: {name: shop}\n",
		"b.yaml": "apiVersion: crd.projectcalico.org/v1\nmetadata:\n  name: pods\nspec:\n  cidr: 10.0.0.0/24\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadFiles([]string{dir}, FileOptions{}); err == nil || !strings.Contains(err.Error(), "it has no kind") {
		t.Errorf("error %v", err)
	}
}

// TestConfigWithoutSpec: an IPAMConfig without its spec proves nothing about strict affinity.
func TestConfigWithoutSpec(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: crd.projectcalico.org/v1\nkind: IPAMConfig\nmetadata:\n  name: default\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadFiles([]string{path}, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if why, missing := s.Missing(blocks.IPAMConfigs); !missing || s.IPAM.Present {
		t.Errorf("the configuration counts as read: %q, %+v", why, s.IPAM)
	}
}
