// Package datastore writes to Calico's datastore. No other package of the project does.
// A [Writer] carries out the steps of package repair over a [Store]: an API server with
// either of Calico's API groups ([Kubernetes]), or Calico's own etcd (package
// repair/datastore/etcd).
//
// Each step follows the protocol with which Calico's own clients change the same objects
// (libcalico-go ipam/ipam_block_reader_writer.go and backend/k8s/resources), so that
// nodes, kube-controllers and other tools see consistent objects at every moment. In
// addition, an object is read again right before the step. It must be the version that
// was evaluated, and its content must permit the change. Each object is in the journal
// before it is written.
//
// An object is patched as stored. A patch contains only the fields to change and never
// passes through a type of one Calico release, so that fields of newer releases, labels
// and annotations survive. Each patch tests the object's UID, its resourceVersion and the
// old value of each field. Each deletion is conditional on UID and resourceVersion.
//
// If the answer to a write is lost, the writer reads the object to find out whether the
// write was carried out. It retries reads itself and never uses client-go's retries. For
// writes, these would hide that the first request may have been carried out. For reads,
// they only follow Retry-After. With client-go's retries for reads (the state of commit
// 6919f84), a single refused connection or an error without Retry-After left a step
// undone (TestReadsOutliveFaults). After the first write of a step is sent, the step is
// finished even if the context ends.
package datastore
