package source

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonReader walks JSON text value by value. It is used instead of encoding/json
// for three properties together: a value of the wrong type is noted with its
// path and stepped over while all else is still read; integers of 64 bits keep
// every digit; and what the model has no room for (most of an object) is skipped
// at a fraction of the cost of decoding it.
//
// Byte slices that it returns point into the text where they can.
type jsonReader struct {
	text []byte
	pos  int
	// err is the first syntax error. After it, every method returns at once.
	err error
	// path leads to the value at hand; base is where the current object's part
	// of it begins.
	path []step
	base int
	// faults are the values of the current object that were not as expected.
	faults []fault
}

// step is one step of a path: a key, by its place in the text, or an index.
type step struct{ from, to, index int }

// fault is a value that was not what its field calls for.
type fault struct{ field, reason string }

// maxFaults limits what is noted of one object.
const maxFaults = 20

// maxDepth limits how deep values may be nested.
const maxDepth = 1000

func newJSONReader(text []byte) *jsonReader { return &jsonReader{text: text} }

// begin starts a new object at the value at hand: faults are forgotten and paths
// are told from here.
func (r *jsonReader) begin() {
	r.base = len(r.path)
	r.faults = r.faults[:0]
}

var errTruncated = errors.New("unexpected end of JSON")

func (r *jsonReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *jsonReader) failAt(what string) {
	if r.err != nil {
		return
	}
	if r.pos >= len(r.text) {
		r.err = errTruncated
		return
	}
	c, _ := utf8.DecodeRune(r.text[r.pos:])
	r.err = fmt.Errorf("unexpected %q, wanted %s", c, what)
}

// peek skips white space and returns the byte at hand, 0 at the end or after an
// error.
func (r *jsonReader) peek() byte {
	if r.err != nil {
		return 0
	}
	for r.pos < len(r.text) {
		switch c := r.text[r.pos]; c {
		case ' ', '\n', '\r', '\t':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// atEnd tells whether only white space is left.
func (r *jsonReader) atEnd() bool { return r.peek() == 0 && r.pos >= len(r.text) }

// fault notes that the value at hand is not as it should be.
func (r *jsonReader) fault(reason string) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fault{r.field(), reason})
	}
}

// faultAt notes a fault of a field below the value at hand.
func (r *jsonReader) faultAt(field, reason string) {
	if len(r.faults) < maxFaults {
		if at := r.field(); at != "" {
			field = at + "." + field
		}
		r.faults = append(r.faults, fault{field, reason})
	}
}

// field names the value at hand by its path in the current object, such as
// "spec.reservedCIDRs[1]".
func (r *jsonReader) field() string {
	var b strings.Builder
	for _, s := range r.path[r.base:] {
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		default:
			addKey(&b, string(r.text[s.from:s.to]))
		}
	}
	return b.String()
}

// addKey appends a key to a path; one that is not a plain name (a label, a CIDR)
// in brackets.
func addKey(b *strings.Builder, key string) {
	if key == "" || strings.ContainsAny(key, "./:[] ") {
		b.WriteString("[" + key + "]")
		return
	}
	if b.Len() > 0 {
		b.WriteByte('.')
	}
	b.WriteString(key)
}

// mismatch notes that the value at hand is not of the wanted type, and steps
// over it.
func (r *jsonReader) mismatch(wanted string) {
	var have string
	switch c := r.peek(); {
	case c == '{':
		have = "an object"
	case c == '[':
		have = "a list"
	case c == '"':
		have = "a string"
	case c == 't', c == 'f':
		have = "a boolean"
	case c == '-', c >= '0' && c <= '9':
		have = "a number"
	default:
		r.failAt("a value")
		return
	}
	r.fault("is " + have + ", not " + wanted)
	r.skip()
}

// null steps over a null and tells whether there was one. Like the Kubernetes
// API, decoders take null for absent.
func (r *jsonReader) null() bool {
	if r.peek() != 'n' {
		return false
	}
	r.word("null")
	return true
}

func (r *jsonReader) word(w string) {
	if len(r.text)-r.pos < len(w) {
		r.pos = len(r.text)
		r.failAt(w)
		return
	}
	if string(r.text[r.pos:r.pos+len(w)]) != w {
		r.failAt("a value")
		return
	}
	r.pos += len(w)
}

// object calls fn at the value of each member of the object at hand. A value
// that fn leaves alone is skipped. It returns false if there is no object: a
// null, or another type, which is a fault.
func (r *jsonReader) object(fn func(key []byte)) bool {
	if r.peek() != '{' {
		if !r.null() {
			r.mismatch("an object")
		}
		return false
	}
	if len(r.path) >= maxDepth {
		r.fail("nested too deep")
		return false
	}
	r.pos++
	if r.peek() == '}' {
		r.pos++
		return true
	}
	r.path = append(r.path, step{index: -1})
	for r.member(fn) {
	}
	r.path = r.path[:len(r.path)-1]
	return r.err == nil
}

// member reads one member of an object and what follows it, and tells whether
// there is another.
func (r *jsonReader) member(fn func(key []byte)) bool {
	if r.peek() != '"' {
		r.failAt("a key")
		return false
	}
	from := r.pos + 1
	key := r.quoted()
	r.path[len(r.path)-1] = step{from: from, to: max(from, r.pos-1), index: -1}
	if r.peek() != ':' {
		r.failAt("a colon")
		return false
	}
	r.pos++
	r.visit(func() { fn(key) })
	return r.more('}')
}

// array calls fn at each element of the list at hand. An element that fn leaves
// alone is skipped. Another type than a list, or null, is a fault.
func (r *jsonReader) array(fn func(i int)) {
	if r.peek() != '[' {
		if !r.null() {
			r.mismatch("a list")
		}
		return
	}
	if len(r.path) >= maxDepth {
		r.fail("nested too deep")
		return
	}
	r.pos++
	if r.peek() == ']' {
		r.pos++
		return
	}
	r.path = append(r.path, step{})
	for i := 0; ; i++ {
		r.path[len(r.path)-1] = step{index: i}
		r.visit(func() { fn(i) })
		if !r.more(']') {
			break
		}
	}
	r.path = r.path[:len(r.path)-1]
}

// visit calls fn at the value at hand and skips the value if fn did not read it.
func (r *jsonReader) visit(fn func()) {
	r.peek()
	start, depth := r.pos, len(r.path)
	if r.err == nil {
		fn()
	}
	if r.pos == start {
		r.skip()
	}
	r.path = r.path[:depth]
}

// more steps over what follows an element, and tells whether another comes.
func (r *jsonReader) more(end byte) bool {
	switch r.peek() {
	case ',':
		r.pos++
		return true
	case end:
		r.pos++
		return false
	}
	r.failAt("a comma or " + strconv.QuoteRune(rune(end)))
	return false
}

// skip steps over one value of any type and checks its syntax.
func (r *jsonReader) skip() {
	var nested [64]byte
	open := nested[:0]
	for {
		// A value starts here.
		switch c := r.peek(); {
		case c == '{' || c == '[':
			if len(open) >= maxDepth {
				r.fail("nested too deep")
				return
			}
			r.pos++
			end := c + 2 // '{' to '}', '[' to ']'
			if r.peek() != end {
				open = append(open, end)
				if end == '}' && !r.skipKey() {
					return
				}
				continue
			}
			r.pos++
		case c == '"':
			r.skipQuoted()
		case c == 't':
			r.word("true")
		case c == 'f':
			r.word("false")
		case c == 'n':
			r.word("null")
		case c == '-' || c >= '0' && c <= '9':
			r.number()
		default:
			r.failAt("a value")
		}
		// A value ended here: so may what holds it.
		for {
			if r.err != nil || len(open) == 0 {
				return
			}
			end := open[len(open)-1]
			if r.more(end) {
				if end == '}' && !r.skipKey() {
					return
				}
				break
			}
			open = open[:len(open)-1]
		}
	}
}

func (r *jsonReader) skipKey() bool {
	if r.peek() != '"' {
		r.failAt("a key")
		return false
	}
	r.skipQuoted()
	if r.peek() != ':' {
		r.failAt("a colon")
		return false
	}
	r.pos++
	return r.err == nil
}
