// Package whereabouts says what Whereabouts' objects prove: who holds an address of a
// secondary network, which records contradict each other or the pods, and how much of a
// range is left (k8snetworkplumbingwg/whereabouts).
//
// Whereabouts' own reconciler frees what it cannot place, and has freed addresses of pods
// that were starting, whose network status could not be parsed, or whose node could not be
// asked. Here an address is held as long as anything may hold it: a pod that is starting or
// ending, one whose network status is missing or cannot be parsed, any pod that names it.
// It knows Whereabouts' objects, network attachments and pods, and nothing of Calico's IPAM.
package whereabouts
