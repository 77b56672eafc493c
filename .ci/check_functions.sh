#!/usr/bin/env bash
# Checks that no function is longer than 80 lines, in the layout that clang-format gives to code: a function begins at a
# line that begins with a letter, and ends at a line that is "}".
set -eu
cd "$(dirname "$0")/.."
git ls-files -c -o --exclude-standard '*.c' '*.h' | xargs awk '
  FNR == 1 { start = body = 0 }
  /^[A-Za-z_]/ && !start { start = FNR; head = $0 }
  start && /^[^ #].*[;}]$/ && $0 != "}" { start = 0 } # a declaration, a type, or a function of one line
  start && /^  [^{]*;$/ && !body { start = 0 }          # the end of a declaration of several lines
  start && /\{$/ { body = 1 }
  /^}/ {
    if ($0 == "}" && start && FNR - start >= 80) {
      print FILENAME ":" start ": " FNR - start + 1 " lines, more than 80: " head
      bad = 1
    }
    start = body = 0
  }
  END { exit bad }'
