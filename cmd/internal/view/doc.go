// Package view writes reports, explanations and check documentation for people
// and programs.
//
// One file is one output, and all of them write the same [audit.Report]. What
// programs read (json, yaml, jsonpath, custom-columns, name) is the report as it
// is, with every digit of its counts; what people read (table, wide) is made for
// a terminal: wrapped to its width, coloured by severity only and readable
// without, and with control characters from the cluster made visible.
package view
