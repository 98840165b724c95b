// Package story plays incidents of whole clusters from start to end. The API server,
// scheduler and controller manager are real, and so is calico-audit. The kubelets are
// played, with Calico's own IPAM client as their CNI plugin. The tests check three
// things: the report names the problem, the commands that it advises end the problem, and
// no workload ever has fewer healthy pods than its budget requires.
package story
