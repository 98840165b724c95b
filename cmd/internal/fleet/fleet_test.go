package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/fleet"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

func config(servers map[string]*api.Cluster) api.Config {
	c := *api.NewConfig()
	for name, s := range servers {
		c.Clusters[name], c.Contexts[name] = s, &api.Context{Cluster: name}
	}
	return c
}

func TestMembers(t *testing.T) {
	c := config(map[string]*api.Cluster{
		"a": {Server: "https://one:6443"}, "b": {Server: "https://ONE:6443/"}, "c": {Server: "https://one:6443", ProxyURL: "socks5://jump"},
		"d": {Server: "https://one:6443", TLSServerName: "two"}, "e": {},
	})
	c.Contexts["f"] = &api.Context{Cluster: "missing"}
	for asked, want := range map[string]string{
		"all": "a+b c d e! f!", "b,a": "b+a", "d,a,d": "d a", "f": "f!", "c,all": "a+b c d e! f!",
	} {
		got, err := fleet.Members(c, strings.Split(asked, ","))
		if err != nil {
			t.Errorf("%s: %v", asked, err)
		}
		var names []string
		for _, m := range got {
			name := strings.Join(append([]string{m.Context}, m.Same...), "+")
			if m.Broken != nil {
				name += "!"
			}
			names = append(names, name)
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: %v, want %s", asked, names, want)
		}
	}
}

// TestRead: at most four clusters are read at the same time, and an error or panic of one
// does not affect the others.
func TestRead(t *testing.T) {
	var now, most atomic.Int64
	full := make(chan struct{})
	var once sync.Once
	var readers []fleet.Reader[view.ClusterReport]
	for i := range 12 {
		readers = append(readers, fleet.Reader[view.ClusterReport]{FleetCluster: view.FleetCluster{Context: fmt.Sprint(i)}, Read: func(context.Context) (none view.ClusterReport, err error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if n == 4 {
				once.Do(func() { close(full) })
			}
			<-full
			switch i {
			case 3:
				return none, errors.New("refused")
			case 5:
				panic("out of range")
			}
			return view.ClusterReport{Report: &audit.Report{Complete: true}}, nil
		}})
	}
	items, errs := fleet.Read(t.Context(), readers, 0, func(string) {})
	for i, x := range items {
		if x.Context != fmt.Sprint(i) || (x.Of.Report == nil) != (i == 3 || i == 5) || (errs[i] != nil) != (x.Of.Report == nil) || (x.Error == "") != (errs[i] == nil) {
			t.Errorf("%d: %+v, %v", i, x, errs[i])
		}
	}
	if most.Load() != 4 || !strings.Contains(items[5].Error, "out of range") {
		t.Errorf("%d at once; %s", most.Load(), items[5].Error)
	}
}

// TestSort: the most severe cluster comes first. A cluster read through two addresses is
// shown once, but a copy in another state is kept.
func TestSort(t *testing.T) {
	item := func(context, guid string, critical, warning int, complete bool) view.FleetItem[view.ClusterReport] {
		return view.FleetItem[view.ClusterReport]{FleetCluster: view.FleetCluster{Context: context}, Of: view.ClusterReport{Report: &audit.Report{
			Cluster: audit.ReportCluster{GUID: guid}, Complete: complete, Summary: audit.Summary{FindingCounts: audit.FindingCounts{Critical: critical, Warning: warning}},
		}}}
	}
	f := view.NewFleet(view.FleetKind, fleet.Sort([]view.FleetItem[view.ClusterReport]{
		item("clean", "1", 0, 0, true), item("bad", "2", 1, 0, true), item("worse", "3", 2, 0, true), item("partial", "4", 0, 0, false),
		item("bad-by-name", "2", 1, 0, true), item("copy", "2", 1, 7, true), {FleetCluster: view.FleetCluster{Context: "dead", Error: "refused"}}, item("warned", "", 0, 1, true), item("warned-too", "", 0, 1, true),
	}))
	var got []string
	for _, x := range f.Items {
		got = append(got, strings.Join(append([]string{x.Context}, x.Same...), "+"))
		if (x.Note != "") != (x.Context == "copy") {
			t.Errorf("%s: %q", x.Context, x.Note)
		}
	}
	if want := []string{"dead", "worse", "copy", "bad+bad-by-name", "warned", "warned-too", "partial", "clean"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if s := f.Summary; s.Clusters != 8 || s.Unread != 1 || s.Critical != 4 || s.Warning != 9 || f.Complete {
		t.Errorf("%+v", s)
	}
}

// TestWarnings: each line starts with its context.
func TestWarnings(t *testing.T) {
	var b strings.Builder
	w := fleet.NewWarnings(&b, func() {})
	_, _ = fmt.Fprint(w.Of("a\x1b"), "warning: x\nwarning: y\n")
	_, _ = fmt.Fprint(w.Of("b"), "warning: z\n")
	if want := "context a\\x1b: warning: x\ncontext a\\x1b: warning: y\ncontext b: warning: z\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
