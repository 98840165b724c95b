package moves

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

const threeOfWeb = `pool pods 10.0.0.0/26 size=28
node a
node b
block 10.0.0.0/28 a
affinity 10.0.0.0/28 a
block 10.0.0.16/28 b
affinity 10.0.0.16/28 b
`

func evictionOfWeb1() *repair.Step {
	return &repair.Step{
		Kind: repair.EvictPod, Target: state.Subject{Kind: "IP", IP: "10.0.0.1", Node: "a"},
		Guards: repair.Guards(repair.GuardPod, "shop/web-1", repair.GuardController, "uid-shop-web", repair.GuardPodUID, "uid-web-1", repair.GuardBlock, "10.0.0.0/28"),
	}
}

// TestReplacedWhenAsManyAreReady: an eviction is complete when as many replicas are ready as before
// it. A single ready replica is not enough, nor is a new one while an old one has failed.
func TestReplacedWhenAsManyAreReady(t *testing.T) {
	const web = "use 10.0.0.1 shop/web-1 a ready of=ReplicaSet/web\nuse 10.0.0.2 shop/web-2 a ready of=ReplicaSet/web\nuse 10.0.0.3 shop/web-3 a ready of=ReplicaSet/web\n"
	before := parsed(t, threeOfWeb+web)
	left := strings.Replace(web, "use 10.0.0.1 shop/web-1 a ready of=ReplicaSet/web\n", "", 1)
	for name, c := range map[string]struct {
		now  string
		done bool
	}{
		"all are ready":            {left + "use 10.0.0.17 shop/web-4 b ready of=ReplicaSet/web\n", true},
		"the new one is not":       {left + "use 10.0.0.17 shop/web-4 b of=ReplicaSet/web\n", false},
		"it is not there":          {left, false},
		"its address is kept":      {left + "alloc 10.0.0.1 pod=shop/web-1 node=a handle=h\nuse 10.0.0.17 shop/web-4 b ready of=ReplicaSet/web\n", false},
		"it has name and address":  {left + "use 10.0.0.1 shop/web-1 a ready of=ReplicaSet/web uid=new\n", true}, // as of a StatefulSet
		"another failed meanwhile": {strings.Replace(left, "web-2 a ready", "web-2 a", 1) + "use 10.0.0.17 shop/web-4 b ready of=ReplicaSet/web\n", false},
		"only the new one is":      {strings.ReplaceAll(left, " ready", "") + "use 10.0.0.17 shop/web-4 b ready of=ReplicaSet/web\n", false},
		"another ends meanwhile":   {strings.Replace(left, "web-2 a ready", "web-2 a ready terminating", 1) + "use 10.0.0.17 shop/web-4 b ready of=ReplicaSet/web\n", false},
	} {
		if done, waits, err := replacedPod(before, parsed(t, threeOfWeb+c.now), evictionOfWeb1()); done != c.done || err != nil {
			t.Errorf("%s: replaced is %t (%s, %v), want %t", name, done, waits, err, c.done)
		}
	}
}

// TestMissingReplacement: the run says why an eviction is not complete: no replacement was created,
// or it waits for a node or for an address.
func TestMissingReplacement(t *testing.T) {
	before := parsed(t, threeOfWeb+"use 10.0.0.1 shop/web-1 a ready of=ReplicaSet/web\n")
	for now, want := range map[string]string{
		"": "ReplicaSet web has not created its replacement yet",
		"pod shop/web-2 - phase=Pending of=ReplicaSet/web\n": "its replacement shop/web-2 waits for a node",
		"pod shop/web-2 b phase=Pending of=ReplicaSet/web\n": "its replacement shop/web-2 waits for an address on b",
		"use 10.0.0.17 shop/web-2 b of=ReplicaSet/web\n":     "its replacement shop/web-2 is not ready yet (Running)",
	} {
		if done, waits, err := replacedPod(before, parsed(t, threeOfWeb+now), evictionOfWeb1()); done || err != nil || !strings.HasPrefix(waits, want) {
			t.Errorf("%q: done %t, waits because %q (%v), want %q", now, done, waits, err, want)
		}
	}
}

// TestEndingPodIsMissing: no pod is evicted while another pod of its controller is not ready or is
// terminating. A terminating pod reports Ready until its process stops.
func TestEndingPodIsMissing(t *testing.T) {
	const evicted = "use 10.0.0.1 shop/web-1 a ready of=ReplicaSet/web\n"
	for name, c := range map[string]struct{ other, missing string }{
		"the other is ready":    {"use 10.0.0.2 shop/web-2 a ready of=ReplicaSet/web\n", ""},
		"it is not":             {"use 10.0.0.2 shop/web-2 a of=ReplicaSet/web\n", "shop/web-2"},
		"it ends":               {"use 10.0.0.2 shop/web-2 a ready terminating of=ReplicaSet/web\n", "shop/web-2"},
		"it has ended":          {"use 10.0.0.2 shop/web-2 a phase=Succeeded of=ReplicaSet/web\n", ""},
		"another's pod is not":  {"use 10.0.0.2 shop/db-1 a of=ReplicaSet/db\n", ""},
		"the evicted is not":    {"", ""},
		"it ends, and is not":   {"use 10.0.0.2 shop/web-2 a terminating of=ReplicaSet/web\n", "shop/web-2"},
		"one is, and one waits": {"use 10.0.0.2 shop/web-2 a ready of=ReplicaSet/web\npod shop/web-3 b of=ReplicaSet/web phase=Pending\n", "shop/web-3"},
	} {
		got := ""
		if w := missingBeside(parsed(t, threeOfWeb+evicted+c.other), evictionOfWeb1()); w != nil {
			got = w.FullName()
		}
		if got != c.missing {
			t.Errorf("%s: missing is %q, want %q", name, got, c.missing)
		}
	}
}

// TestMissingBeside: no pod is evicted while another pod of its controller is missing, unless that
// one waits for the block that is freed, and a budget limits how many may be missing.
func TestMissingBeside(t *testing.T) {
	s := evictionOfWeb1()
	s.Guards = append(s.Guards, repair.Guard{Name: repair.GuardForNode, Value: "b"})
	const web = "use 10.0.0.1 shop/web-1 a of=ReplicaSet/web\nuse 10.0.0.2 shop/web-2 a ready of=ReplicaSet/web\n"
	const waits = "pod shop/web-3 b phase=Pending of=ReplicaSet/web label=app=web\n"
	for now, want := range map[string]string{
		web: "",
		web + "use 10.0.0.3 shop/web-3 a of=ReplicaSet/web\n":                             "shop/web-3",
		web + "use 10.0.0.3 shop/web-3 a ready terminating of=ReplicaSet/web\n":           "shop/web-3",
		web + "pod shop/web-3 a phase=Succeeded of=ReplicaSet/web\n":                      "",
		web + "use 10.0.0.3 shop/other a of=ReplicaSet/other\n":                           "",
		web + "use 10.0.0.3 shop/bare a\n":                                                "",
		web + waits:                                                                       "shop/web-3",
		web + waits + "budget shop/web match=app=web\n":                                   "",
		web + waits + "budget shop/web match=app=db\n":                                    "shop/web-3",
		web + strings.Replace(waits, " b ", " a ", 1) + "budget shop/web\n":               "shop/web-3",
		web + "use 10.0.0.17 shop/web-3 b of=ReplicaSet/web\nbudget shop/web\n":           "shop/web-3",
		web + strings.Replace(waits, "phase", "terminating phase", 1) + "budget shop/web": "shop/web-3",
	} {
		got := ""
		if w := missingBeside(parsed(t, threeOfWeb+now), s); w != nil {
			got = w.FullName()
		}
		if got != want {
			t.Errorf("missing is %q, want %q\n%s", got, want, strings.TrimPrefix(now, web))
		}
	}
}
