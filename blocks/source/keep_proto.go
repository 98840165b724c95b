package source

import (
	"bytes"
	"slices"
	"strconv"
	"time"
)

// appendProto appends what a shape keeps of a protobuf message to out, as the
// API server's JSON would have it. Fields that are empty are left out, as in JSON,
// but for those of a map.
func appendProto(out []byte, msg []byte, s *shape) ([]byte, error) {
	out = append(out, '{')
	first := true
	var failed error
	for _, p := range s.parts {
		var found [][]byte
		var number uint64
		within(&failed, msg, func(f protoField) {
			if int(f.num) != p.num {
				return
			}
			number = f.value
			found = append(found, f.bytes)
		})
		if len(found) == 0 {
			continue
		}
		last := found[len(found)-1]
		switch p.form {
		case formObject:
			out = appendKey(out, &first, p.key)
			var err error
			out, err = appendProto(out, bytes.Join(found, nil), p) // pieces of one message, if several
			keepFirst(&failed, err)
		case formList:
			if p.wants != nil {
				found = slices.DeleteFunc(found, func(element []byte) bool { return !p.wants(string(protoText(element, &failed))) })
			}
			if p.wants != nil && len(found) == 0 {
				continue
			}
			out = append(appendKey(out, &first, p.key), '[')
			for i, element := range found {
				if i > 0 {
					out = append(out, ',')
				}
				var err error
				out, err = appendProto(out, element, p.parts[0])
				keepFirst(&failed, err)
			}
			out = append(out, ']')
		case formMap, formQuantities:
			out = appendKey(out, &first, p.key)
			out = appendProtoMap(out, found, p, &failed)
		case formBool:
			out = append(appendKey(out, &first, p.key), strconv.FormatBool(number != 0)...)
		case formTime:
			if t := protoTime(last); !t.IsZero() {
				out = appendText(appendKey(out, &first, p.key), t.Format(time.RFC3339))
			}
		case formText:
			if len(last) > 0 {
				out = appendText(appendKey(out, &first, p.key), string(last))
			}
		}
	}
	return append(out, '}'), failed
}

// appendProtoMap appends a map, each of whose entries is a message of key and
// value.
func appendProtoMap(out []byte, entries [][]byte, s *shape, failed *error) []byte {
	out = append(out, '{')
	first := true
	for _, entry := range entries {
		keepFirst(failed, protoEntry(entry, func(key, value []byte) {
			if s.wants != nil && !s.wants(string(key)) {
				return
			}
			if s.form == formQuantities {
				value = protoText(value, failed)
			}
			out = appendText(appendKey(out, &first, string(key)), string(value))
		}))
	}
	return append(out, '}')
}

// protoText returns the text that a message holds first, such as its kind.
func protoText(msg []byte, failed *error) (text []byte) {
	within(failed, msg, func(f protoField) {
		if int(f.num) == 1 {
			text = f.bytes
		}
	})
	return text
}

func keepFirst(failed *error, err error) {
	if *failed == nil {
		*failed = err
	}
}
