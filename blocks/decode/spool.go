package decode

// A Spool keeps the objects of one resource. A page may be read again until it is
// committed. A Spool is not safe for concurrent use.
type Spool interface {
	// Object adds an object of an API version.
	Object(version string, o Object)
	// Commit keeps the current page; Drop discards it. Restart discards everything.
	Commit()
	Drop()
	Restart()
}
