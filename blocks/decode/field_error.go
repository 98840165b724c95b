package decode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// jsonWords are the types of JSON as encoding/json calls them, in the words of a message.
var jsonWords = map[string]string{
	"object": "an object", "array": "a list", "string": "a string", "number": "a number", "bool": "true or false",
}

// FieldError says which field of a document holds what it cannot hold, where encoding/json
// says it in the words of Go's types. Any other error is returned as it is.
func FieldError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	field := cmp.Or(wrong.Field, "it")
	if number, ok := strings.CutPrefix(wrong.Value, "number "); ok {
		return fmt.Errorf("%s cannot be %s", field, number)
	}
	want := "number"
	switch wrong.Type.Kind() {
	case reflect.Struct, reflect.Map:
		want = "object"
	case reflect.Slice, reflect.Array:
		want = "array"
	case reflect.String:
		want = "string"
	case reflect.Bool:
		want = "bool"
	default: // of what JSON has, only numbers are left
	}
	return fmt.Errorf("%s is %s, not %s", field, jsonWords[wrong.Value], jsonWords[want])
}
