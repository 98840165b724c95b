package source

import (
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string; false if there is none: a null, or another type, which is
// a fault.
func (r *jsonReader) str() ([]byte, bool) {
	if r.peek() != '"' {
		if !r.null() {
			r.mismatch("a string")
		}
		return nil, false
	}
	s := r.quoted()
	return s, r.err == nil
}

// boolean reads a boolean; false, false if there is none.
func (r *jsonReader) boolean() (value, ok bool) {
	switch r.peek() {
	case 't':
		r.word("true")
		return true, r.err == nil
	case 'f':
		r.word("false")
		return false, r.err == nil
	}
	if !r.null() {
		r.mismatch("a boolean")
	}
	return false, false
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
		return 0, false
	}
	return n, true
}

// int reads an integer; one beyond 64 bits gives the nearest that fits.
func (r *jsonReader) int() (int64, bool) {
	raw, ok := r.integer()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil { // out of range: ParseInt returns the nearest
		return n, true
	}
	return n, true
}

// int32 reads an integer; one beyond 32 bits gives the nearest that fits.
func (r *jsonReader) int32() (int32, bool) {
	n, ok := r.int()
	return int32(min(max(n, math.MinInt32), math.MaxInt32)), ok
}

// integer reads a number without fraction and exponent.
func (r *jsonReader) integer() ([]byte, bool) {
	c := r.peek()
	if c != '-' && (c < '0' || c > '9') {
		if !r.null() {
			r.mismatch("an integer")
		}
		return nil, false
	}
	raw := r.number()
	for _, c := range raw {
		if c == '.' || c == 'e' || c == 'E' {
			r.fault("is " + clip(raw) + ", not an integer")
			return nil, false
		}
	}
	return raw, r.err == nil
}

// number reads a number as it is written.
func (r *jsonReader) number() []byte {
	start := r.pos
	if r.at('-') {
		r.pos++
	}
	switch {
	case r.at('0'):
		r.pos++
	case !r.digits():
		return nil
	}
	if r.at('.') {
		r.pos++
		if !r.digits() {
			return nil
		}
	}
	if r.at('e') || r.at('E') {
		r.pos++
		if r.at('+') || r.at('-') {
			r.pos++
		}
		if !r.digits() {
			return nil
		}
	}
	return r.text[start:r.pos]
}

func (r *jsonReader) at(c byte) bool { return r.pos < len(r.text) && r.text[r.pos] == c }

func (r *jsonReader) digits() bool {
	start := r.pos
	for r.pos < len(r.text) && r.text[r.pos] >= '0' && r.text[r.pos] <= '9' {
		r.pos++
	}
	if r.pos == start {
		r.failAt("a digit")
		return false
	}
	return true
}

// scan steps over the string at hand and tells where its content lies, and
// whether it holds nothing but plain ASCII.
func (r *jsonReader) scan() (from, to int, plain bool) {
	r.pos++
	from, plain = r.pos, true
	for i := r.pos; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			r.pos = i + 1
			return from, i, plain
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			r.pos = i
			r.failAt("no control character in a string")
			return from, from, true
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	r.pos = len(r.text)
	r.failAt("a quote")
	return from, from, true
}

func (r *jsonReader) skipQuoted() {
	if from, to, plain := r.scan(); !plain {
		r.unquote(from, to, nil)
	}
}

// quoted reads the string at hand.
func (r *jsonReader) quoted() []byte {
	from, to, plain := r.scan()
	s := r.text[from:to]
	if plain {
		return s
	}
	if utf8.Valid(s) && !hasByte(s, '\\') {
		return s
	}
	return r.unquote(from, to, make([]byte, 0, to-from))
}

func hasByte(s []byte, c byte) bool {
	for _, x := range s {
		if x == c {
			return true
		}
	}
	return false
}

// unquote resolves escapes, and replaces what is not UTF-8, as encoding/json
// does. With a nil out it checks only.
func (r *jsonReader) unquote(from, to int, out []byte) []byte {
	put := out != nil
	for i := from; i < to; {
		c := r.text[i]
		switch {
		case c == '\\':
			ru, n := r.escape(i, to)
			if n == 0 {
				return nil
			}
			if put {
				out = utf8.AppendRune(out, ru)
			}
			i += n
		case c < utf8.RuneSelf:
			if put {
				out = append(out, c)
			}
			i++
		default:
			ru, n := utf8.DecodeRune(r.text[i:to])
			if put {
				out = utf8.AppendRune(out, ru)
			}
			i += n
		}
	}
	return out
}

// escape resolves the escape at i and returns its rune and length; 0 after an
// error.
func (r *jsonReader) escape(i, to int) (rune, int) {
	if i+1 < to {
		switch c := r.text[i+1]; c {
		case '"', '\\', '/':
			return rune(c), 2
		case 'b':
			return '\b', 2
		case 'f':
			return '\f', 2
		case 'n':
			return '\n', 2
		case 'r':
			return '\r', 2
		case 't':
			return '\t', 2
		case 'u':
			if ru, ok := r.hex4(i+2, to); ok {
				if !utf16.IsSurrogate(ru) {
					return ru, 6
				}
				if i+7 < to && r.text[i+6] == '\\' && r.text[i+7] == 'u' {
					if low, ok := r.hex4(i+8, to); ok {
						if both := utf16.DecodeRune(ru, low); both != utf8.RuneError {
							return both, 12
						}
					}
				}
				return utf8.RuneError, 6
			}
		}
	}
	r.pos = i
	r.failAt("a known escape")
	return 0, 0
}

func (r *jsonReader) hex4(i, to int) (rune, bool) {
	if i+4 > to {
		return 0, false
	}
	var ru rune
	for _, c := range r.text[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		ru = ru<<4 | rune(c)
	}
	return ru, true
}

// clip shortens a text for a message.
func clip[T string | []byte](s T) string {
	const most = 60
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}
