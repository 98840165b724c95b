// Package decode makes records of objects: of each kind that an audit reads, one
// description says what it is called and where it is served, how an object is decoded,
// where a [blocks.Snapshot] has the records and in which order, and what a saved
// snapshot keeps of an object, with its names or without. It stands in a file named
// after the kind; whatever reads, merges, stores or saves objects works on any kind by
// its description.
//
// Whether an object comes from an API server or from a file, in which of Calico's two
// API groups, as JSON or protobuf: its record is the same. A decoder takes one object
// at a time out of its bytes, keeps what the model has room for and drops the rest. It
// never fails: an object that cannot be understood becomes a [blocks.Gap] that names
// it and the field, and hides no other.
//
// README.md beside this says, step by step, what a new kind takes.
package decode
