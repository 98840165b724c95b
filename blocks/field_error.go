package blocks

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// jsonWords maps encoding/json's names of JSON types to words for messages.
var jsonWords = map[string]string{
	"object": "an object", "array": "a list", "string": "a string", "number": "a number", "bool": "true or false",
}

// FieldError rewrites a type error of encoding/json in terms of JSON instead of Go types,
// and keeps the text around it. Other errors are returned unchanged.
func FieldError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	said := cmp.Or(wrong.Field, "it")
	if number, ok := strings.CutPrefix(wrong.Value, "number "); ok {
		said += " cannot be " + number
	} else {
		said += " is " + jsonWords[wrong.Value] + ", not " + jsonWords[jsonType(wrong.Type)]
	}
	return errors.New(strings.Replace(err.Error(), wrong.Error(), said, 1))
}

// jsonType returns the JSON type that encodes a Go type.
func jsonType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "string"
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	default: // only numbers remain
		return "number"
	}
}
