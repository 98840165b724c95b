package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// mapNames is how many names a line of a map lists before it counts the rest.
const mapNames = 8

// drawOwners says whose the blocks are, and who has none and borrows.
func (m *PoolMap) drawOwners(p *page, lettered bool) {
	var spans []span
	if lettered {
		for i := range m.Owners {
			spans = append(spans, span{text: letter(i) + " " + ownerPhrase(&m.Owners[i])})
		}
	} else {
		for i := range min(len(m.Owners), mapNames) {
			spans = append(spans, span{text: ownerPhrase(&m.Owners[i])})
		}
		if rest := m.Owners[mapNames:]; len(rest) > 0 {
			most, least := rest[0].Blocks, rest[len(rest)-1].Blocks
			each := plural(most, "block", "blocks")
			if least < most {
				each = fmt.Sprintf("%d to %s", least, each)
			}
			spans = append(spans, span{text: fmt.Sprintf("%s with %s each", plural(len(rest), "other", "others"), each)})
		}
	}
	if len(spans) > 0 {
		spans[0].text = "  " + spans[0].text
		p.flow(spans...)
	}
	if n := len(m.Borrowers); n > 0 {
		names := m.Borrowers
		if n > mapNames+1 {
			names = append(slices.Clone(names[:mapNames]), fmt.Sprintf("and %d more", n-mapNames))
		}
		p.wrap("  ", 4, "without a block here, borrowing: "+strings.Join(names, ", "))
	}
}

// ownerName names an owner that is written as in a report.
func ownerName(text string) string {
	owner := blocks.ParseOwner(text)
	switch name := owner.Node(); {
	case owner.Kind == blocks.VirtualOwner:
		return "LoadBalancer services"
	case name != "":
		return name
	}
	return text
}

// ownerPhrase names an owner with what it has.
func ownerPhrase(o *MapOwner) string {
	text := ownerName(o.Owner) + ": " + plural(o.Blocks, "block", "blocks")
	if o.Empty > 0 {
		text += fmt.Sprintf(", %d empty", o.Empty)
	}
	if o.DeadNode {
		text += ", no such node"
	}
	return text
}
