package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Severity says how bad a finding is.
type Severity int

// The severities, falling.
const (
	// Critical: traffic is broken now, two owners hold one IP, or a node cannot
	// give its pods addresses of its own.
	Critical Severity = 4
	// Error: the state is wrong, or the next pod or node fails.
	Error Severity = 3
	// Warning: this will become a problem, or costs something already.
	Warning Severity = 2
	// Info: worth knowing; nothing needs to be done.
	Info Severity = 1
)

var severityNames = map[Severity]string{Critical: "critical", Error: "error", Warning: "warning", Info: "info"}

// Severities lists all severities, falling.
var Severities = []Severity{Critical, Error, Warning, Info}

// String returns the severity's name, such as "critical".
func (s Severity) String() string { return severityNames[s] }

// MarshalJSON writes the severity's name.
func (s Severity) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON reads the severity's name.
func (s *Severity) UnmarshalJSON(b []byte) error {
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return fmt.Errorf("reading a severity: %w", err)
	}
	var err error
	*s, err = ParseSeverity(name)
	return err
}

// ParseSeverity reads a severity's name.
func ParseSeverity(name string) (Severity, error) {
	for s, n := range severityNames {
		if n == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("unknown severity %q: want critical, error, warning or info", name)
}

// The kinds of subject.
const (
	KindNode     = "Node"
	KindPool     = "IPPool"
	KindBlock    = "IPAMBlock"
	KindAffinity = "BlockAffinity"
	KindIP       = "IP"
	KindHandle   = "IPAMHandle"
	KindConfig   = "IPAMConfig"
	KindCluster  = "Cluster"
)

// Subject is what a finding is about. Objects are identified by their spec (a
// block by its CIDR, an affinity by CIDR and node), never by their name alone.
type Subject struct {
	Kind string `json:"kind"`
	// Name is the object's name; empty for addresses.
	Name string `json:"name,omitempty"`
	// Node is set for nodes and affinities and, for addresses, to the node that
	// uses the address where one is known.
	Node string `json:"node,omitempty"`
	// CIDR is set for pools, blocks and affinities.
	CIDR string `json:"cidr,omitempty"`
	// IP is set for addresses.
	IP string `json:"ip,omitempty"`
}

// ID returns what a person calls the subject: an address, a CIDR, or a name.
func (s Subject) ID() string {
	switch {
	case s.IP != "":
		return s.IP
	case s.Kind == KindBlock && s.CIDR != "":
		return s.CIDR
	case s.Kind == KindAffinity && s.CIDR != "":
		return s.CIDR + " of " + s.Node
	}
	return s.Name
}

// ResourceName returns the subject the way "kubectl get -o name" does, such as
// "node/worker-1" or "ip/10.0.0.1".
func (s Subject) ResourceName() string {
	name := s.Name
	if s.IP != "" {
		name = s.IP
	}
	return strings.ToLower(s.Kind) + "/" + name
}

// identity is what makes two subjects the same one. The name counts only where
// the spec does not identify the object: two blocks of one CIDR differ by name,
// but a name spelled in another way does not make another block.
func (s Subject) identity() string {
	switch s.Kind {
	case KindIP:
		return strings.Join([]string{s.Kind, s.IP, s.Node}, "|")
	case KindBlock, KindAffinity:
		if s.CIDR != "" {
			return strings.Join([]string{s.Kind, s.CIDR, s.Node}, "|")
		}
	}
	return strings.Join([]string{s.Kind, s.Name}, "|")
}

// Evidence is one fact that a verdict rests on. Times are written as RFC 3339
// times, never as ages, so that the same state gives the same bytes.
type Evidence struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Fix is the next thing to do about a finding.
type Fix struct {
	// Kind is "look" for a read-only command, "configure" for one that changes
	// configuration, "manual" for something only people should do, and "repair"
	// for a plan of calico-audit's own.
	Kind string `json:"kind"`
	// Command is a command line, or for "manual" an instruction.
	Command string `json:"command"`
}

// repairFix names the kind of repair that plans what is to be done about a finding.
func repairFix(flag string) Fix { return Fix{"repair", "calico-audit repair " + flag} }

// Finding is one thing that a check found.
type Finding struct {
	Check       string     `json:"check"`
	Severity    Severity   `json:"severity"`
	Subject     Subject    `json:"subject"`
	Message     string     `json:"message"`
	Evidence    []Evidence `json:"evidence"`
	Fix         Fix        `json:"fix"`
	Fingerprint string     `json:"fingerprint"`

	// Pools and Nodes are those that the finding concerns beside its subject, for
	// filters: the pool an address lies in, the owner it was borrowed from.
	Pools []string `json:"-"`
	Nodes []string `json:"-"`
	// Absence is true if the verdict rests on an object not being there, or on two
	// that disagree. On a running cluster such a finding counts only if a second
	// reading agrees, because objects of different kinds are read one after the
	// other.
	Absence bool `json:"-"`
	// by is the check that made it; nil for one that was read from a report.
	by *Check
	// order places findings about addresses and CIDRs in numerical order.
	order netip.Prefix
}

// Fingerprint returns the identity of a finding: a hash of check and subject
// that does not change with severity, message or time.
func Fingerprint(check string, s Subject) string {
	sum := sha256.Sum256([]byte(check + "|" + s.identity()))
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

// Evidences makes evidence out of name, value pairs, leaving out empty values.
func Evidences(pairs ...string) []Evidence {
	out := make([]Evidence, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, Evidence{pairs[i], pairs[i+1]})
		}
	}
	return out
}
