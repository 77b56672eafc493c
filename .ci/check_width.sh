#!/bin/sh
# Checks that every text that git tracks is at most 120 columns wide, and that README.md has at most 120 lines. Leaves
# out data, binaries, and .clang-tidy, whose list of checks is one value.
git ls-files | grep -vE '^tests/(data|fuzz/seeds)/|\.cubin$|^\.clang-tidy$' | LC_ALL=C.UTF-8 xargs \
  awk 'length > 120 { print FILENAME ":" FNR ": wider than 120 columns"; bad = 1 } END { exit bad }' &&
  awk 'END { if (NR > 120) print "README.md has " NR " lines, more than 120"; exit NR > 120 }' README.md
