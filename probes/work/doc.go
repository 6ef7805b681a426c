// Package work reads how much work a target did: counters that it serves over
// HTTP, such as messages published, read at both edges of a recording's window.
// Blocked time per message needs nothing else of the target.
//
//	Find or Parse ──Counters──> Watch ──window──> Stop ──profile.WorkCounter──> meta.json
//
// A counter is a metric of a page: a metric family of a Prometheus text page,
// summed over its labels, or a number in a JSON page, named by its path
// ("a.b", with "*" for every element of a list or object, summed). Which kind a
// page is, its content tells.
package work
