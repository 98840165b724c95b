// Package story plays incidents of whole clusters to their end: the real API server,
// scheduler and controller manager, kubelets that are played with Calico's own IPAM client
// as their CNI plugin, and the real calico-audit beside them. Its tests ask what an
// operator would: does the report say it, do the commands that it names end it, and was
// any workload ever less available than its budget allows.
package story
