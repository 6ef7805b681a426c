// Package symbol names the code of running processes and of the kernel:
// addresses become frames, and functions that the compiler inlined become
// frames of their own.
//
// Go executables are read through their pclntab, which knows every function,
// file, line and inlined call; others through the symbol table of their ELF
// file. For Go, the package also says where the runtime keeps its goroutines
// (GoImage), which the sampler needs.
package symbol
