package cluster

import (
	"net/http"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

func TestSavedCluster(t *testing.T) {
	c := cluster(t)
	r := recorder(t)
	live := readLive(t, c.Config, KubernetesOptions{Record: r}, 3)
	path := save(t, r, live)
	saved, warnings := read(t, path)
	sameSnapshot(t, "saved", live, saved)
	if len(warnings) > 0 || saved.Cluster.TakenAt.IsZero() {
		t.Errorf("warnings %q, taken at %s", warnings, saved.Cluster.TakenAt)
	}
	kubernetes := reader(t, c.Config, KubernetesOptions{Record: r})
	whole, err := kubernetes.Read(t.Context())
	must(t, err)
	again, err := kubernetes.Reread(t.Context(), whole, []blocks.Resource{blocks.Blocks, blocks.Pods})
	must(t, err)
	path = save(t, r, again)
	saved, _ = read(t, path)
	sameSnapshot(t, "saved after reading some again", again, saved)
}

// Despite faults during lists, the saved objects match the snapshot.
func TestSavedInSpiteOfFaults(t *testing.T) {
	c := cluster(t)
	for name, fault := range map[string]func(w http.ResponseWriter, r *http.Request, n int) bool{
		"a page breaks once": func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n != 2 {
				return false
			}
			cutOff(t, c, w, r, 70)
			return true
		},
		"a page always breaks": func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Query().Has("continue") && (r.URL.Path == blockPath || r.URL.Path == podPath) {
				cutOff(t, c, w, r, 60)
			}
			return false
		},
		"a continue token expires": func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n != 2 || !r.URL.Query().Has("continue") {
				return false
			}
			expired(w)
			return true
		},
		"pods may not be read": func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path != podPath {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			return true
		},
		"lists in JSON": func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			r.Header.Set("Accept", "application/json")
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, cfg := before(t, c, fault)
			r := recorder(t)
			live := readLive(t, cfg, KubernetesOptions{Record: r}, 2)
			path := save(t, r, live)
			saved, _ := read(t, path)
			sameSnapshot(t, "saved", live, saved)
			if len(live.Gaps) > 0 && saved.Complete() {
				t.Error("what was not read whole looks complete once saved")
			}
		})
	}
}
