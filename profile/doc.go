// Package profile is the model that every stage of the toolkit shares: stacks
// of interned frames with typed values and labels, their encoding as pprof
// files, and the recording directory that holds one file per plane and source
// beside a meta.json.
//
//	probes ──Capture──> recording directory ──Recording──> analysis, flamegraph
//
// The package reads and writes files; it knows nothing of where the values come
// from or what they mean to a reader. It imports no other package of the module.
//
// Stacks are leaf first: the first frame is the innermost. A frame with Inlined
// set was inlined into the frame that follows it.
package profile
