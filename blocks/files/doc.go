// Package files reads snapshots from files of Kubernetes objects ([ReadFiles]). A
// [Recorder] keeps the objects of a snapshot, so that they can be saved as read or
// anonymized. Both use the decoders of package decode, so a cluster and its dump yield the
// same [blocks.Snapshot].
//
// [Split] divides a file into objects, with one object in memory at a time: JSON by
// jsontext's Decoder, and YAML by indentation, with go.yaml.in/yaml for each object.
// sigs.k8s.io/yaml is no faster (1.9 against 1.8 s of CPU time for 500 blocks and 2,000
// handles, measured with commit af9efa1), and it would corrupt data: it loses digits of
// integers beyond 64 bits, which occur in counts of IPv6 pools. It lets a merge key
// override the mapping's own keys, reads y, on and no as booleans and 010 as 8, and does
// not locate duplicate keys.
package files
