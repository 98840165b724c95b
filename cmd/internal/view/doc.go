// Package view writes reports, explanations, plans and check documentation for people
// and programs.
//
// A command has [Formats] of the type that it prints; one file has those of one type.
// What programs read (json, yaml, jsonpath, custom-columns, name) is the value as it
// is, with every digit of its counts; what people read (table, wide, map) goes through
// a printer for a terminal: wrapped to its width, coloured by severity only and
// readable without, and with control characters from the cluster made visible. What
// tickets get is filled into the templates of markdown.tmpl. The page of HTML is
// package page.
package view
