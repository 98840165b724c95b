package decode

import "github.com/calico-audit/calico-audit/blocks/alias"

// Anonymizer replaces the names in a snapshot that is to be given away, by the role that
// each field's description gives its value. It is used in the two rounds of
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
	someNode        alias.Kind = "node"
	somePod         alias.Kind = "pod"
	someNamespace   alias.Kind = "namespace"
	somePool        alias.Kind = "pool"
	someSandbox     alias.Kind = "sandbox"
	someNetwork     alias.Kind = "network"
	someHandle      alias.Kind = "handle"
	someReservation alias.Kind = "reservation"
	somePeer        alias.Kind = "peer"
	someFilter      alias.Kind = "filter"
	someService     alias.Kind = "service"
	someVM          alias.Kind = "vm"
	someController  alias.Kind = "controller"
	someTaint       alias.Kind = "taint"
	someWord        alias.Kind = "word"
	someBlock       alias.Kind = "block"
	someAffinity    alias.Kind = "affinity"
	someCluster     alias.Kind = "cluster"
)
