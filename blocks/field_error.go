package blocks

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// jsonWords are the types of JSON as encoding/json calls them, in the words of a message.
var jsonWords = map[string]string{
	"object": "an object", "array": "a list", "string": "a string", "number": "a number", "bool": "true or false",
}

// FieldError says which field of a document holds what it cannot hold, where encoding/json
// says it in the words of Go's types; what is said around that stays. Any other error is
// returned as it is.
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

// jsonType is the type that JSON writes a value of a Go type as.
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
	default: // of what JSON has, only numbers are left
		return "number"
	}
}
