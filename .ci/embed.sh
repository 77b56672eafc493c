#!/bin/sh
# embed.sh TABLE FILE...: prints assembly of a table with { name, begin, end } for each file. A null name ends it. The
# command contains the benchmark's code objects and the files of the report's page this way.
table=$1
shift
echo '.section .rodata'
n=0
for f in "$@"; do
  n=$((n + 1))
  name=$(basename "$f" .gfx1100.co)
  printf '.balign 256\n.Lfile_%d: .incbin "%s"\n.Lend_%d:\n.Lname_%d: .asciz "%s"\n' $n "$f" $n $n "$name"
done
printf '.section .data.rel.ro,"aw"\n.balign 8\n.globl %s\n.hidden %s\n%s:\n' "$table" "$table" "$table"
for i in $(seq $n); do
  printf '.quad .Lname_%d, .Lfile_%d, .Lend_%d\n' "$i" "$i" "$i"
done
printf '.quad 0, 0, 0\n.section .note.GNU-stack,"",%%progbits\n'
