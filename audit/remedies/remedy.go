package remedies

import (
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
)

// Remedy is one way out of what a verdict says is wrong. Of several, which are
// alternatives, the preferred one is the first.
type Remedy struct {
	// Title says what to do, as an instruction.
	Title string `json:"title"`
	// Commands carry it out, one after the other, and work when pasted. Those of
	// calico-audit begin with "calico-audit", and take the source flags of the run
	// where they are shown; "repair" makes a plan and writes nothing.
	Commands []string `json:"commands"`
	// Effect says what it changes, and Risk what it may cost.
	Effect string `json:"effect"`
	Risk   string `json:"risk"`
	// Preferred is true for the first of several.
	Preferred bool `json:"preferred"`
	// Manual is true if the commands alone do not do it: people have to choose or
	// change something that no program should, such as a new pool's CIDR.
	Manual bool `json:"manual,omitempty"`
	// Yield counts what the commands do as things stand; nil if that is for people to say, or
	// the same for every object of its kind.
	Yield *Yield `json:"yield,omitempty"`
}

// Yield counts what the plans of a remedy's commands do, each made a grace period after the
// one before is applied. They do no less.
type Yield struct {
	// Blocks are deleted, so that nodes can claim them again; Affinities go without a block.
	Blocks     int `json:"blocks,omitempty"`
	Affinities int `json:"affinities,omitempty"`
	// Addresses are released, or recorded.
	Addresses int `json:"addresses,omitempty"`
	// Pods are evicted. It is 0 if that takes blocks that are freed first.
	Pods int `json:"pods,omitempty"`
}

// Root is what several verdicts have in common, so that mending it mends them all. A
// verdict has one at most.
type Root struct {
	// ID is "kind/name", such as "shortage/pods-v4". It stays the same while the
	// cause lasts.
	ID string
	// Subject is what it is about, and Pools and Nodes are those that lack something for
	// it; set where it keeps nodes from blocks.
	Subject      state.Subject
	Pools, Nodes []string
	// Alone is true if one finding is worth a diagnosis of its own.
	Alone bool
	// Message says in a sentence what is wrong, given how many findings come from it.
	Message func(findings int) string
	// Remedies returns the ways out, the preferred one first.
	Remedies func() []Remedy
}

// Root returns a root by its ID; nil if there is none in this state.
func (st *Remedies) Root(id string) *Root { return st.roots[id] }

// Prefer returns alternatives of which the first is marked as the preferred one.
func Prefer(remedies []Remedy) []Remedy {
	remedies = append([]Remedy{}, remedies...) // never null in JSON
	for i := range remedies {
		remedies[i].Preferred = i == 0
	}
	return remedies
}

// Repair is a remedy that calico-audit plans and carries out.
func Repair(title, flags, effect, risk string) Remedy {
	return Remedy{Title: title, Commands: []string{repairCommand(flags)}, Effect: effect, Risk: risk}
}

func repairCommand(flags string) string { return "calico-audit repair " + flags }

// ByHand is a remedy that takes people; commands may show what they need to know.
func ByHand(title, effect, risk string, commands ...string) Remedy {
	if commands == nil {
		commands = []string{}
	}
	return Remedy{Title: title, Commands: commands, Effect: effect, Risk: risk, Manual: true}
}

// Repairs reports whether a remedy is a plan of calico-audit's own.
func (r *Remedy) Repairs() bool {
	return !r.Manual && len(r.Commands) > 0 && strings.HasPrefix(r.Commands[0], repairCommand("--"))
}

// Resumes reports whether a remedy finishes an earlier run, or takes it back.
func (r *Remedy) Resumes() bool {
	return !r.Manual && len(r.Commands) > 0 && strings.HasPrefix(r.Commands[0], repairCommand("")) && !r.Repairs()
}
