package remedies

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Remedy is one way to fix a reported problem. If there are several alternatives, the first is
// preferred.
type Remedy struct {
	// Title is an instruction.
	Title string `json:"title"`
	// Commands carry it out, in this order, and work when pasted. Commands of calico-audit begin
	// with "calico-audit" and get the run's source flags where they are displayed. "repair" only
	// makes a plan and writes nothing.
	Commands []string `json:"commands"`
	// Manifest is an object to create, as YAML on one line; empty if the remedy creates none. A person
	// replaces CHANGE-ME.
	Manifest string `json:"manifest,omitempty"`
	// Effect describes the change, Risk its possible cost.
	Effect string `json:"effect"`
	Risk   string `json:"risk"`
	// Preferred is true for the first of several remedies.
	Preferred bool `json:"preferred"`
	// Manual is true if the commands are not enough: a person has to choose or change something
	// that no program should, such as a new pool's CIDR.
	Manual bool `json:"manual,omitempty"`
	// Yield counts the effects of the commands in the present state. It is nil if only the operator
	// can know them, or if every object of the kind has the same effect.
	Yield *Yield `json:"yield,omitempty"`
}

// Yield counts the effects of a remedy's commands, as a minimum. Each command's plan is made one
// grace period after the one before is applied.
type Yield struct {
	// Blocks are deleted blocks, which nodes can claim again. Affinities are deleted affinities
	// without a block.
	Blocks     int `json:"blocks,omitempty"`
	Affinities int `json:"affinities,omitempty"`
	// Addresses are released or recorded.
	Addresses int `json:"addresses,omitempty"`
	// Pods are evicted. It is 0 if the evictions first need freed blocks.
	Pods int `json:"pods,omitempty"`
}

// Root is the common cause of several verdicts: fixing it fixes them all. A verdict has at most one
// root.
type Root struct {
	// ID is "kind/name", such as "shortage/pods-v4". It stays the same while the cause lasts.
	ID string
	// Subject is the object concerned. Pools and Nodes are the pools and the nodes that lack
	// something. They are set only if the cause keeps nodes from blocks.
	Subject      state.Subject
	Pools, Nodes []string
	// Alone is true if a single finding is enough for a diagnosis.
	Alone bool
	// Message describes the problem in a sentence, given the number of findings that it causes.
	Message func(findings int) string
	// Remedies returns the remedies, the preferred one first.
	Remedies func() []Remedy
}

// Root returns a root by its ID; nil if this state has no such root.
func (st *Remedies) Root(id string) *Root { return st.roots[id] }

// Prefer marks the first of the alternatives as preferred.
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

// Shell puts words into a command, quoted for a POSIX shell.
func Shell(format string, words ...string) string {
	quoted := make([]any, len(words))
	for i, w := range words {
		quoted[i] = phrase.Arg(w)
	}
	return fmt.Sprintf(format, quoted...)
}

// ByHand is a remedy for a person; the commands may show the information they need.
func ByHand(title, effect, risk string, commands ...string) Remedy {
	if commands == nil {
		commands = []string{}
	}
	return Remedy{Title: title, Commands: commands, Effect: effect, Risk: risk, Manual: true}
}

// Repairs reports whether calico-audit itself plans the remedy.
func (r *Remedy) Repairs() bool {
	return !r.Manual && len(r.Commands) > 0 && strings.HasPrefix(r.Commands[0], repairCommand("--"))
}

// Resumes reports whether a remedy finishes an earlier run or takes it back.
func (r *Remedy) Resumes() bool {
	return !r.Manual && len(r.Commands) > 0 && strings.HasPrefix(r.Commands[0], repairCommand("")) && !r.Repairs()
}
