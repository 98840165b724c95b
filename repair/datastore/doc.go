// Package datastore writes to Calico's datastore: the only code of the project that
// does. It implements the steps of package repair for a Kubernetes API server, in
// both of Calico's API groups.
//
// Each step follows the protocol by which Calico's own clients change the same
// objects (libcalico-go ipam/ipam_block_reader_writer.go and
// backend/k8s/resources), so that nodes, kube-controllers and other tools that work
// beside it stay right at every moment. What it adds is distrust: an object is read
// right before and must be the very version that was evaluated, must by itself bear
// out what is done to it, and is in the journal before it is written.
//
// An object is patched as it is stored, in the fields that are meant and in no
// other, never through a type of one Calico release: fields of newer releases,
// labels and annotations survive. Each patch tests the object's identity, its
// version and the old value of each field. Each deletion is conditional on identity
// and version.
//
// Whether a write whose answer was lost has taken place is found out by reading,
// before anything else happens. Reads are sent again for that, and writes never by
// client-go, whose retries would hide that the first may have been carried out, and heed
// Retry-After alone: with them for reads (the state of commit 6919f84), a step ended undone
// for one connection that was refused, or one error without Retry-After
// (TestReadsOutliveFaults). Once the first write of a step is sent the step is finished,
// also if the context ends meanwhile.
package datastore
