// Package etcd keeps Calico's objects in an etcd of its own. [Store] has the requests of a
// [datastore.Writer], which carries out the steps of a repair by the same protocols as in
// Kubernetes. Package blocks/etcd converts objects and values.
//
// Every write is one transaction. It compares the key's ModRevision with the evaluated object's,
// and also writes the run's record ([etcd.Run]). The record shows which objects this program wrote
// last, as managedFields do in Kubernetes. It also shows whether a write whose answer was lost was
// carried out: then key and record have the same ModRevision.
//
// libcalico-go's client is not used for writes: its Apply is an unconditional put, and it
// drops fields that its own release does not know.
package etcd
