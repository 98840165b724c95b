// Package files makes snapshots of files of Kubernetes objects ([ReadFiles]), and adds
// to them host views in files ([ReadHostViews]). A [Recorder] keeps the objects beside
// the snapshot that is made of them, so that both can be saved as they were read, with
// their names replaced or not. It feeds the decoders of package decode, so that a
// cluster and a dump of it give the same [blocks.Snapshot].
package files
