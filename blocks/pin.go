package blocks

import (
	"bytes"
	"strconv"
	"unique"

	"github.com/google/uuid"
)

// Pin identifies one version of an object: its UID and its resourceVersion, each empty if
// the source has none. Stored as numbers they take half the memory of strings, which saves
// 15 MB on a cluster of 150,000 pods.
type Pin struct {
	uid     uuid.UUID
	version uint64
	// texts holds both as strings if the numbers would not reproduce them.
	texts unique.Handle[[2]string]
}

// PinOf returns the pin for a UID and a resourceVersion.
func PinOf[T string | []byte](uid, version T) Pin {
	var p Pin
	var noID, noNumber error
	id, number := []byte(uid), []byte(version)
	if len(id) == 36 && !bytes.ContainsAny(id, "ABCDEF") { // the form that String writes
		p.uid, noID = uuid.ParseBytes(id)
	}
	if len(number) > 0 && number[0] != '0' {
		p.version, noNumber = strconv.ParseUint(string(number), 10, 64)
	}
	if noID != nil || noNumber != nil || (p.uid == uuid.Nil) != (len(id) == 0) || (p.version == 0) != (len(number) == 0) {
		return Pin{texts: unique.Make([2]string{string(id), string(number)})}
	}
	return p
}

// UID returns the UID; "" if there is none.
func (p Pin) UID() string {
	switch {
	case p.inTexts():
		return p.texts.Value()[0]
	case p.uid == uuid.Nil:
		return ""
	}
	return p.uid.String()
}

// ResourceVersion returns the resourceVersion; "" if there is none.
func (p Pin) ResourceVersion() string {
	switch {
	case p.inTexts():
		return p.texts.Value()[1]
	case p.version == 0:
		return ""
	}
	return strconv.FormatUint(p.version, 10)
}

// WrittenAfter reports whether an object was written after another, by the resourceVersions of both:
// they are revisions of one etcd. It is false if one of them is not known.
func (p Pin) WrittenAfter(o Pin) bool {
	x, err1 := strconv.ParseUint(p.ResourceVersion(), 10, 64)
	y, err2 := strconv.ParseUint(o.ResourceVersion(), 10, 64)
	return err1 == nil && err2 == nil && x > y
}

// SameUID reports whether both pins have the same UID.
func (p Pin) SameUID(o Pin) bool {
	if p.inTexts() || o.inTexts() {
		return p.UID() == o.UID()
	}
	return p.uid == o.uid
}

func (p Pin) inTexts() bool { return p.texts != unique.Handle[[2]string]{} }
