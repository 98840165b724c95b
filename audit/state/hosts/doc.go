// Package hosts says what host views prove: which addresses a node's network namespaces
// have, what its kernel does with packets to an address, and whether an allocation is in
// use. A host view shows one node at one time, so that each answer depends on whether the
// view is newer than what it is asked about, whole, and by whom it was brought here; see
// [Views.Proves] and [Views.Evidence].
//
// It knows the views and nothing of IPAM: what of that they confirm or contradict, package
// state decides.
package hosts
