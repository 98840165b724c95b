package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Fix is the next thing to do about a finding.
type Fix struct {
	// Kind is "look" for a read-only command, "configure" for one that changes
	// configuration, "manual" for something only people should do, and "repair"
	// for a plan of calico-audit's own.
	Kind string `json:"kind"`
	// Command is a command line, or for "manual" an instruction.
	Command string `json:"command"`
	// Commands are the command lines that an instruction speaks of, in order.
	Commands []string `json:"commands,omitempty"`
}

// Look is a read-only command as the next thing to do.
func Look(command string) Fix { return Fix{Kind: "look", Command: command} }

// FixOf is the preferred one of some remedies as the next thing to do.
func FixOf(ways []remedies.Remedy) Fix {
	if r := &ways[0]; r.Repairs() {
		return Fix{Kind: "repair", Command: r.Commands[0]}
	}
	return Fix{Kind: "manual", Command: ways[0].Title, Commands: ways[0].Commands}
}

// Finding is one thing that a check found.
type Finding struct {
	Check       string           `json:"check"`
	Severity    state.Severity   `json:"severity"`
	Subject     state.Subject    `json:"subject"`
	Message     string           `json:"message"`
	Evidence    []state.Evidence `json:"evidence"`
	Fix         Fix              `json:"fix"`
	Fingerprint string           `json:"fingerprint"`

	// Remedies are the ways out, the preferred one first; none where only a look helps.
	Remedies []remedies.Remedy `json:"-"`
	// Pools and Nodes are those that the finding concerns beside its subject, for
	// filters: the pool an address lies in, the owner it was borrowed from.
	Pools []string `json:"-"`
	Nodes []string `json:"-"`
	// Absence is true if the verdict rests on an object not being there, or on two
	// that disagree. On a running cluster such a finding counts only if a second
	// reading agrees, because objects of different kinds are read one after the
	// other.
	Absence bool `json:"-"`
	// Seen is true if the verdict rests on what the kernels of Nodes say: for a second
	// reading they are asked again.
	Seen bool `json:"-"`
	// Root is the ID of what the finding comes from, as others may; empty if its cause
	// is its own. See [remedies.Root].
	Root string `json:"-"`
	// by is the check that made it; nil for one that was read from a report.
	by *Check
	// order places findings about addresses and CIDRs in numerical order.
	order netip.Prefix
}

// Fingerprint returns the identity of a finding: a hash of the check and every field of the
// subject. It does not change with severity, message or time.
func Fingerprint(check string, s state.Subject) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{check, s.Kind, s.Name, s.Node, s.CIDR, s.IP}))
	return hex.EncodeToString(sum[:8])
}

// compareFindings puts the worst first, then orders by check and subject.
func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(b.Severity, a.Severity),
		cmp.Compare(a.Check, b.Check),
		a.order.Addr().Compare(b.order.Addr()),
		cmp.Compare(a.order.Bits(), b.order.Bits()),
		cmp.Compare(a.Subject.Name, b.Subject.Name),
		cmp.Compare(a.Subject.Node, b.Subject.Node),
		cmp.Compare(a.Fingerprint, b.Fingerprint),
		cmp.Compare(a.Message, b.Message))
}
