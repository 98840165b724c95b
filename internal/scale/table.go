package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A table is a Markdown table with a row for each figure and a column for each program.
type table struct {
	title         string
	rows, columns []string
	cells         map[[2]string]string
}

func newTable(title string) *table { return &table{title: title, cells: map[[2]string]string{}} }

func (t *table) set(row, column, text string) {
	if text == "" {
		return
	}
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	t.cells[[2]string{row, column}] = text
}

func (t *table) write(w io.Writer) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### %s\n\n| | %s |\n|---|%s\n", t.title, strings.Join(t.columns, " | "), strings.Repeat("---|", len(t.columns)))
	for _, row := range t.rows {
		cells := []string{row}
		for _, column := range t.columns {
			cells = append(cells, t.cells[[2]string{row, column}])
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}
