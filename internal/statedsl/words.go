package statedsl

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

type parser struct{ snap *blocks.Snapshot }

// words are the parts of a line: positional words, and options including flags.
type words struct {
	pos  []string
	opts map[string][]string
}

func split(fields []string) words {
	w := words{opts: map[string][]string{}}
	for _, f := range fields {
		k, v, isOption := strings.Cut(f, "=")
		switch {
		case isOption:
			w.opts[k] = append(w.opts[k], v)
		case flags[f]:
			w.opts[f] = []string{""}
		default:
			w.pos = append(w.pos, f)
		}
	}
	return w
}

func (w words) has(k string) bool { return w.opts[k] != nil }

// onOff returns true for "on", false for another value, and nil without the option.
func (w words) onOff(k string) *bool {
	if !w.has(k) {
		return nil
	}
	on := w.get(k) == "on"
	return &on
}

func (w words) get(k string) string {
	if v := w.opts[k]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (w words) at(i int) string {
	if i < len(w.pos) {
		return w.pos[i]
	}
	return ""
}

func (w words) list(k string) []string {
	if !w.has(k) {
		return nil
	}
	return strings.Split(w.get(k), ",")
}

func (w words) number(k string, def int) int {
	if !w.has(k) {
		return def
	}
	n, err := strconv.Atoi(w.get(k))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", k, err))
	}
	return n
}

// duration returns the value of an option; ok is false without it.
func (w words) duration(k string) (d time.Duration, ok bool) {
	if !w.has(k) {
		return 0, false
	}
	d, err := time.ParseDuration(w.get(k))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", k, err))
	}
	return d, true
}

// ago returns the time d before the snapshot was taken.
func (p *parser) ago(d time.Duration) blocks.Time {
	return blocks.TimeOf(p.snap.Cluster.TakenAt.Add(-d))
}

// meta returns the metadata of an object. Its age, by default a day, is the time since
// its creation and last write.
func (p *parser) meta(name string, w words) blocks.Meta {
	age := 24 * time.Hour
	if d, ok := w.duration("age"); ok {
		age = d
	}
	t := p.ago(age)
	if w.has("future") {
		t = p.ago(-time.Hour)
	}
	m := blocks.Meta{Name: name, Created: t, Written: t}
	if d, ok := w.duration("created"); ok {
		m.Created = p.ago(d)
	}
	m.ByUs = w.has("ours")
	if w.has("noage") {
		m.Written = 0
	}
	if !w.has("unpinned") {
		m.Pin = blocks.PinOf(cmp.Or(w.get("uid"), "uid-"+name), cmp.Or(w.get("rv"), "1"))
	}
	return m
}

var flags = map[string]bool{
	"disabled": true, "manual": true, "noexport": true, "nat": true, "cordoned": true, "windows": true, "noage": true, "future": true,
	"deleted": true, "strict": true, "cooling": true, "hostnet": true, "terminating": true, "removed": true,
	"noauto": true, "none": true, "nomesh": true, "vm": true, "unlabelled": true, "bpf": true, "oneway": true, "workloads": true,
	"agent": true, "routes": true, "partial": true, "host": true, "inner": true,
	"unpinned": true, "uncordoned": true, "noseq": true, "notready": true, "outofservice": true, "ofvm": true,
	"complete": true, "unauth": true, "ours": true, "ready": true, "claim": true, "noevict": true, "static": true, "once": true, "scratch": true, "noipam": true, "flannel": true, "nobird": true, "upgrades": true, "singly": true, "local": true, "ofoperator": true,
	"locked": true, "pending": true, "sliced": true, "nooverlap": true, "otheripam": true, "netstatus": true, "hostport": true, "unread": true,
}

func labels(w words) map[string]string {
	out := map[string]string{}
	for _, l := range w.opts["label"] {
		k, v, _ := strings.Cut(l, "=")
		out[k] = v
	}
	return out
}

func owner(s string) blocks.Owner {
	switch {
	case s == "" || s == "-":
		return blocks.Owner{}
	case strings.Contains(s, ":"):
		return blocks.ParseOwner(s)
	}
	return blocks.Owner{Kind: blocks.HostOwner, Name: s}
}
