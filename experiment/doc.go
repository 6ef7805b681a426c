// Package experiment runs interleaved A/B measurements: it starts the sides,
// drives the load, records, and collects one result.
//
//  1. A Spec says what differs between the sides, which load they carry and how
//     many runs of which kind to make. The built-in ones are YAML files under
//     experiments/, made to be copied.
//  2. Plan lays out the runs: A B, B A, A B, …, so that drift of the machine
//     meets both sides alike.
//  3. Every run starts the broker and the load as processes of their own (the
//     binary runs itself) and, where the run is profiled, records the broker
//     from outside over the load's window.
//  4. Collect turns the runs into a result.Result.
//
// Headline throughput and latency come from unprofiled runs only.
package experiment
