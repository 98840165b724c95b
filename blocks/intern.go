package blocks

// Interner shares equal strings, so that a node's name that stands in ten
// thousand objects is kept once. The zero value is ready to use. It is not safe
// for concurrent use.
type Interner struct{ seen map[string]string }

// String returns a string equal to s, the same one for equal arguments, that
// does not keep a larger string (such as a whole response) alive.
func (in *Interner) String(s string) string {
	if s == "" {
		return ""
	}
	if t, ok := in.seen[s]; ok {
		return t
	}
	return in.add(string([]byte(s)))
}

// Bytes is String for bytes; it does not allocate for strings seen before.
func (in *Interner) Bytes(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if t, ok := in.seen[string(b)]; ok {
		return t
	}
	return in.add(string(b))
}

// Len is how many strings are shared.
func (in *Interner) Len() int { return len(in.seen) }

func (in *Interner) add(s string) string {
	if in.seen == nil {
		in.seen = map[string]string{}
	}
	in.seen[s] = s
	return s
}
