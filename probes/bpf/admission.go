package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -tags linux -no-global-types -type admission -cflags "-O2 -mcpu=v3 -Wall -Werror" Admit src/admit_test.bpf.c
