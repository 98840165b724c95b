// Release writes a container image of the program. It needs no Docker, registry or
// network:
//
//	go run ./internal/release LAYOUT BINARY…
//
// LAYOUT is a directory in the format of the OCI image layout specification 1.0. It gets
// one image for each binary; a binary's name ends with _OS_ARCH. The base image is empty
// because the program needs no other file. Inside a cluster it trusts the CA that
// Kubernetes mounts.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// program is the program's path in the image, the same as ko uses.
const program = "/ko-app/calico-audit"

// Media types of the OCI image specification.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor identifies content by its digest (OCI content descriptor).
type descriptor struct {
	MediaType string    `json:"mediaType"`
	Digest    string    `json:"digest"`
	Size      int       `json:"size"`
	Platform  *platform `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// manifest is an OCI image manifest, or an index of several images.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

// imageConfig holds the runtime settings of an image and the digests of its uncompressed
// layers.
type imageConfig struct {
	platform
	Config struct {
		User       string
		Entrypoint []string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: release LAYOUT BINARY…")
		os.Exit(2)
	}
	if err := writeImages(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// writeImages writes an image layout. The same binaries give the same bytes.
func writeImages(layout string, binaries []string) error {
	index := manifest{SchemaVersion: 2, MediaType: indexType}
	for _, binary := range binaries {
		parts := strings.Split(filepath.Base(binary), "_")
		if len(parts) < 3 {
			return fmt.Errorf("%s: want a name that ends with _OS_ARCH", binary)
		}
		p := platform{OS: parts[len(parts)-2], Architecture: parts[len(parts)-1]}
		d, err := writeImage(layout, binary, p)
		if err != nil {
			return fmt.Errorf("making the image of %s: %w", binary, err)
		}
		index.Manifests = append(index.Manifests, d)
	}
	for name, content := range map[string]any{"index.json": index, "oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"}} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(layout, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeImage writes the image of one platform.
func writeImage(layout, binary string, p platform) (descriptor, error) {
	text, err := os.ReadFile(binary)
	if err != nil {
		return descriptor{}, err
	}
	var files, layer bytes.Buffer
	w := tar.NewWriter(&files)
	for _, h := range []*tar.Header{
		{Name: filepath.Dir(program)[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o555},
		{Name: program[1:], Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(text))},
	} {
		if err := w.WriteHeader(h); err != nil {
			return descriptor{}, err
		}
	}
	if _, err := w.Write(text); err != nil {
		return descriptor{}, err
	}
	if err := w.Close(); err != nil {
		return descriptor{}, err
	}
	z := gzip.NewWriter(&layer)
	if _, err := z.Write(files.Bytes()); err != nil {
		return descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return descriptor{}, err
	}
	config := imageConfig{platform: p}
	config.Config.User, config.Config.Entrypoint = "65532:65532", []string{program}
	config.RootFS.Type, config.RootFS.DiffIDs = "layers", []string{digest(files.Bytes())}
	layerAt, err := writeBlob(layout, layerType, layer.Bytes())
	if err != nil {
		return descriptor{}, err
	}
	configAt, err := writeJSON(layout, configType, config)
	if err != nil {
		return descriptor{}, err
	}
	d, err := writeJSON(layout, manifestType, manifest{SchemaVersion: 2, MediaType: manifestType, Config: &configAt, Layers: []descriptor{layerAt}})
	d.Platform = &p
	return d, err
}

func writeJSON(layout, mediaType string, content any) (descriptor, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return descriptor{}, err
	}
	return writeBlob(layout, mediaType, text)
}

func writeBlob(layout, mediaType string, content []byte) (descriptor, error) {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	path := filepath.Join(layout, "blobs", strings.ReplaceAll(d.Digest, ":", string(filepath.Separator)))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return d, err
	}
	return d, os.WriteFile(path, content, 0o644)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
