// Package hosts evaluates host views: the addresses in a node's network namespaces, how its
// kernel treats packets to an address, and whether an allocation is in use. A host view
// shows one node at one time. An answer therefore depends on the age, completeness and
// origin of the view; see [Views.Proves] and [Views.Evidence].
//
// The package knows nothing about IPAM. Package state compares its answers with the IPAM
// objects.
package hosts
