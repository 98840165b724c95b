// Package lab builds Calico networks out of network namespaces and measures what
// becomes of packets in them. Only its tests use it. They need root on Linux, and
// Debian's packages bird, iproute2 and iputils-ping.
//
// What is real:
//
//   - The datastore is a real API server, and Calico's own IPAM client made the pools,
//     blocks, affinities and allocations; see package testcluster.
//   - Calico's own confd, with Calico's own templates, rendered the configuration of
//     each node's BIRD from that datastore.
//   - BIRD, the kernel's routing, and the packets.
//
// What is not:
//
//   - A machine is a network namespace: a router, some nodes, and a namespace of its
//     own for each pod that sends or receives. All share one kernel.
//   - BIRD is Debian's, not Calico's, whose patches it lacks. The one that shows in a
//     configuration is krt_tunnel, an attribute that sends a route into an IPIP device.
//     The lab takes the statements that clear it out, and refuses configurations that
//     set it: there is no IPIP in the lab.
//   - Felix is not there. What it would do is done by ip commands: the route to each
//     local workload, and in a VXLAN network the device, the neighbours and the routes.
//   - The router's configuration is the lab's own, for Calico has no say in it.
//
// A [Topology] says how nodes and router are wired and what speaks BGP with what. A
// [Lab] is a topology's network while it runs. What was measured in all of them is the
// table in affinity/ROUTES.md, which the tests hold to be true.
package lab
