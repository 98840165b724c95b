package decode

import "github.com/calico-audit/calico-audit/blocks/alias"

// Anonymizer anonymizes the names in a snapshot. The class in each field's mask determines
// how. It works in the two rounds of [alias.Aliases].
type Anonymizer struct {
	*alias.Aliases
	// networksOf are the network names that separate Whereabouts' networks.
	networksOf map[string]bool
	// Claimant is the node of the current affinity, whose name starts with it.
	Claimant string
}

// NewAnonymizer returns an Anonymizer in its first, collecting round.
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
