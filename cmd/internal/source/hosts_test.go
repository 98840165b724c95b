package source_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
)

// oneNode reads a cluster of one node.
type oneNode struct{}

func (oneNode) Read(context.Context) (*blocks.Snapshot, error) {
	s := &blocks.Snapshot{Nodes: []blocks.Node{{Meta: blocks.Meta{Name: "n1"}}}}
	s.Cluster.Live, s.Cluster.TakenAt = true, time.Now()
	return s, nil
}

func (n oneNode) Reread(ctx context.Context, prev *blocks.Snapshot, _ []blocks.Resource) (*blocks.Snapshot, error) {
	s, err := n.Read(ctx)
	s.Hosts = prev.Hosts
	return s, err
}

// TestViewsOfTheFirstReadingStay: if a file of host views is missing at the second reading,
// its earlier views and the report stay, and the problem is reported.
func TestViewsOfTheFirstReadingStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n1.json")
	if err := os.WriteFile(path, []byte(`[{"dst":"10.0.0.0/26","gateway":"192.0.2.1","dev":"eth0","protocol":"bird"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	var flags source.HostFlags
	command := &cobra.Command{}
	flags.AddTo(command)
	if err := command.ParseFlags([]string{"--host-views", path, "--host-views-at", time.Now().Format(time.RFC3339)}); err != nil {
		t.Fatal(err)
	}
	from, err := flags.Wrap(oneNode{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	first, err := from.Read(t.Context())
	if err != nil || len(first.Hosts.Views) != 1 || len(first.Hosts.Gaps) != 0 {
		t.Fatalf("%v, %+v", err, first)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := from.Reread(t.Context(), first, []blocks.Resource{blocks.Nodes})
	if err != nil {
		t.Fatal(err)
	}
	h := second.Hosts
	if len(h.Views) != 1 || !h.Views[0].Earlier || first.Hosts.Views[0].Earlier || len(h.Gaps) != 1 || !strings.Contains(h.Gaps[0].Reason, "could not be read a second time") || !strings.Contains(h.Gaps[0].Reason, path) || !h.Until.After(first.Hosts.Until) {
		t.Errorf("%+v", h)
	}
	third, err := from.Reread(t.Context(), second, []blocks.Resource{blocks.Nodes})
	if err != nil || len(third.Hosts.Gaps) != 1 || len(third.Hosts.Views) != 1 {
		t.Errorf("a third reading: %v, %+v", err, third.Hosts)
	}
	if len(first.Hosts.Gaps) != 0 {
		t.Errorf("the first reading has %+v", first.Hosts.Gaps)
	}
	if _, err := from.Read(t.Context()); err == nil {
		t.Error("a first reading without host views that were asked for was none the worse")
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := from.Reread(stopped, first, nil); err == nil {
		t.Error("a reading that was interrupted went on")
	}
}
