package metrics

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// rendered is the shared beginning of many scrapes, as text and as the beginning of a gzip
// stream. It is flushed, so that later text can be compressed independently.
type rendered struct {
	text, packed []byte
	sum          uint32 // the CRC-32 of text
}

func render(s samples) (*rendered, error) {
	text := s.text()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(text)
	}
	if err == nil {
		err = z.Flush()
	}
	return &rendered{text: text, packed: bytes.Clone(packed.Bytes()), sum: crc32.ChecksumIEEE(text)}, err
}

// packedWith compresses more text and returns the end of a gzip stream that begins with
// packed (RFC 1952).
func (r *rendered) packedWith(more []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		_, err = z.Write(more)
	}
	if err == nil {
		err = z.Close()
	}
	end := binary.LittleEndian.AppendUint32(b.Bytes(), crc32.Update(r.sum, crc32.IEEETable, more))
	return binary.LittleEndian.AppendUint32(end, uint32(len(r.text)+len(more))), err
}

// metrics serves metrics. For Prometheus' text format it reuses the text that was rendered
// with the audit. Other formats, and requests for single families, go through promhttp.
func (e *Exporter) metrics() http.HandlerFunc {
	process := processMetrics()
	return func(w http.ResponseWriter, r *http.Request) {
		a := e.Current()
		format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
		if a == nil || format.FormatType() != expfmt.TypeTextPlain || r.URL.RawQuery != "" {
			metricsOf(e.Log, process, func() ([]*dto.MetricFamily, error) { return e.families(a) })(w, r)
			return
		}
		own, err := process.Gather()
		if err != nil {
			e.Log.Error("the metrics of the process are incomplete", "error", err)
		}
		more, err := withFamilies(e.live(a).text(), own)
		parts := [][]byte{a.scrape.text, more}
		if err == nil && wantsGzip(r) {
			w.Header().Set("Content-Encoding", "gzip")
			parts[0] = a.scrape.packed
			parts[1], err = a.scrape.packedWith(more)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		w.Header().Set("Vary", "Accept, Accept-Encoding")
		w.Header().Set("Content-Length", strconv.Itoa(len(parts[0])+len(parts[1])))
		for _, p := range parts {
			_, _ = w.Write(p) // an error means that the client disconnected
		}
	}
}

// withFamilies appends families in Prometheus' text format.
func withFamilies(text []byte, families []*dto.MetricFamily) ([]byte, error) {
	b := bytes.NewBuffer(text)
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// families returns the exporter's families; a is nil before the first audit.
func (e *Exporter) families(a *Audit) ([]*dto.MetricFamily, error) {
	all := e.live(a).text()
	if a != nil {
		all = append(all, a.scrape.text...)
	}
	return parse(all)
}
