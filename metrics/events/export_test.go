package events

import (
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// QuickRenewDeadline is the renewal deadline of writers made by Quick.
const QuickRenewDeadline = 3 * time.Second

// Quick is New for tests, which have no minute to wait: change alters the
// pace further.
func Quick(cfg *rest.Config, opts Options, change func(burst *int, interval *time.Duration)) (*Writer, error) {
	p := pace{
		burst: 1000, interval: 10 * time.Millisecond, quiet: 1100 * time.Millisecond, request: 2 * time.Second,
		backoff: 20 * time.Millisecond, most: 200 * time.Millisecond,
		lease: 6 * time.Second, renew: QuickRenewDeadline, retry: 200 * time.Millisecond,
	}
	if change != nil {
		change(&p.burst, &p.interval)
	}
	return newWriter(cfg, opts, p)
}

// The texts of Events.
var (
	ReasonOf       = reasonOf
	FindingMessage = findingMessage
)

// Told returns what is to be told of a report, at a severity or above.
func Told(r *audit.Report, least state.Severity) (out []string) {
	for _, f := range newWants(r, least).findings {
		out = append(out, f.Severity.String()+" "+reasonOf(f.Check)+": "+findingMessage(f))
	}
	return out
}
