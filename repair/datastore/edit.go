package datastore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// edit changes single fields of an object by JSON patch. Each operation is derived from
// the object as it was read.
type edit struct {
	of   *object
	ops  []map[string]any
	back bool // the edit reverts an earlier write of the step
	// deletes is true if the object must be deleted after the edit.
	deletes bool
}

// newEdit starts an edit of an object. The patch fails if the object was replaced or
// written since.
func newEdit(o *object) *edit {
	e := &edit{of: o}
	e.test(o.uid(), "metadata", "uid")
	e.test(o.version(), "metadata", "resourceVersion")
	return e
}

// empty reports whether the edit changes nothing.
func (e *edit) empty() bool { return len(e.ops) == 2 }

// pointer formats a path of field names and array indexes as a JSON pointer (RFC 6901).
func pointer(path []any) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(p)))
	}
	return b.String()
}

func (e *edit) op(op string, value any, path []any) {
	e.ops = append(e.ops, map[string]any{"op": op, "path": pointer(path), "value": value})
}

func (e *edit) test(old any, path ...any) { e.op("test", old, path) }

// set sets a field or an array element, on condition that its old value is unchanged. It
// does nothing if the value is already the same.
func (e *edit) set(value any, path ...any) {
	old, exists := e.at(path)
	switch {
	case !exists:
		e.op("add", value, path)
	case scalar(old) && scalar(value) && old == value:
	default:
		e.test(old, path...)
		e.op("replace", value, path)
	}
}

func scalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// remove removes a field or an array element, on condition that its value is unchanged.
func (e *edit) remove(path ...any) {
	if old, exists := e.at(path); exists {
		e.test(old, path...)
		e.ops = append(e.ops, map[string]any{"op": "remove", "path": pointer(path)})
	}
}

// add appends to an array, which it creates if necessary.
func (e *edit) add(value any, path ...any) {
	if old, _ := e.at(path); old == nil {
		e.set([]any{value}, path...)
		return
	}
	e.op("add", value, append(slices.Clone(path), "-"))
}

// at returns the value at a path of the object as it was read.
func (e *edit) at(path []any) (any, bool) {
	var v any = e.of.tree
	for _, p := range path {
		switch at := v.(type) {
		case map[string]any:
			key, ok := p.(string)
			if !ok {
				return nil, false
			}
			if v, ok = at[key]; !ok {
				return nil, false
			}
		case []any:
			i, ok := p.(int)
			if !ok || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// maxOperations is the API server's limit of operations in one patch (apiserver
// pkg/endpoints/handlers/patch.go).
const maxOperations = 10000

// patch returns the patch and the object after it.
func (e *edit) patch() (patch, after []byte, err error) {
	if len(e.ops) > maxOperations {
		return nil, nil, fmt.Errorf("it takes %d changes, and the API server takes at most %d at once", len(e.ops), maxOperations)
	}
	if patch, err = json.Marshal(e.ops); err != nil {
		return nil, nil, err
	}
	ops, err := jsonpatch.DecodePatch(patch)
	if err == nil {
		after, err = ops.Apply(e.of.raw)
	}
	return patch, after, err
}

// number formats an integer as in an object.
func number[T int | uint64](n T) json.Number {
	if n < 0 {
		return json.Number(strconv.FormatInt(int64(n), 10))
	}
	return json.Number(strconv.FormatUint(uint64(n), 10))
}
