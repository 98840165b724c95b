package decode

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

// JSONReader walks JSON text value by value. A value of the wrong type is noted with
// its path and stepped over, while all else is still read; integers of 64 bits keep
// every digit; and what the model has no room for (most of an object) is skipped. Of
// a key that an object has twice, both values are read.
//
// Byte slices that it returns point into the text where they can.
type JSONReader struct {
	// Text is what is read, or the message of protobuf.
	Text []byte
	in   *jsontext.Decoder
	text bytes.Buffer // what in reads, if that is Text
	at   wire         // the value at hand, of a reader of protobuf
	// err is the first syntax error. After it, every method returns at once.
	err   error
	errAt int    // where in the text
	path  []step // to the value at hand
	// Share, if set, makes equal strings one.
	Share func([]byte) string
	// Faults are the values of the current object that were not as expected.
	Faults []fault
}

// step is one step of a path: a key, or an index if that is not negative.
type step struct {
	key   []byte
	index int
}

// fault is a value that was not what its field calls for.
type fault struct{ Field, Reason string }

// maxFaults limits what is noted of one object.
const maxFaults = 20

// maxDepth limits how deep values may be nested.
const maxDepth = 10_000

// Lenient has a decoder read what that of encoding/json does.
var Lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// NewJSONReader returns a reader that stands before the value that a text holds.
func NewJSONReader(text []byte) *JSONReader {
	r := &JSONReader{in: new(jsontext.Decoder)}
	r.Reset(text)
	return r
}

// Reset makes the reader one of another text. Nothing that it returned may be in use.
func (r *JSONReader) Reset(text []byte) {
	*r = JSONReader{Text: text, in: r.in, text: *bytes.NewBuffer(text), path: r.path[:0], Share: r.Share, Faults: r.Faults[:0]}
	r.in.Reset(&r.text, Lenient...)
}

// Peek returns the kind of the value at hand by its first byte, '0' for every number,
// and 0 at the end or after an error.
func (r *JSONReader) Peek() byte {
	switch {
	case r.err != nil:
		return 0
	case r.at.mask != nil:
		return r.at.kind()
	}
	return byte(r.in.PeekKind())
}

// pos tells where in the text the value at hand begins.
func (r *JSONReader) pos() int { return len(r.Text) - len(bytes.TrimLeft(r.rest(), ",: \n\r\t")) }

// rest is what was not read yet.
func (r *JSONReader) rest() []byte {
	r.Peek()
	return r.in.UnreadBuffer()
}

// atEnd reports whether only white space is left.
func (r *JSONReader) atEnd() bool { return len(bytes.TrimLeft(r.rest(), " \n\r\t")) == 0 }

// end is an error unless only white space is left.
func (r *JSONReader) end() {
	if rest := bytes.TrimLeft(r.rest(), " \n\r\t"); r.err == nil && len(rest) > 0 {
		c, _ := utf8.DecodeRune(rest)
		r.err, r.errAt = fmt.Errorf("unexpected %q, wanted the end", c), len(r.Text)-len(rest)
	}
}

// Fault notes that the value at hand is not as it should be.
func (r *JSONReader) Fault(reason string) {
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, fault{r.field(), reason})
	}
}

// faultAt notes a fault of a field below the value at hand.
func (r *JSONReader) faultAt(field, reason string) {
	if at := r.field(); at != "" {
		field = at + "." + field
	}
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, fault{field, reason})
	}
}

// field names the value at hand by its path in the current object, such as
// "spec.reservedCIDRs[1]". A key that is not a plain name (a label, a CIDR) stands in
// brackets.
func (r *JSONReader) field() string {
	var b strings.Builder
	for _, s := range r.path {
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

// is reports whether the value at hand is of a kind. If not, it steps over it, and notes
// that it is not what was wanted; but null is taken for absent, as the Kubernetes API
// does.
func (r *JSONReader) is(kind byte, wanted string) bool {
	have := r.Peek()
	if have == kind {
		return true
	}
	if name := kindNames[have]; name != "" {
		r.Fault("is " + name + ", not " + wanted)
	}
	r.Skip()
	return false
}

// Null steps over a null and reports whether there was one.
func (r *JSONReader) Null() bool {
	if r.Peek() != 'n' {
		return false
	}
	r.Skip()
	return r.err == nil
}

// Object calls fn at the value of each member of the object at hand. A value
// that fn leaves alone is skipped. It returns false if there is no object: a
// null, or another type, which is a fault.
func (r *JSONReader) Object(fn func(key []byte)) bool {
	if !r.is('{', "an object") {
		return false
	}
	if r.at.mask != nil {
		return r.wireObject(r.at, fn)
	}
	r.token()
	for r.Peek() == '"' {
		key := r.quoted()
		r.visit(step{key, -1}, func() { fn(key) })
	}
	r.token()
	return r.err == nil
}

// Members are where the values of an object's members go, by key: a pointer to what
// they are, or a function that reads the value at hand. A value of another type leaves
// a zero behind.
type Members map[string]any

// Word is a text, or a number as it is written.
type Word string

// Fields reads the members of the object at hand that are known, and reports whether
// there is an object, as [JSONReader.object] does.
func (r *JSONReader) Fields(known Members) bool { return r.Object(r.members(known)) }

// members returns what reads a member of an object that is known.
func (r *JSONReader) members(known Members) func(key []byte) {
	return func(key []byte) {
		switch into := known[string(key)].(type) {
		case func():
			into()
		case *string:
			*into = r.String()
		case *bool:
			*into, _ = r.Boolean()
		case *int:
			n, _ := r.Int32()
			*into = int(n)
		case *Word:
			if r.Peek() == '0' {
				n, _ := r.integer()
				*into = Word(n)
				return
			}
			*into = Word(r.String())
		}
	}
}

// Array calls fn at each element of the list at hand. An element that fn leaves
// alone is skipped. Another type than a list, or null, is a fault.
func (r *JSONReader) Array(fn func(i int)) {
	if !r.is('[', "a list") {
		return
	}
	if r.at.mask != nil {
		r.wireArray(r.at, fn)
		return
	}
	r.token()
	for i := 0; r.Peek() != 0 && r.Peek() != ']'; i++ {
		r.visit(step{nil, i}, func() { fn(i) })
	}
	r.token()
}

// visit calls fn at the value at hand and skips the value if fn did not read it.
func (r *JSONReader) visit(at step, fn func()) {
	r.path = append(r.path, at)
	start := r.in.InputOffset()
	fn()
	if r.in.InputOffset() == start {
		r.Skip()
	}
	r.path = r.path[:len(r.path)-1]
}

func (r *JSONReader) token() {
	if r.err == nil {
		_, err := r.in.ReadToken()
		r.fail(err)
	}
}

// Raw reads one value of any type as it is written; nil after an error.
func (r *JSONReader) Raw() []byte {
	switch {
	case r.err != nil:
		return nil
	case r.at.mask != nil:
		return r.at.scalar()
	}
	v, err := r.in.ReadValue()
	r.fail(err)
	return v
}

// Skip steps over one value of any type.
func (r *JSONReader) Skip() {
	if r.at.mask == nil {
		r.Raw()
	}
}

// str reads a string; false if there is none: a null, or another type, which is
// a fault.
func (r *JSONReader) str() ([]byte, bool) {
	if !r.is('"', "a string") {
		return nil, false
	}
	s := r.quoted()
	return s, r.err == nil
}

// String reads a string; "" if there is none. It is shared if the reader shares any.
func (r *JSONReader) String() string {
	s, _ := r.str()
	if r.Share != nil {
		return r.Share(s)
	}
	return string(s)
}

// quoted reads the string at hand. What is not UTF-8 is replaced, as encoding/json
// does.
func (r *JSONReader) quoted() []byte {
	if s := r.at.field.Bytes; r.at.mask != nil && utf8.Valid(s) {
		return s
	}
	raw := r.Raw()
	if r.err != nil {
		return nil
	}
	if s := raw[1 : len(raw)-1]; bytes.IndexByte(s, '\\') < 0 && utf8.Valid(s) {
		return s
	}
	s, _ := jsontext.AppendUnquote(nil, raw)
	return s
}

// Boolean reads a boolean; false, false if there is none.
func (r *JSONReader) Boolean() (value, ok bool) {
	value = r.Peek() == 't'
	if !value && !r.is('f', "a boolean") {
		return false, false
	}
	r.Skip()
	return value, r.err == nil
}

// uint reads an integer from 0 to 2^64-1.
func (r *JSONReader) uint() (uint64, bool) {
	raw, ok := r.integer()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		r.Fault("is " + Clip(raw) + ", not an integer from 0 to 2^64-1")
	}
	return n, err == nil
}

// Int reads an integer; one beyond 64 bits gives the nearest that fits.
func (r *JSONReader) Int() (int64, bool) {
	raw, ok := r.integer()
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	return n, ok
}

// Int32 reads an integer; one beyond 32 bits gives the nearest that fits.
func (r *JSONReader) Int32() (int32, bool) {
	n, ok := r.Int()
	return int32(min(max(n, math.MinInt32), math.MaxInt32)), ok
}

// integer reads a number without fraction and exponent.
func (r *JSONReader) integer() ([]byte, bool) {
	if !r.is('0', "an integer") {
		return nil, false
	}
	raw := r.Raw()
	if bytes.ContainsAny(raw, ".eE") {
		r.Fault("is " + Clip(raw) + ", not an integer")
		return nil, false
	}
	return raw, r.err == nil
}

// fail keeps the first error.
func (r *JSONReader) fail(err error) {
	if r.err == nil && err != nil {
		r.errAt, r.err = SyntaxError(err, errTruncated, len(r.Text))
	}
}

var errTruncated = errors.New("unexpected end of JSON")

// wanted says in the words of this package what is wrong with JSON.
var wanted = strings.NewReplacer("invalid character ", "unexpected ", " at start of value", ", wanted a value",
	` at start of string (expecting '"')`, ", wanted a key", " after object name (expecting ':')", ", wanted a colon",
	" after object value (expecting ',' or '}')", ", wanted a comma or '}'", " after array element (expecting ',' or ']')", ", wanted a comma or ']'",
	" in number (expecting digit)", ", wanted a digit", " in string (expecting non-control character)", ", wanted no control character in a string",
	" after top-level value", ", wanted the end")

// SyntaxError returns what a decoder says is wrong with JSON, and where: at the end,
// for which cut is the error, if it is cut off.
func SyntaxError(err, cut error, end int) (int, error) {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return end, cut
	case !errors.As(err, &syntax):
		return end, err
	}
	text := syntax.Err.Error()
	if _, literal, ok := strings.Cut(text, " in literal "); ok {
		return int(syntax.ByteOffset), fmt.Errorf("unexpected %q, wanted a value", literal[0])
	}
	return int(syntax.ByteOffset), errors.New(wanted.Replace(text))
}

// CheckSyntax checks the whole of a JSON value and places the error.
func CheckSyntax(object []byte, document, line int) error {
	r := NewJSONReader(object)
	r.Skip()
	r.end()
	if r.err == nil {
		return nil
	}
	return &FileError{document, line + bytes.Count(object[:min(r.errAt, len(object))], []byte("\n")), r.err}
}

// Clip shortens a text for a message.
func Clip[T string | []byte](s T) string {
	const most = 60
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}

// FileError is a mistake in a file.
type FileError struct {
	// Document counts from 1, and so does Line; 0 where it is not known.
	Document, Line int
	Err            error
}

func (e *FileError) Error() string {
	at := "document " + strconv.Itoa(e.Document)
	if e.Line > 0 {
		at += ", line " + strconv.Itoa(e.Line)
	}
	return at + ": " + e.Err.Error()
}

func (e *FileError) Unwrap() error { return e.Err }

// ClipMessage puts a text of others on one line and shortens it.
func ClipMessage(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
