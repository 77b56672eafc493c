#!/usr/bin/env bash
# Checks the source folders against .ci/layout: each file includes only what its folder's row allows, the folders'
# arrows form no circle, every allowance is used, and a folder has at most 30 files.
set -eu
cd "$(dirname "$0")/.."
git ls-files -c -o --exclude-standard graph compiler hcq emu frontend | awk '
  function folder(path) { sub("/[^/]*$", "", path); return path }
  function complain(text) { print text; failed = 1 }
  # PATH without "x/.." in it
  function plain(path) { while (sub("[^/.][^/]*/[.][.]/", "", path)); return path }
  # Walks the folders that FROM includes, directly or not, for START.
  function visit(from, start,   pair, to, i, n, next_) {
    n = split(arrows[from], next_, " ")
    for (i = 1; i <= n; i++) {
      to = next_[i]
      if (to == start) complain(".ci/layout: " start " includes itself by way of " from)
      else if (!((start, to) in seen)) { seen[start, to] = 1; visit(to, start) }
    }
  }
  BEGIN {
    while ((getline line <".ci/layout") > 0) {
      sub("#.*", "", line)
      n = split(line, word, " ")
      if (!n) continue
      from = word[1]
      if (!sub(":$", "", from)) complain(".ci/layout: a row begins with a folder and a colon: " line)
      row[from] = 1
      for (i = 2; i <= n; i++) {
        allowed[from, word[i]] = 1
        if (word[i] !~ /[.]/) arrows[from] = arrows[from] " " word[i]
      }
    }
    for (from in row) visit(from, from)
  }
  /[.](c|h|def|rules)$/ { file[$0] = 1; count[folder($0)]++ }
  END {
    for (path in file) {
      from = folder(path)
      if (!(from in row)) missing[from] = 1
      while ((getline line <path) > 0) {
        if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/) continue
        split(line, part, "\"")
        header = plain(from "/" part[2])
        if (!(header in file)) header = part[2]
        to = folder(header)
        if (!(header in file) || to == from) continue
        if ((from, to) in allowed) used[from, to] = 1
        else if ((from, header) in allowed) used[from, header] = 1
        else complain(path ": includes " header ", which .ci/layout does not allow to " from)
      }
      close(path)
    }
    for (from in missing) complain(".ci/layout has no row for " from)
    for (pair in allowed) {
      split(pair, part, SUBSEP)
      if (!(pair in used)) complain(".ci/layout: " part[1] " includes nothing of " part[2])
    }
    for (from in count) if (count[from] > 30) complain(from " has " count[from] " files, more than 30")
    exit failed
  }'
