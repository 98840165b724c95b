// Package files makes snapshots of files of Kubernetes objects ([ReadFiles]). A [Recorder]
// keeps the objects beside the snapshot that is made of them, so that both can be saved as
// they were read, with their names replaced or not. It feeds the decoders of package
// decode, so that a cluster and a dump of it give the same [blocks.Snapshot].
//
// A file is cut into its objects first ([Split]), of which one at a time is in memory: JSON
// by jsontext's Decoder, YAML by indentation, and each object of it by go.yaml.in/yaml.
// sigs.k8s.io/yaml does not stand here, though it is as fast (1.9 against 1.8 s of
// processor time for 500 blocks and 2,000 handles; commit af9efa1 has it): it loses digits
// of integers beyond 64 bits, which the counts of IPv6 pools have, lets a merge key
// override what the mapping itself says, reads y, on and no as booleans and 010 as 8, and
// cannot tell which key of which mapping stands twice.
package files
