// Package whereabouts evaluates Whereabouts' objects: who holds an address of a secondary
// network, which records contradict each other or the pods, and how much of a range is left
// (k8snetworkplumbingwg/whereabouts).
//
// Whereabouts' own reconciler frees every address that it cannot attribute. It has freed
// addresses of pods that were starting, of pods whose network status could not be parsed,
// and of pods on unreachable nodes. This package treats an address as held while any pod
// may hold it: a pod that is starting or ending, a pod without a readable network status,
// and every pod that names the address. It knows Whereabouts' objects, network attachments
// and pods, but not Calico's IPAM.
package whereabouts
