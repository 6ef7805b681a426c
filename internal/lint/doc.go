// Package lint holds the tests that keep the module's structure as
// ARCHITECTURE.md draws it: who may import whom, and what only some packages
// may do.
package lint
