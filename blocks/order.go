package blocks

import "cmp"

// The canonical order of a snapshot's objects, kind by kind. Kinds without a
// function of their own are in the order of CompareMeta.

// CompareMeta orders objects by name, and those of one name by UID.
func CompareMeta(a, b *Meta) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// CompareBlocks orders blocks by CIDR.
func CompareBlocks(a, b *Block) int {
	if c := ComparePrefixes(a.CIDR, b.CIDR); c != 0 {
		return c
	}
	return CompareMeta(&a.Meta, &b.Meta)
}

// CompareAffinities orders affinities by CIDR and owner.
func CompareAffinities(a, b *Affinity) int {
	if c := ComparePrefixes(a.CIDR, b.CIDR); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Owner.Kind, b.Owner.Kind), cmp.Compare(a.Owner.Name, b.Owner.Name), CompareMeta(&a.Meta, &b.Meta))
}

// CompareWorkloads orders pods by namespace.
func CompareWorkloads(a, b *Workload) int {
	if c := cmp.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return CompareMeta(&a.Meta, &b.Meta)
}
