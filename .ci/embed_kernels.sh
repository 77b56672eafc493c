#!/bin/sh
# embed_kernels.sh FILE...: assembly of a table bench_kernels, of { name, begin, end } for each file, closed by a null
# name: the benchmark's code objects travel inside the command.
echo '.section .rodata'
for f in "$@"; do
  n=$(basename "$f" .gfx1100.co)
  printf '.balign 256\nco_%s: .incbin "%s"\nco_%s_end:\nname_%s: .asciz "%s"\n' "$n" "$f" "$n" "$n" "$n"
done
printf '.section .data.rel.ro,"aw"\n.balign 8\n.globl bench_kernels\n.hidden bench_kernels\nbench_kernels:\n'
for f in "$@"; do
  n=$(basename "$f" .gfx1100.co)
  printf '.quad name_%s, co_%s, co_%s_end\n' "$n" "$n" "$n"
done
printf '.quad 0, 0, 0\n.section .note.GNU-stack,"",%%progbits\n'
