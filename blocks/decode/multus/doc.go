// Package multus reads the texts that Multus and Whereabouts keep in other objects: network status,
// networks that a pod asks for, and the configuration of a network. It also anonymizes them.
package multus
