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

// Fix is the next step for a finding.
type Fix struct {
	// Kind is "look" for a read-only command, "configure" for a change of configuration,
	// "manual" for an instruction to people, and "repair" for a plan of calico-audit.
	Kind string `json:"kind"`
	// Command is a command line or, for "manual", an instruction.
	Command string `json:"command"`
	// Commands are the command lines of an instruction, in order.
	Commands []string `json:"commands,omitempty"`
}

// Look returns a read-only command as the next step, with the words quoted for a shell.
func Look(format string, words ...string) Fix {
	return Fix{Kind: "look", Command: remedies.Shell(format, words...)}
}

// FixOf returns the first remedy as the next step.
func FixOf(ways []remedies.Remedy) Fix {
	if r := &ways[0]; r.Repairs() || r.Resumes() {
		return Fix{Kind: "repair", Command: r.Commands[0]}
	}
	return Fix{Kind: "manual", Command: ways[0].Title, Commands: ways[0].Commands}
}

// Finding is a problem that a check found.
type Finding struct {
	Check       string           `json:"check"`
	Severity    state.Severity   `json:"severity"`
	Subject     state.Subject    `json:"subject"`
	Message     string           `json:"message"`
	Evidence    []state.Evidence `json:"evidence"`
	Fix         Fix              `json:"fix"`
	Fingerprint string           `json:"fingerprint"`

	// Remedies are the remedies, the preferred one first. If nil, those of the root or else the
	// check's general ones apply; if empty, the check's do not.
	Remedies []remedies.Remedy `json:"-"`
	// Pools and Nodes are the other pools and nodes involved, for filters: the pool of an
	// address, the node that it was borrowed from.
	Pools []string `json:"-"`
	Nodes []string `json:"-"`
	// Absence is true if the verdict depends on the absence of an object, or on two objects
	// that disagree. On a running cluster such a finding needs a second reading, because
	// kinds are read one after the other.
	Absence bool `json:"-"`
	// Seen is true if the verdict depends on the host views of Nodes. A second reading must
	// then fetch them again.
	Seen bool `json:"-"`
	// Root is the ID of a cause that other findings may share; empty if the finding has its
	// own cause. See [remedies.Root].
	Root string `json:"-"`
	// by is the check that made the finding; nil if the finding was read from a report.
	by *Check
	// order sorts findings about addresses and CIDRs numerically.
	order netip.Prefix
}

// Fingerprint returns the identity of a finding: a hash of the check and all fields of the
// subject. It does not depend on severity, message or time.
func Fingerprint(check string, s state.Subject) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{check, s.Kind, s.Name, s.Node, s.CIDR, s.IP}))
	return hex.EncodeToString(sum[:8])
}

// compareFindings orders findings by severity, the highest first, then by check and
// subject.
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

func subjectOrder(s state.Subject) netip.Prefix {
	if a, err := netip.ParseAddr(s.IP); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, _ := netip.ParsePrefix(s.CIDR)
	return p
}
