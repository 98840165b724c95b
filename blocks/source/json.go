package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonReader walks JSON text value by value. A value of the wrong type is noted with
// its path and stepped over, while all else is still read; integers of 64 bits keep
// every digit; and what the model has no room for (most of an object) is skipped. Of
// a key that an object has twice, both values are read.
//
// Byte slices that it returns point into the text where they can.
type jsonReader struct {
	text []byte
	in   *jsontext.Decoder
	// err is the first syntax error. After it, every method returns at once.
	err   error
	errAt int // where in the text
	// path leads to the value at hand; base is where the current object's part
	// of it begins.
	path []step
	base int
	// share, if set, makes equal strings one.
	share func([]byte) string
	// faults are the values of the current object that were not as expected.
	faults []fault
}

// step is one step of a path: a key, or an index if that is not negative.
type step struct {
	key   []byte
	index int
}

// fault is a value that was not what its field calls for.
type fault struct{ field, reason string }

// maxFaults limits what is noted of one object.
const maxFaults = 20

// maxDepth limits how deep values may be nested.
const maxDepth = 10_000

// lenient has a decoder read what that of encoding/json does.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func newJSONReader(text []byte) *jsonReader {
	return &jsonReader{text: text, in: jsontext.NewDecoder(bytes.NewBuffer(text), lenient...)}
}

// begin starts a new object at the value at hand: faults are forgotten and paths
// are told from here.
func (r *jsonReader) begin() {
	r.base = len(r.path)
	r.faults = r.faults[:0]
}

// peek returns the kind of the value at hand by its first byte, '0' for every number,
// and 0 at the end or after an error.
func (r *jsonReader) peek() byte {
	if r.err != nil {
		return 0
	}
	return byte(r.in.PeekKind())
}

// pos tells where in the text the value at hand begins.
func (r *jsonReader) pos() int { return len(r.text) - len(bytes.TrimLeft(r.rest(), ",: \n\r\t")) }

// rest is what was not read yet.
func (r *jsonReader) rest() []byte {
	r.peek()
	return r.in.UnreadBuffer()
}

// atEnd tells whether only white space is left.
func (r *jsonReader) atEnd() bool { return len(bytes.TrimLeft(r.rest(), " \n\r\t")) == 0 }

// end is an error unless only white space is left.
func (r *jsonReader) end() {
	if rest := bytes.TrimLeft(r.rest(), " \n\r\t"); r.err == nil && len(rest) > 0 {
		c, _ := utf8.DecodeRune(rest)
		r.err, r.errAt = fmt.Errorf("unexpected %q, wanted the end", c), len(r.text)-len(rest)
	}
}

// fault notes that the value at hand is not as it should be.
func (r *jsonReader) fault(reason string) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fault{r.field(), reason})
	}
}

// faultAt notes a fault of a field below the value at hand.
func (r *jsonReader) faultAt(field, reason string) {
	if at := r.field(); at != "" {
		field = at + "." + field
	}
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fault{field, reason})
	}
}

// field names the value at hand by its path in the current object, such as
// "spec.reservedCIDRs[1]". A key that is not a plain name (a label, a CIDR) stands in
// brackets.
func (r *jsonReader) field() string {
	var b strings.Builder
	for _, s := range r.path[r.base:] {
		switch key := string(s.key); {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case key == "" || strings.ContainsAny(key, "./:[] "):
			b.WriteString("[" + key + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(key)
		}
	}
	return b.String()
}

// kindNames are what a value is called that should be something else.
var kindNames = map[byte]string{'{': "an object", '[': "a list", '"': "a string", 't': "a boolean", 'f': "a boolean", '0': "a number"}

// is tells whether the value at hand is of a kind. If not, it steps over it, and notes
// that it is not what was wanted; but null is taken for absent, as the Kubernetes API
// does.
func (r *jsonReader) is(kind byte, wanted string) bool {
	have := r.peek()
	if have == kind {
		return true
	}
	if name := kindNames[have]; name != "" {
		r.fault("is " + name + ", not " + wanted)
	}
	r.skip()
	return false
}

// null steps over a null and tells whether there was one.
func (r *jsonReader) null() bool {
	if r.peek() != 'n' {
		return false
	}
	r.skip()
	return r.err == nil
}

// object calls fn at the value of each member of the object at hand. A value
// that fn leaves alone is skipped. It returns false if there is no object: a
// null, or another type, which is a fault.
func (r *jsonReader) object(fn func(key []byte)) bool {
	if !r.is('{', "an object") {
		return false
	}
	r.token()
	for r.peek() == '"' {
		key := r.quoted()
		r.visit(step{key, -1}, func() { fn(key) })
	}
	r.token()
	return r.err == nil
}

// members are where the values of an object's members go, by key: a pointer to what
// they are, or a function that reads the value at hand. A value of another type leaves
// a zero behind.
type members map[string]any

// word is a text, or a number as it is written.
type word string

// fields reads the members of the object at hand that are known, and tells whether
// there is an object, as [jsonReader.object] does.
func (r *jsonReader) fields(known members) bool {
	return r.object(func(key []byte) {
		switch into := known[string(key)].(type) {
		case func():
			into()
		case *string:
			*into = r.string()
		case *bool:
			*into, _ = r.boolean()
		case *int:
			n, _ := r.int32()
			*into = int(n)
		case *word:
			if r.peek() == '0' {
				n, _ := r.integer()
				*into = word(n)
				return
			}
			*into = word(r.string())
		}
	})
}

// array calls fn at each element of the list at hand. An element that fn leaves
// alone is skipped. Another type than a list, or null, is a fault.
func (r *jsonReader) array(fn func(i int)) {
	if !r.is('[', "a list") {
		return
	}
	r.token()
	for i := 0; r.peek() != 0 && r.peek() != ']'; i++ {
		r.visit(step{nil, i}, func() { fn(i) })
	}
	r.token()
}

// visit calls fn at the value at hand and skips the value if fn did not read it.
func (r *jsonReader) visit(at step, fn func()) {
	r.path = append(r.path, at)
	start := r.in.InputOffset()
	fn()
	if r.in.InputOffset() == start {
		r.skip()
	}
	r.path = r.path[:len(r.path)-1]
}

func (r *jsonReader) token() {
	if r.err == nil {
		_, err := r.in.ReadToken()
		r.fail(err)
	}
}

// raw reads one value of any type as it is written; nil after an error.
func (r *jsonReader) raw() []byte {
	if r.err != nil {
		return nil
	}
	v, err := r.in.ReadValue()
	r.fail(err)
	return v
}

// skip steps over one value of any type.
func (r *jsonReader) skip() { r.raw() }

// str reads a string; false if there is none: a null, or another type, which is
// a fault.
func (r *jsonReader) str() ([]byte, bool) {
	if !r.is('"', "a string") {
		return nil, false
	}
	s := r.quoted()
	return s, r.err == nil
}

// string reads a string; "" if there is none. It is shared if the reader shares any.
func (r *jsonReader) string() string {
	s, _ := r.str()
	if r.share != nil {
		return r.share(s)
	}
	return string(s)
}

// quoted reads the string at hand. What is not UTF-8 is replaced, as encoding/json
// does.
func (r *jsonReader) quoted() []byte {
	raw := r.raw()
	if r.err != nil {
		return nil
	}
	if s := raw[1 : len(raw)-1]; bytes.IndexByte(s, '\\') < 0 && utf8.Valid(s) {
		return s
	}
	s, _ := jsontext.AppendUnquote(nil, raw)
	return s
}

// boolean reads a boolean; false, false if there is none.
func (r *jsonReader) boolean() (value, ok bool) {
	value = r.peek() == 't'
	if !value && !r.is('f', "a boolean") {
		return false, false
	}
	r.skip()
	return value, r.err == nil
}

// uint reads an integer from 0 to 2^64-1.
func (r *jsonReader) uint() (uint64, bool) {
	raw, ok := r.integer()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		r.fault("is " + clip(raw) + ", not an integer from 0 to 2^64-1")
	}
	return n, err == nil
}

// int reads an integer; one beyond 64 bits gives the nearest that fits.
func (r *jsonReader) int() (int64, bool) {
	raw, ok := r.integer()
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	return n, ok
}

// int32 reads an integer; one beyond 32 bits gives the nearest that fits.
func (r *jsonReader) int32() (int32, bool) {
	n, ok := r.int()
	return int32(min(max(n, math.MinInt32), math.MaxInt32)), ok
}

// integer reads a number without fraction and exponent.
func (r *jsonReader) integer() ([]byte, bool) {
	if !r.is('0', "an integer") {
		return nil, false
	}
	raw := r.raw()
	if bytes.ContainsAny(raw, ".eE") {
		r.fault("is " + clip(raw) + ", not an integer")
		return nil, false
	}
	return raw, r.err == nil
}

// fail keeps the first error.
func (r *jsonReader) fail(err error) {
	if r.err == nil && err != nil {
		r.err, r.errAt = syntaxError(err, errTruncated, len(r.text))
	}
}

var errTruncated = errors.New("unexpected end of JSON")

// wanted says in the words of this package what is wrong with JSON.
var wanted = strings.NewReplacer("invalid character ", "unexpected ", " at start of value", ", wanted a value",
	` at start of string (expecting '"')`, ", wanted a key", " after object name (expecting ':')", ", wanted a colon",
	" after object value (expecting ',' or '}')", ", wanted a comma or '}'", " after array element (expecting ',' or ']')", ", wanted a comma or ']'",
	" in number (expecting digit)", ", wanted a digit", " in string (expecting non-control character)", ", wanted no control character in a string",
	" after top-level value", ", wanted the end")

// syntaxError returns what a decoder says is wrong with JSON, and where: at the end,
// for which cut is the error, if it is cut off.
func syntaxError(err, cut error, end int) (error, int) {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return cut, end
	case !errors.As(err, &syntax):
		return err, end
	}
	text := syntax.Err.Error()
	if _, literal, ok := strings.Cut(text, " in literal "); ok {
		return fmt.Errorf("unexpected %q, wanted a value", literal[0]), int(syntax.ByteOffset)
	}
	return errors.New(wanted.Replace(text)), int(syntax.ByteOffset)
}

// checkSyntax checks the whole of a JSON value and places the error.
func checkSyntax(object []byte, document, line int) error {
	r := newJSONReader(object)
	r.skip()
	r.end()
	if r.err == nil {
		return nil
	}
	return &fileError{document, line + bytes.Count(object[:min(r.errAt, len(object))], []byte("\n")), r.err}
}

// clip shortens a text for a message.
func clip[T string | []byte](s T) string {
	const most = 60
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}

// fileError is a mistake in a file.
type fileError struct {
	document, line int
	err            error
}

func (e *fileError) Error() string {
	at := "document " + strconv.Itoa(e.document)
	if e.line > 0 {
		at += ", line " + strconv.Itoa(e.line)
	}
	return at + ": " + e.err.Error()
}

func (e *fileError) Unwrap() error { return e.err }

// clipMessage puts a text of others on one line and shortens it.
func clipMessage(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
