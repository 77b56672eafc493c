#!/bin/sh
# run_suites.sh FOLDER SECONDS SUITE...: runs test programs of a folder one after the other, each for SECONDS at most.
# Prints a line per suite, the end of the output of each failed suite (FOLDER/SUITE.log has all of it), and totals.
folder=$1 seconds=$2 passed=0 failed=0
shift 2
[ $# -gt 0 ] || {
  echo "there is no suite of that name" >&2
  exit 1
}
for t in "$@"; do
  timeout "$seconds" "$folder/$t" >"$folder/$t.log" 2>&1
  status=$?
  if [ $status = 0 ]; then
    grep -aE '^\[  PASSED  \]' "$folder/$t.log" | sed "s|^|$t: |"
    passed=$((passed + 1))
  else
    echo "$t: FAILED (exit $status)"
    tail -40 "$folder/$t.log"
    failed=$((failed + 1))
  fi
done
echo
echo "$passed passed, $failed failed"
[ $failed = 0 ]
