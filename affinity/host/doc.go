// Package host reads the state of one node's kernel: its routes, its results of route
// lookups, and the addresses in its network namespaces. [Scan] returns it as a
// [blocks.HostView].
//
// The package does not write, neither to the kernel nor to files, and runs no programs. It
// reads:
//
//   - Routing rules, routes, lookups, addresses and links of the calling thread's network
//     namespace, by netlink. On a node this is the host's namespace if the caller shares it
//     ("hostNetwork").
//   - The network namespaces of processes, from the links /proc/PID/ns/net, and their addresses
//     from /proc/PID/net, without entering them. The links of other users' processes require
//     CAP_SYS_PTRACE and the host's processes ("hostPID").
//   - Namespaces that only a thread, an open file or a mount (in any mount namespace) holds, and
//     namespaces with a file under /run/netns. To read the addresses of a namespace without a
//     process, the scan must enter it, which requires CAP_SYS_ADMIN.
//
// Failed reads are in the view's Gaps. A gap makes the view's namespaces incomplete if it
// may hide a namespace or an address:
//
//   - a process, namespace or list could not be read completely;
//   - the visible processes or network belong to a container instead of the node;
//   - the other end of a veth pair was not found;
//   - a namespace is joined to the node but shows no address.
//
// Even complete views do not show namespaces that only a socket holds and that no veth pair
// joins to the node. They also lack IPv4 addresses of interfaces that are down, in
// namespaces other than the node's own; such addresses do not respond. Kernel threads are
// omitted.
//
// The package requires Linux 4.13 or newer; on other systems Scan returns [ErrUnsupported].
package host
