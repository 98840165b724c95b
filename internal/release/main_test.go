package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestImages checks that each platform has an image with a non-root user and only the
// program, and that every digest and size is right.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	var binaries []string
	for _, p := range []string{"linux_amd64", "linux_arm64"} {
		path := filepath.Join(dir, "calico-audit_v1_"+p)
		if err := os.WriteFile(path, []byte("program of "+p), 0o600); err != nil {
			t.Fatal(err)
		}
		binaries = append(binaries, path)
	}
	layout := filepath.Join(dir, "image")
	if err := writeImages(layout, binaries); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(layout, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	blob := func(d descriptor, mediaType string) []byte {
		t.Helper()
		text := read(filepath.Join("blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")))
		if digest(text) != d.Digest || len(text) != d.Size || d.MediaType != mediaType {
			t.Errorf("%+v is %d bytes, %s", d, len(text), digest(text))
		}
		return text
	}
	decode := func(text []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(read("oci-layout")); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", got)
	}
	var index manifest
	if decode(read("index.json"), &index); len(index.Manifests) != 2 || index.MediaType != indexType {
		t.Fatalf("the index is %+v", index)
	}
	for _, d := range index.Manifests {
		var m manifest
		decode(blob(d, manifestType), &m)
		var c imageConfig
		decode(blob(*m.Config, configType), &c)
		if c.platform != *d.Platform || c.Config.User != "65532:65532" || c.Config.Entrypoint[0] != program || len(m.Layers) != 1 {
			t.Errorf("the image of %v: %+v", d.Platform, c)
		}
		z, err := gzip.NewReader(bytes.NewReader(blob(m.Layers[0], layerType)))
		if err != nil {
			t.Fatal(err)
		}
		files, err := io.ReadAll(z)
		if err != nil || c.RootFS.DiffIDs[0] != digest(files) {
			t.Errorf("the layer is %s, and %v is told: %v", digest(files), c.RootFS, err)
		}
		var names []string
		for r := tar.NewReader(bytes.NewReader(files)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
			if text, _ := io.ReadAll(r); h.Typeflag == tar.TypeReg && (string(text) != "program of "+c.OS+"_"+c.Architecture || h.Mode != 0o555) {
				t.Errorf("the image of %v holds %q, mode %o", d.Platform, text, h.Mode)
			}
		}
		if got := strings.Join(names, " "); got != "ko-app/ ko-app/calico-audit" {
			t.Errorf("the image of %v holds %s", d.Platform, got)
		}
	}
	if err := writeImages(layout, []string{layout}); err == nil || !strings.Contains(err.Error(), "_OS_ARCH") {
		t.Errorf("a binary of no platform: %v", err)
	}
}

// TestWorkflows: workflows run actions only by digest, their token may only read unless a job
// says otherwise, and a release publishes after the tests, the archives last.
func TestWorkflows(t *testing.T) {
	dir := filepath.Join("..", "..", ".github", "workflows")
	files, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	digest := regexp.MustCompile(`^(\./\.github/\S+|[\w./-]+@[0-9a-f]{40} # v[\d.]+)$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			if !digest.MatchString(m[1]) {
				t.Errorf("%s uses %s, not by digest with its version", file, m[1])
			}
		}
		var workflow struct {
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]struct {
				After string `json:"needs"`
			} `json:"jobs"`
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
			t.Errorf("in %s every job may %v", file, workflow.Permissions)
		}
		if filepath.Base(file) == "release.yml" && (workflow.Jobs["publish"].After != "test" || workflow.Jobs["archives"].After != "publish") {
			t.Errorf("the release's jobs are %v", workflow.Jobs)
		}
	}
}
