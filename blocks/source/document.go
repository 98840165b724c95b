package source

import "bytes"

// DocumentJSON returns the one document of a text in YAML or JSON as JSON. Numbers
// keep their digits, however many they have. An empty document gives nil.
func DocumentJSON(text []byte) ([]byte, error) {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		return start, nil
	}
	return yamlToJSON(text)
}
