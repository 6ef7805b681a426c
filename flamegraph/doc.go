// Package flamegraph lays stacks with their time out as flame graphs, for one
// profile or as the difference of two sides, and writes them as static SVG and
// as folded stacks.
//
//  1. Build and BuildDiff turn profiles into a Tree or DiffTree: stacks are
//     joined by function name, values are scaled (per message, per second), idle
//     stacks are left out and their size is kept. Pure, no I/O.
//  2. The layout gives every frame a place and merges what is too narrow to see.
//  3. WriteSVG and WriteDiffSVG write one picture that needs no script, no
//     hover and no particular font; the same input gives the same bytes.
//
// # Differential arithmetic
//
// For every distinct stack with b before and a after, its own time is split into
//
//	common = min(b, a)   grown = max(0, a-b)   shrunk = max(0, b-a)
//
// and each part is summed up the tree. The width of a frame is the sum of its
// parts, so children always fit their parent, and frames that vanished and
// frames that are new stand in one picture. At every frame before = common +
// shrunk and after = common + grown. With several runs on a side b and a are
// the means over its runs. Sampling noise alone makes grown and shrunk non-zero,
// so what a comparison of equal builds shows is the measure of both.
//
// Pictures have the outermost frame on top and grow downwards: the first screen
// of a review then shows the total and the callers, and a stack reads in the
// order in which its functions were called.
package flamegraph
