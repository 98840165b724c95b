package decode

// A Spool keeps the objects of one resource. Those of a page may yet be read again,
// until they are committed. Only one goroutine uses it at a time.
type Spool interface {
	// Object keeps an object of an API version.
	Object(version string, o Object)
	// Commit keeps the page at hand for good, Drop forgets it, Restart forgets all.
	Commit()
	Drop()
	Restart()
}
