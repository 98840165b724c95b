// Package examples holds the tests of what the directory examples ships: the chart, the manifests,
// the guard rails and the image.
package examples
