package blocks

import (
	"cmp"
	"fmt"
)

// references counts references from the objects of one kind to those of another.
type references struct {
	found, missing int
	// first is the first object that is missing.
	first string
}

func (r *references) add(found bool, name string) {
	if found {
		r.found++
		return
	}
	r.missing++
	r.first = cmp.Or(r.first, name)
}

// bulk explains why objects must have been left out: at least the given number and percentage of
// the referenced objects are missing. It returns "" if fewer are, because a report then names each.
// The format takes the number of references to existing objects, and of all references.
func (r *references) bulk(least, percent int, format string) string {
	if r.missing < least || 100*r.missing < percent*(r.found+r.missing) {
		return ""
	}
	return fmt.Sprintf(format+", and not %s: some were left out, or the files are from two clusters", r.found, r.found+r.missing, r.first)
}

// fewOf and manyOf are the least numbers of missing objects that count as bulk: of blocks, affinities
// and nodes; of addresses, handles and pods.
const fewOf, manyOf = 3, 10

// mostOf is the least percentage of missing references that count as bulk. Real damage, such as
// deletions by hand, leaves more. A third suffices for the nodes of Ready pods, which are soon
// deleted after their node, and if all pods have one label.
const mostOf, thirdOf = 90, 33
