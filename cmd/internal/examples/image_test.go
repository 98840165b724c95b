package examples_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestImage: .ko.yaml and .goreleaser.yaml build the same program as "make build" and "make
// dist". The base image has a user other than root.
func TestImage(t *testing.T) {
	top := filepath.Join("..", "..", "..")
	read := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var ko struct {
		DefaultBaseImage string   `json:"defaultBaseImage"`
		DefaultPlatforms []string `json:"defaultPlatforms"`
		Builds           []struct {
			ID      string   `json:"id"`
			Main    string   `json:"main"`
			Env     []string `json:"env"`
			Flags   []string `json:"flags"`
			Ldflags []string `json:"ldflags"`
		} `json:"builds"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(".ko.yaml")), &ko); err != nil {
		t.Fatal(err)
	}
	if len(ko.Builds) != 1 || !strings.HasSuffix(ko.DefaultBaseImage, ":nonroot") {
		t.Fatalf("%d builds on %s", len(ko.Builds), ko.DefaultBaseImage)
	}
	b := ko.Builds[0]
	if _, err := os.Stat(filepath.Join(top, b.Main, "main.go")); err != nil {
		t.Error(err)
	}
	makefile := regexp.MustCompile(`(?m)^LDFLAGS := (.*)$`).FindStringSubmatch(read("Makefile"))
	if makefile == nil {
		t.Fatal("the Makefile sets no LDFLAGS")
	}
	if got, want := strings.Join(b.Ldflags, " "), strings.ReplaceAll(makefile[1], "$(VERSION)", "{{.Env.VERSION}}"); got != want {
		t.Errorf("it links with %s, and make with %s", got, want)
	}
	if !slices.Contains(b.Env, "CGO_ENABLED=0") || !slices.Contains(b.Flags, "-trimpath") {
		t.Errorf("it builds with %q %q", b.Env, b.Flags)
	}
	var released struct {
		Builds []struct {
			Main    string   `json:"main"`
			Env     []string `json:"env"`
			Flags   []string `json:"flags"`
			Ldflags []string `json:"ldflags"`
			Goos    []string `json:"goos"`
			Goarch  []string `json:"goarch"`
		} `json:"builds"`
	}
	if err := yaml.Unmarshal([]byte(read(".goreleaser.yaml")), &released); err != nil {
		t.Fatal(err)
	}
	g := released.Builds[0]
	var platforms []string
	for _, system := range g.Goos {
		for _, arch := range g.Goarch {
			platforms = append(platforms, system+"/"+arch)
		}
	}
	made := []string{g.Main, strings.Join(g.Env, " "), strings.Join(g.Flags, " "), strings.ReplaceAll(strings.Join(g.Ldflags, " "), "{{.Tag}}", "{{.Env.VERSION}}"), strings.Join(platforms, " ")}
	dist := regexp.MustCompile(`(?m)^PLATFORMS := (.*)$`).FindStringSubmatch(read("Makefile"))
	if diff := cmp.Diff([]string{b.Main, strings.Join(b.Env, " "), strings.Join(b.Flags, " "), strings.Join(b.Ldflags, " "), dist[1]}, made); diff != "" {
		t.Errorf("a release (-by ko and make +by goreleaser):\n%s", diff)
	}
	for _, p := range []string{"linux/amd64", "linux/arm64"} {
		if !slices.Contains(ko.DefaultPlatforms, p) {
			t.Errorf("there is no image for %s", p)
		}
	}
	readme := read("examples/kubernetes/README.md")
	for _, want := range []string{ko.DefaultBaseImage, "ko build", "VERSION="} {
		if !strings.Contains(readme, want) {
			t.Errorf("the README of the manifests does not name %s", want)
		}
	}
}

var imageLine = regexp.MustCompile(`(?m)^\s*image: (\S+)$`)

// TestImagesOfManifests: all manifests use the same image name, and the README lists each
// of their directories.
func TestImagesOfManifests(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "examples", "kubernetes")
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if !strings.Contains(string(readme), "]("+e.Name()+")") {
			t.Errorf("the README does not name %s", e.Name())
		}
		files, err := filepath.Glob(filepath.Join(dir, e.Name(), "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		used := false
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range imageLine.FindAllStringSubmatch(string(raw), -1) {
				used = true
				if m[1] != "calico-audit:v1" {
					t.Errorf("%s runs the image %s", f, m[1])
				}
			}
		}
		if !used {
			continue
		}
		run++
		var k struct {
			Images []struct{ Name, NewName, NewTag string }
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name(), "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(raw, &k); err != nil {
			t.Fatal(err)
		}
		if len(k.Images) != 1 || k.Images[0].Name != "calico-audit" || k.Images[0].NewName != "registry.example.com/calico-audit" || k.Images[0].NewTag != "v1" {
			t.Errorf("%s replaces images by %+v", e.Name(), k.Images)
		}
	}
	if run < 4 {
		t.Errorf("only %d directories run anything", run)
	}
}
