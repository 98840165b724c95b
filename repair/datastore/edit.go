package datastore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// edit is a change of single fields of an object: a JSON patch, and the object as
// it will be.
type edit struct {
	ops  []map[string]any
	tree map[string]any
	err  error
	back bool // it takes an earlier write of the step back
}

// newEdit begins a change of an object. The patch fails if the object is another or
// was written since.
func newEdit(o *object) *edit {
	e := &edit{tree: deepCopy(o.tree).(map[string]any)}
	e.test(o.uid(), "metadata", "uid")
	e.test(o.version(), "metadata", "resourceVersion")
	return e
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for k, field := range out {
			out[k] = deepCopy(field)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, element := range out {
			out[i] = deepCopy(element)
		}
		return out
	}
	return v
}

// empty tells whether nothing is to be changed.
func (e *edit) empty() bool { return len(e.ops) == 2 }

// pointer writes a path of field names and array indexes as a JSON pointer (RFC
// 6901).
func pointer(path []any) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(p)))
	}
	return b.String()
}

func (e *edit) op(op string, path []any) {
	e.ops = append(e.ops, map[string]any{"op": op, "path": pointer(path)})
}

func (e *edit) opValue(op string, value any, path []any) {
	e.ops = append(e.ops, map[string]any{"op": op, "path": pointer(path), "value": value})
}

func (e *edit) test(old any, path ...any) { e.opValue("test", old, path) }

// set gives a field or an element of an array a value, under the condition that it
// has the one it had. Nothing is to be changed where it is so already.
func (e *edit) set(value any, path ...any) {
	old, exists := e.at(path)
	switch {
	case !exists:
		e.opValue("add", value, path)
	case sameValue(old, value):
		return
	default:
		e.test(old, path...)
		e.opValue("replace", value, path)
	}
	e.change(path, func(parent any, key any) any {
		switch parent := parent.(type) {
		case map[string]any:
			parent[key.(string)] = value
			return parent
		case []any:
			parent[key.(int)] = value
			return parent
		}
		return nil
	})
}

func sameValue(a, b any) bool {
	switch a.(type) {
	case map[string]any, []any:
		return false
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// remove takes a field or an element of an array away, under the condition that it
// is as it was.
func (e *edit) remove(path ...any) {
	old, exists := e.at(path)
	if !exists {
		return
	}
	e.test(old, path...)
	e.op("remove", path)
	e.change(path, func(parent any, key any) any {
		switch parent := parent.(type) {
		case map[string]any:
			delete(parent, key.(string))
			return parent
		case []any:
			return slices.Delete(parent, key.(int), key.(int)+1)
		}
		return nil
	})
}

// add appends to an array, which is made if there is none.
func (e *edit) add(value any, path ...any) {
	if old, _ := e.at(path); old == nil {
		e.set([]any{value}, path...)
		return
	}
	e.opValue("add", value, append(slices.Clone(path), "-"))
	e.change(append(slices.Clone(path), 0), func(parent any, _ any) any {
		list, ok := parent.([]any)
		if !ok {
			return nil
		}
		return append(list, value)
	})
}

// at returns what is at a path of the object as it will be.
func (e *edit) at(path []any) (any, bool) {
	var v any = e.tree
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

// change has f change the parent of what is at a path, and puts the parent that f
// returns in its place; nil means that the path is impossible.
func (e *edit) change(path []any, f func(parent, key any) any) {
	parentPath, key := path[:len(path)-1], path[len(path)-1]
	parent, ok := e.at(parentPath)
	if ok {
		parent = f(parent, key)
	}
	if !ok || parent == nil {
		e.fail("%s cannot be written: there is nothing to hold it", pointer(path))
		return
	}
	if len(parentPath) == 0 {
		return
	}
	grand, _ := e.at(parentPath[:len(parentPath)-1])
	switch grand := grand.(type) {
	case map[string]any:
		grand[parentPath[len(parentPath)-1].(string)] = parent
	case []any:
		grand[parentPath[len(parentPath)-1].(int)] = parent
	}
}

func (e *edit) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// maxOperations is how many operations the API server takes in one patch
// (apiserver pkg/endpoints/handlers/patch.go).
const maxOperations = 10000

// patch returns the patch and the object as it will be.
func (e *edit) patch() (patch, after []byte, err error) {
	if e.err == nil && len(e.ops) > maxOperations {
		e.fail("it takes %d changes, and the API server takes at most %d at once", len(e.ops), maxOperations)
	}
	if e.err != nil {
		return nil, nil, e.err
	}
	if patch, err = json.Marshal(e.ops); err != nil {
		return nil, nil, err
	}
	after, err = json.Marshal(e.tree)
	return patch, after, err
}

// number writes an integer as it stands in an object.
func number[T int | uint64](n T) json.Number {
	if n < 0 {
		return json.Number(strconv.FormatInt(int64(n), 10))
	}
	return json.Number(strconv.FormatUint(uint64(n), 10))
}
