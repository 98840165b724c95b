package view

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// escapeUnprintable writes the characters in JSON or YAML that a terminal might
// act upon, or that hide or reorder others, as escapes. The value stays the same:
// in JSON such characters stand in strings only, and in YAML [yamlString] sees to
// it that they stand in double quotes. Those below U+0080 the encoders escape.
func escapeUnprintable(data []byte, long func(r rune) string) []byte {
	if bytes.IndexFunc(data, unprintable) < 0 {
		return data
	}
	var b bytes.Buffer
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case !unprintable(r):
			b.Write(data[:n])
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(long(r))
		}
		data = data[n:]
	}
	return b.Bytes()
}

func unprintable(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }
