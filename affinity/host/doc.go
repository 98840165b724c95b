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
//   - The namespaces that only a file under /run/netns holds. Their addresses cannot
//     be had without entering them, which takes CAP_SYS_ADMIN.
//
// What may not be read is named in the view's Gaps. What cannot be seen at all: a
// namespace that nothing but an open file holds, unless a veth pair leads into it;
// a namespace that single threads of a process have entered; IPv4 addresses of
// interfaces that are down, in namespaces other than the node's own. Threads of the
// kernel are left out.
//
// It works on Linux alone, from kernel 4.13 on; elsewhere Scan returns
// [ErrUnsupported].
package host
