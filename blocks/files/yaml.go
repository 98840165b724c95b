package files

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// DocumentJSON returns the one document of a text in YAML or JSON as JSON. Integers
// keep their digits, up to 64 bits. An empty document gives nil.
func DocumentJSON(text []byte) ([]byte, error) {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		return start, nil
	}
	return yamlToJSON(text)
}

// yamlToJSON turns one YAML document into JSON, as kubectl does. Integers keep their
// digits, up to 64 bits. An empty document gives nil.
//
// A key that the document itself has twice is an error, as where two documents follow
// each other with nothing between them: one of them would be lost without a word.
// Further down the last of two counts.
func yamlToJSON(doc []byte) ([]byte, error) {
	if bytes.IndexByte(doc, '&') >= 0 && bytes.IndexByte(doc, '*') >= 0 {
		var resolved any // a text that many aliases name is in memory once, and in JSON many times
		if err := goyaml.Unmarshal(doc, &resolved); err == nil && tooLarge(resolved) {
			return nil, errTooLarge
		}
	}
	out, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		again := keyAgain.FindAllStringSubmatch(err.Error(), -1)
		for _, m := range again {
			if line, _ := strconv.Atoi(m[1]); beginsWith(doc, line, m[2]) {
				return nil, fmt.Errorf("line %d: the key %q is there twice; is a line \"---\" missing between two documents?", line, m[2])
			}
		}
		if len(again) > 0 {
			out, err = yaml.YAMLToJSON(doc)
		}
	}
	if err != nil || string(out) == "null" {
		return nil, err
	}
	return out, nil
}

// tooLarge reports whether the texts of a value have more than maxObject bytes.
func tooLarge(value any) bool {
	left := maxObject
	var count func(any)
	count = func(value any) {
		switch v := value.(type) {
		case string:
			left -= len(v)
		case []any:
			for i := 0; i < len(v) && left > 0; i++ {
				count(v[i])
			}
		case map[any]any:
			for key, x := range v {
				if left > 0 {
					count(key)
					count(x)
				}
			}
		}
		left--
	}
	count(value)
	return left <= 0
}

// keyAgain matches what the parser says of a key that a mapping has already.
var keyAgain = regexp.MustCompile(`line (\d+): key "?(.+?)"? already set in map`)

// beginsWith reports whether a line of a document, counted from 1, begins with a key of
// the document itself, which is indented no more than what comes first.
func beginsWith(doc []byte, line int, key string) bool {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	lines := strings.Split(string(doc), "\n")
	first := 0
	for first < len(lines)-1 && (strings.TrimSpace(lines[first]) == "" || strings.ContainsAny(strings.TrimSpace(lines[first])[:1], "#%")) {
		first++
	}
	return line <= len(lines) && indent(lines[line-1]) <= indent(lines[first]) &&
		strings.HasPrefix(strings.TrimLeft(lines[line-1], ` "'`), key)
}
