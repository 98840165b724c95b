package files

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
)

// listItems emits the items of the current list, and then the list.
type listItems struct {
	emit    func(RawObject) error
	endList func(RawObject) error
	// kind and version are the list's, once known.
	kind, version string
	// Items without a kind that precede the list's kind must wait: in memory, or in a file
	// once there are many.
	waiting []RawObject // without their JSON
	sizes   []int
	held    bytes.Buffer
	file    *os.File
}

// maxWaiting is how many bytes of items may wait in memory.
const maxWaiting = 1 << 20

// begin starts a list. head may contain its kind.
func (l *listItems) begin(head []byte) {
	l.kind, l.version = kindAndVersion(head)
}

// item emits an item, or lets it wait if it needs the list's kind.
func (l *listItems) item(o RawObject) error {
	if l.kind == "" {
		if kind, _ := kindAndVersion(o.JSON); kind == "" {
			return l.wait(o)
		}
	}
	o.listKind, o.listVersion = l.kind, l.version
	return l.emit(o)
}

func (l *listItems) wait(o RawObject) error {
	l.sizes = append(l.sizes, len(o.JSON))
	l.held.Write(o.JSON)
	o.JSON = nil
	l.waiting = append(l.waiting, o)
	if l.held.Len() <= maxWaiting {
		return nil
	}
	if l.file == nil {
		file, err := os.CreateTemp("", "calico-audit-list-")
		if err != nil {
			return fmt.Errorf("keeping the items of a list whose kind comes after them: %w", err)
		}
		l.file = file
		_ = os.Remove(file.Name()) // the file vanishes when it is closed
	}
	_, err := l.held.WriteTo(l.file)
	return err
}

// end emits the waiting items, and the list without its items.
func (l *listItems) end(list RawObject) error {
	defer l.drop()
	l.kind, l.version = kindAndVersion(list.JSON)
	var in io.Reader = &l.held
	if l.file != nil {
		if _, err := l.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		in = io.MultiReader(bufio.NewReaderSize(l.file, 1<<16), &l.held)
	}
	var text []byte
	for i, o := range l.waiting {
		text = append(text[:0], make([]byte, l.sizes[i])...)
		if _, err := io.ReadFull(in, text); err != nil {
			return err
		}
		o.JSON, o.listKind, o.listVersion = text, l.kind, l.version
		if err := l.emit(o); err != nil {
			return err
		}
	}
	return l.endList(list)
}

// drop discards the current list.
func (l *listItems) drop() {
	if l.file != nil {
		_ = l.file.Close()
	}
	l.kind, l.version, l.waiting, l.sizes, l.file = "", "", nil, nil, nil
	l.held.Reset()
}
