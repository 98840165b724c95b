// Package decode decodes objects into records.
//
// Each kind of object that an audit reads has one description, in a file named after the
// kind. It holds the kind's names and API group, the decoder, the field of a
// [blocks.Snapshot] with the records, and a mask of the fields that a saved snapshot keeps,
// with names anonymized on request. Code that reads, merges, stores or saves objects
// depends only on descriptions, so it works for any kind.
//
// The record of an object does not depend on its source (API server or file), API group or
// encoding (JSON or protobuf). A decoder decodes one object at a time and drops all fields
// without a place in the model. It never fails: an object that cannot be decoded becomes a
// [blocks.Gap] with the name of the object and of the field, and hides no other object.
//
// Package parse reads the objects value by value. Package keep reduces and anonymizes them for
// snapshots. README.md in this directory shows how to add a kind.
package decode
