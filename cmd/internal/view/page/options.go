package page

import (
	"html/template"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// Options control a page.
type Options struct {
	view.Options
	// Plan is shown with its changes; nil for none.
	Plan *repair.Plan
	// Live makes the page reload itself from its server, at least every Refresh; zero means
	// [DefaultRefresh]. A saved page never makes requests.
	Live    bool
	Refresh time.Duration

	// source are the original source arguments if they contain local paths. The page's
	// commands omit these.
	source string
}

// commands returns commands that work when pasted.
func (o *Options) commands(all []string) (out []string) {
	for _, c := range all {
		out = append(out, o.Command(c))
	}
	return out
}

// content is the data of the page's template.
type content struct {
	head
	Report  *audit.Report
	Program string
	Live    *liveState
	Verdict verdict
	Pools   []poolBars
	// Secondary are the Whereabouts pools; nil if there are none.
	Secondary *secondaryPools
	Maps      []poolMap
	// NoMap explains a missing map; empty if the page has one.
	NoMap string
	// Mode is the initial mode of the maps.
	Mode     string
	Findings []group
	Plan     *planContent
	Data     []template.HTML
}
