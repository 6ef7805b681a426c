package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -tags linux -no-global-types -type go_state -type go_wait_key -type go_wait_value -type go_wake_key -type go_wake_value -type go_lock_value -type go_stack -type go_phase -type go_flag -type go_reason -type go_stack_id -type go_counter -cflags "-O2 -mcpu=v3 -Wall -Werror" Gowait src/gowait.bpf.c
