#!/bin/sh
# embed_kernels.sh FILE...: prints assembly of the table bench_kernels with { name, begin, end } for each file. A null
# name ends it. The command contains the benchmark's code objects this way.
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
