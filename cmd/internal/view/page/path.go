package page

import (
	"strconv"
	"strings"
)

// path is the data of an SVG path.
type path struct{ strings.Builder }

func (d *path) write(op byte, numbers ...int) {
	var buf [64]byte
	out := append(buf[:0], op)
	for i, n := range numbers {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendInt(out, int64(n), 10)
	}
	d.Write(out)
}

func (d *path) rect(x, y, w, h int) *path {
	d.write('M', x, y)
	d.write('h', w)
	d.write('v', h)
	d.write('h', -w)
	d.WriteByte('z')
	return d
}

func (d *path) line(x, y, dx, dy int) *path {
	d.write('M', x, y)
	d.write('l', dx, dy)
	return d
}

// triangle adds a triangle in the upper right corner of a box.
func (d *path) triangle(x, y, w, h int) *path {
	d.write('M', x, y)
	d.write('h', w)
	d.write('v', h)
	d.WriteByte('z')
	return d
}
