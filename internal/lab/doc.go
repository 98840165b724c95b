// Package lab builds Calico networks of network namespaces and measures where packets go.
// Only its tests use it. They need root on Linux, and Debian's packages bird, iproute2
// and iputils-ping.
//
// These parts are real:
//
//   - The datastore is a real API server. Calico's own IPAM client made the pools, blocks,
//     affinities and allocations; see package testcluster.
//   - Calico's own confd, with Calico's own templates, rendered the configuration of each
//     node's BIRD from that datastore.
//   - BIRD, the kernel's routing, and the packets.
//
// These parts are not:
//
//   - A machine is a network namespace: a router, some nodes, and one namespace for each
//     pod that sends or receives. All share one kernel.
//   - BIRD is Debian's and lacks Calico's patches. Only one of them shows in a
//     configuration: krt_tunnel, an attribute that sends a route into an IPIP device. The
//     lab removes the statements that clear the attribute, and rejects configurations that
//     set it. The lab has no IPIP.
//   - Felix is missing. The lab runs ip commands in its place: for the route to each local
//     workload, and in a VXLAN network for the device, the neighbours and the routes.
//   - The router's configuration is the lab's own, because Calico does not manage it.
//
// A [Topology] describes how nodes and router are wired and which of them speak BGP with
// each other. A [Lab] is the running network of a topology. The table in
// affinity/ROUTES.md shows the measurements of all topologies; the tests keep it up to
// date.
package lab
