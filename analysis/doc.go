// Package analysis says what recorded time means. It is pure: no clock, no I/O,
// no goroutines; it works on profiles and metadata that were read before.
//
//  1. Rules name things: wait class, idle, operation, application frame. The
//     built-in rule files are data under rules/; the first rule that gives an
//     attribute wins.
//  2. Classify applies the rules to one stack with its wait reason.
//  3. Attribute sums a profile's time into waits (operation, wait site, class,
//     idle) and puts it in nanoseconds per message and threads lost.
//  4. Compare sets two sides' waits beside each other.
//
// What no rule can tell stays unknown, and its size is part of the result.
package analysis
