package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// reports checks three reports of the story: of the cluster alone, with the agents' host
// views, and with a listing of the owner's routes by the ip command.
func reports(t *testing.T, d *Datastore, l *Lab) {
	ctx := t.Context()
	root, err := programs.ModuleRoot()
	must(t, err)
	program := filepath.Join(t.TempDir(), "calico-audit")
	must(t, run(ctx, nil, "go", "build", "-C", root, "-ldflags=-s -w", "-o", program, "./cmd/calico-audit"))

	views, listing := t.TempDir(), t.TempDir()
	for _, node := range NodeNames {
		text, err := l.onMachine(ctx, node, program, "agent", "--once", "-o", "json", "--node", node)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(views, node+".json"), []byte(text), 0o644))
	}
	text, err := l.Nodes[Owner].Run(ctx, "ip", "-j", "route", "show", "table", "all")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(listing, Owner+".json"), []byte(text), 0o644))
	at := time.Now().UTC().Format(time.RFC3339)

	for _, test := range []struct {
		name, severity string
		args           []string
	}{
		{"the cluster alone", "error", nil},
		{"with host views", "critical", []string{"--host-views", views}},
		{"with a listing of routes", "critical", []string{"--host-views", listing, "--host-views-at", at}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"report", "--kubeconfig", d.Cluster.KubeconfigPath(), "-o", "json"}, test.args...)
			text, err := output(t.Context(), program, args...)
			must(t, err)
			var report struct {
				Complete bool
				Findings []audit.Finding
			}
			must(t, json.Unmarshal([]byte(text), &report))
			if !report.Complete {
				t.Errorf("the report is not complete:\n%s", text)
			}
			got := map[string]string{}
			for _, f := range report.Findings {
				if strings.HasPrefix(f.Check, "route/") || f.Check == "ip/host-in-use" {
					got[f.Check+" "+f.Subject.IP+f.Subject.CIDR] = f.Severity.String()
				}
			}
			want := map[string]string{}
			for _, node := range []string{Borrower, Third} {
				for _, addr := range l.Pods[node] {
					want["route/blackhole "+addr.String()] = test.severity
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings about routes and addresses (-want +got):\n%s", diff)
			}
		})
	}
}
