// Package bpf holds the toolkit's BPF programs: their C sources in src, and the
// objects and Go bindings that bpf2go makes of them, committed so that neither
// building nor running needs a compiler.
//
// The objects are compiled once and run on every kernel from 5.10 on that
// carries its type information (BTF). One little-endian object serves amd64 and
// arm64; the programs on the Go runtime (Gowait) are for amd64. The types that C and
// Go share come from the object: never write them twice.
//
// After a change of the sources run go generate here, with clang-14 installed;
// the result does not depend on where the checkout is.
package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -tags linux -no-global-types -type task_key -type task_state -type task_life -type target -type comm -type wake_key -type sample_key -type wait_key -type wait_value -type stack -type phase -type reason -type wait_flag -type stack_id -type counter -cflags "-O2 -mcpu=v3 -Wall -Werror" Offcpu src/offcpu.bpf.c
