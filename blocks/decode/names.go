package decode

import "github.com/calico-audit/calico-audit/blocks/alias"

// Anonymizer replaces the names in a snapshot that is to be given away, by the redaction
// class that each field's mask gives its value. It is used in the two rounds of
// [alias.Aliases].
type Anonymizer struct {
	*alias.Aliases
	// networksOf are the names that keep networks of Whereabouts' apart.
	networksOf map[string]bool
	// Claimant is the node of the affinity at hand, whose name begins with it.
	Claimant string
}

// NewAnonymizer returns an Anonymizer in its first round, which collects.
func NewAnonymizer() *Anonymizer {
	return &Anonymizer{Aliases: alias.New(), networksOf: map[string]bool{}}
}

const (
	someNode      alias.Kind = "node"
	somePod       alias.Kind = "pod"
	someNamespace alias.Kind = "namespace"
	somePool      alias.Kind = "pool"
	someSandbox   alias.Kind = "sandbox"
	someNetwork   alias.Kind = "network"
	someHandle    alias.Kind = "handle"
	someVM        alias.Kind = "vm"
)
