#!/bin/sh
# run_suites.sh FOLDER SECONDS SUITE...: runs test programs of a folder one after the other, each for SECONDS at most.
# Prints a line for each, the end of what a failed one wrote (all of it is in FOLDER/SUITE.log), and how many passed.
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
