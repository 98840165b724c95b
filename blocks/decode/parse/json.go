// Package parse parses objects value by value, from JSON or from protobuf, which it presents as the
// API server's JSON. A [Mask] selects the fields.
package parse

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// Reader reads an object value by value. A value of the wrong type is recorded as a
// fault with its path and skipped; reading continues after it. 64-bit integers keep all
// digits. Values that no decoder reads, which are most of an object, are skipped. If an
// object has a key twice, both values are read.
//
// Returned byte slices point into the text where possible.
type Reader struct {
	// Text is the JSON text or protobuf message.
	Text []byte
	in   *jsontext.Decoder
	text bytes.Buffer // the input of in, if that is Text
	at   wire         // the current value of a protobuf message
	// err is the first syntax error. All methods return immediately after it.
	err   error
	errAt int    // its offset in the text
	path  []step // path of the current value
	// Odd counts the kept values that are not of their mask's type, for the caller.
	Odd int
	// Share, if set, deduplicates equal strings.
	Share func([]byte) string
	// Faults are the unexpected values of the current object.
	Faults []Fault
}

// step is one step of a path: a key, or an index if that is not negative.
type step struct {
	key   []byte
	index int
}

// Fault is a value that its field does not allow.
type Fault struct{ Field, Reason string }

// maxFaults limits the faults recorded per object.
const maxFaults = 20

// maxDepth limits the nesting of values.
const maxDepth = 10_000

// Lenient makes jsontext accept what encoding/json accepts.
var Lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// New returns a reader before the only value of a text.
func New(text []byte) *Reader {
	r := &Reader{in: new(jsontext.Decoder)}
	r.Reset(text)
	return r
}

// NewStream returns a reader before the only value of a stream. Text, Ahead and End are for texts.
func NewStream(from io.Reader) *Reader { return &Reader{in: jsontext.NewDecoder(from, Lenient...)} }

// Reset starts reading another text. Earlier results of the reader must no longer be in
// use.
func (r *Reader) Reset(text []byte) {
	*r = Reader{Text: text, in: r.in, text: *bytes.NewBuffer(text), path: r.path[:0], Share: r.Share, Faults: r.Faults[:0]}
	r.in.Reset(&r.text, Lenient...)
}

// Peek returns the kind of the current value by its first byte, '0' for all numbers. It
// returns 0 at the end or after an error.
func (r *Reader) Peek() byte {
	switch {
	case r.err != nil:
		return 0
	case r.at.mask != nil:
		return r.at.kind()
	}
	return byte(r.in.PeekKind())
}

// pos returns the offset of the current value in the text.
func (r *Reader) pos() int { return len(r.Text) - len(bytes.TrimLeft(r.rest(), ",: \n\r\t")) }

// rest returns the unread text.
func (r *Reader) rest() []byte {
	r.Peek()
	return r.in.UnreadBuffer()
}

// AtEnd reports whether only white space remains.
func (r *Reader) AtEnd() bool { return len(bytes.TrimLeft(r.rest(), " \n\r\t")) == 0 }

// End sets an error unless only white space remains.
func (r *Reader) End() {
	if rest := bytes.TrimLeft(r.rest(), " \n\r\t"); r.err == nil && len(rest) > 0 {
		c, _ := utf8.DecodeRune(rest)
		r.err, r.errAt = fmt.Errorf("invalid character %q after top-level value", c), len(r.Text)-len(rest)
	}
}

// Fault records a fault of the current value.
func (r *Reader) Fault(reason string) {
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, Fault{r.field(), reason})
	}
}

// FaultAt records a fault of a field below the current value.
func (r *Reader) FaultAt(field, reason string) {
	if at := r.field(); at != "" {
		field = at + "." + field
	}
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, Fault{field, reason})
	}
}

// field returns the path of the current value in the current object, such as
// "spec.reservedCIDRs[1]". Keys that are not plain names (labels, CIDRs) are in brackets.
func (r *Reader) field() string {
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

// kindNames names the actual types of values in faults.
var kindNames = map[byte]string{'{': "an object", '[': "a list", '"': "a string", 't': "a boolean", 'f': "a boolean", '0': "a number"}

// is reports whether the current value has the given kind. If not, it skips the value and
// records a fault. Null counts as absent, without a fault, as in the Kubernetes API.
func (r *Reader) is(kind byte, wanted string) bool {
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

// Null skips a null and reports whether there was one.
func (r *Reader) Null() bool {
	if r.Peek() != 'n' {
		return false
	}
	r.Skip()
	return r.err == nil
}

// Object calls fn for each member of the current object. If fn does not read the value, it
// is skipped. Object returns false without an object: for null, or for another type, which
// is a fault.
func (r *Reader) Object(fn func(key []byte)) bool {
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

// Members maps keys to destinations for their values: a pointer to a string, bool, int or
// [Word], or a function that reads the current value. A value of another type sets zero.
type Members map[string]any

// Word is a string, or a number as written.
type Word string

// Fields reads the known members of the current object, and reports whether there is an
// object, as [Reader.Object] does.
func (r *Reader) Fields(known Members) bool { return r.Object(r.Known(known)) }

// Known returns a function that reads a known member.
func (r *Reader) Known(known Members) func(key []byte) {
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

// Array calls fn for each element of the current list. If fn does not read the element, it
// is skipped. Another type than a list is a fault; null is an empty list.
func (r *Reader) Array(fn func(i int)) {
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

// visit calls fn for the current value and skips the value if fn did not read it.
func (r *Reader) visit(at step, fn func()) {
	r.path = append(r.path, at)
	start := r.in.InputOffset()
	fn()
	if r.in.InputOffset() == start {
		r.Skip()
	}
	r.path = r.path[:len(r.path)-1]
}

func (r *Reader) token() {
	if r.err == nil {
		_, err := r.in.ReadToken()
		r.fail(err)
	}
}

// Raw reads one value of any type, as written; nil after an error.
func (r *Reader) Raw() []byte {
	switch {
	case r.err != nil:
		return nil
	case r.at.mask != nil:
		return r.at.appendScalar(nil)
	}
	v, err := r.in.ReadValue()
	r.fail(err)
	return v
}

// Skip skips one value of any type.
func (r *Reader) Skip() {
	if r.at.mask == nil {
		r.Raw()
	}
}

// Bytes reads a string. It returns false for null, and for other types, which are a fault.
func (r *Reader) Bytes() ([]byte, bool) {
	if !r.is('"', "a string") {
		return nil, false
	}
	s := r.quoted()
	return s, r.err == nil
}

// String reads a string and shares it if Share is set; "" if there is none.
func (r *Reader) String() string {
	s, _ := r.Bytes()
	if r.Share != nil {
		return r.Share(s)
	}
	return string(s)
}

// quoted reads the current string. Invalid UTF-8 is replaced, as in encoding/json.
func (r *Reader) quoted() []byte {
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
func (r *Reader) Boolean() (value, ok bool) {
	value = r.Peek() == 't'
	if !value && !r.is('f', "a boolean") {
		return false, false
	}
	r.Skip()
	return value, r.err == nil
}

// Uint reads an integer from 0 to 2^64-1.
func (r *Reader) Uint() (uint64, bool) {
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

// Int reads an integer. Values beyond 64 bits become the nearest int64.
func (r *Reader) Int() (int64, bool) {
	raw, ok := r.integer()
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	return n, ok
}

// Int32 reads an integer. Values beyond 32 bits become the nearest int32.
func (r *Reader) Int32() (int32, bool) {
	n, ok := r.Int()
	return int32(min(max(n, math.MinInt32), math.MaxInt32)), ok
}

// integer reads a number without fraction. Programs that read JSON into floats write integers as 26.0
// and 1.7e+18, so a dump may have passed through one; the API server writes neither.
func (r *Reader) integer() ([]byte, bool) {
	if !r.is('0', "an integer") {
		return nil, false
	}
	raw := r.Raw()
	if bytes.ContainsAny(raw, ".eE") {
		f, _ := strconv.ParseFloat(string(raw), 64)
		if f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
			r.Fault("is " + Clip(raw) + ", not an integer")
			return nil, false
		}
		return strconv.AppendInt(nil, int64(f), 10), r.err == nil
	}
	return raw, r.err == nil
}

// fail keeps the first error.
func (r *Reader) fail(err error) {
	if r.err == nil && err != nil {
		r.errAt, r.err = SyntaxError(err, errTruncated, len(r.Text))
	}
}

var errTruncated = errors.New("unexpected end of JSON")

// SyntaxError returns the offset and the error of invalid JSON. For truncated JSON it
// returns end and cut.
func SyntaxError(err, cut error, end int) (int, error) {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return end, cut
	case !errors.As(err, &syntax):
		return end, err
	}
	return int(syntax.ByteOffset), syntax.Err
}

// CheckSyntax checks a complete JSON value and locates the error.
func CheckSyntax(object []byte, document, line int) error {
	r := New(object)
	r.Skip()
	r.End()
	if r.err == nil {
		return nil
	}
	return &FileError{document, line + bytes.Count(object[:min(r.errAt, len(object))], []byte("\n")), r.err}
}

// FileError is an error at a position in a file.
type FileError struct {
	// Document and Line count from 1; Line is 0 if unknown.
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

// Err returns the first error: a syntax error, or that of Stop; nil if there is none.
func (r *Reader) Err() error { return r.err }

// Stop ends the reading with an error.
func (r *Reader) Stop(err error) { r.err = cmp.Or(r.err, err) }

// Mask returns the mask of the current value of a protobuf message; nil for JSON.
func (r *Reader) Mask() *Mask { return r.at.mask }

// Ahead returns a string member of the current object, without consuming the object.
func (r *Reader) Ahead(member string) (text string) {
	New(r.Text[r.pos():]).Fields(Members{member: &text})
	return text
}

// asWritten preserves the spelling of strings.
var asWritten = append(slices.Clone(Lenient), jsontext.PreserveRawStrings(true))

// AppendRaw appends the current value as written, without white space.
func (r *Reader) AppendRaw(out []byte) []byte {
	if r.at.mask != nil {
		return r.at.appendScalar(out)
	}
	raw := r.Raw()
	if r.err == nil {
		out, r.err = jsontext.AppendFormat(out, raw, asWritten...)
	}
	return out
}

// Quietly calls read and drops its faults.
func (r *Reader) Quietly(read func()) {
	before := len(r.Faults)
	read()
	r.Faults = r.Faults[:before]
}

// AsOne reports all faults of a list as one. A fault names the index of its entry, and that differs
// in a saved snapshot, which keeps only some entries.
func (r *Reader) AsOne(read func()) {
	before := len(r.Faults)
	if read(); len(r.Faults) > before {
		r.Faults = r.Faults[:before]
		r.Fault("has an entry that cannot be parsed")
	}
}

// Time decodes a time in RFC 3339; the zero time if it is invalid.
func (r *Reader) Time() time.Time {
	if r.Mask() != nil {
		return protobuf.Time(r.at.field.Bytes)
	}
	s, ok := r.Bytes()
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, string(s))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
