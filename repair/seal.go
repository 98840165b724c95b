package repair

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
)

// Seal writes the plan's digest. Anyone who changes a plan in good faith seals it again.
func (p *Plan) Seal() { p.Digest = p.digest() }

// Intact reports whether the plan is as it was sealed. A plan that was edited since is
// not, nor one of an earlier version, which has no digest. It keeps no one from making
// another digest: it tells an accident or a quick edit, not a forgery.
func (p *Plan) Intact() bool { return p.Digest != "" && p.Digest == p.digest() }

// digest is the SHA-256 of the plan as JSON, without its digest, so that neither the
// format nor the order in which a plan was kept matters.
func (p *Plan) digest() string {
	bare := *p
	bare.Digest = ""
	text, err := json.Marshal(&bare)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// Unobserved says why the plan's own time is no first observation of the cluster; "" if
// it is one. A run that carries out such a plan counts from its own first reading.
func (p *Plan) Unobserved() string {
	switch {
	case p.OfFiles():
		return "the plan was made of files, which tell no certain time"
	case !p.Intact():
		return "the plan was edited since it was made, or is of an earlier version"
	}
	return ""
}

// TrustedGrace returns the grace that a plan is carried out with: its own or, if somebody
// may have edited it, no less than the default.
func (p *Plan) TrustedGrace() time.Duration {
	if !p.Intact() {
		return max(p.Grace.Duration, state.DefaultGrace)
	}
	return p.Grace.Duration
}
