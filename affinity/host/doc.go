// Package host reads what one node's kernel says: its routes, its own answers to
// route lookups, and which addresses are in use in its network namespaces. [Scan]
// returns it as a [blocks.HostView].
//
// Nothing is written, neither to the kernel nor to files, and no other program is
// run. What is read:
//
//   - Routing rules, routes, lookups, addresses and links, by netlink, of the network
//     namespace of the calling thread. On a node that is the host's if the caller
//     shares it ("hostNetwork").
//   - The network namespaces that processes hold, from the links /proc/PID/ns/net,
//     and their addresses from /proc/PID/net, without entering them. Reading the
//     links of other users' processes takes CAP_SYS_PTRACE and the host's processes
//     ("hostPID").
//   - The namespaces that only a single thread, an open file or a mount holds, in
//     whatever mount namespace, and those with a file under /run/netns. The addresses
//     of one without a process cannot be had without entering it, which takes
//     CAP_SYS_ADMIN.
//
// What may not be read is named in the view's Gaps. The view's namespaces are called
// complete if none of the gaps means that a namespace, or an address in one, may be
// missing: a process, namespace or list that could not be read as a whole, processes
// or a network that are a container's and not the node's, a veth pair whose other end
// was not found, a namespace that is joined to the node and shows no address.
//
// What cannot be seen even so: a namespace that nothing but a socket holds and that no
// veth pair joins to the node; IPv4 addresses of interfaces that are down, in
// namespaces other than the node's own, which answer no one. Threads of the kernel are
// left out.
//
// It works on Linux alone, from kernel 4.13 on; elsewhere Scan returns
// [ErrUnsupported].
package host
