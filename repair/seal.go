package repair

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
)

// Seal sets the plan's digest. A program that changes a plan deliberately must seal it
// again.
func (p *Plan) Seal() { p.Digest = p.digest() }

// Intact reports whether the plan is unchanged since it was sealed. It returns false for
// edited plans and for plans of earlier versions, which have no digest. The digest
// detects accidents and quick edits. It does not detect forgeries, because anyone can
// compute a new one.
func (p *Plan) Intact() bool { return p.Digest != "" && p.Digest == p.digest() }

// digest returns the SHA-256 of the plan as JSON without its digest. It is therefore
// independent of the file's format and order.
func (p *Plan) digest() string {
	bare := *p
	bare.Digest = ""
	text, err := json.Marshal(&bare)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// Unobserved explains why the plan's time does not count as a first observation of the
// cluster, or returns "". A run that applies such a plan counts from its own first
// reading.
func (p *Plan) Unobserved() string {
	switch {
	case p.OfFiles():
		return "the plan was made from files, whose time is not certain"
	case !p.Intact():
		return "the plan was edited, or an earlier version made it"
	}
	return ""
}

// TrustedGrace returns the grace period with which a plan is applied: its own, but at
// least the default if the plan may have been edited.
func (p *Plan) TrustedGrace() time.Duration {
	if !p.Intact() {
		return max(p.Grace.Duration, state.DefaultGrace)
	}
	return p.Grace.Duration
}
