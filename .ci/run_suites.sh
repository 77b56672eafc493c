#!/bin/sh
# run_suites.sh FOLDER SECONDS SUITE...: runs test programs of a folder, one for each processor at a time, in the given
# order, each for SECONDS at most. Prints a line per suite with the seconds it took, the end of the output of each
# failed suite (FOLDER/SUITE.log has all of it), and totals with the names of the suites that failed. JOBS=1 runs one
# after the other.
folder=$1 seconds=$2
shift 2
[ $# -gt 0 ] || {
  echo "there is no suite of that name" >&2
  exit 1
}
# Each suite's report is printed in one piece.
run_one='
  start=$(date +%s)
  timeout "$2" "$1/$3" >"$1/$3.log" 2>&1
  status=$? took=$(($(date +%s) - start))
  case $status in
    0) report=$(grep -aE "^\[  PASSED  \]" "$1/$3.log" | sed "s|^|$3: |; s|\.\$| in $took s|") ;;
    124) report=$(echo "$3: FAILED (still running after $2 s)"; tail -40 "$1/$3.log") ;;
    *) report=$(echo "$3: FAILED (exit $status after $took s)"; tail -40 "$1/$3.log") ;;
  esac
  printf "%s\n" "$report"
  exit $status'
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
printf '%s\n' "$@" |
  xargs -P "${JOBS:-$(nproc)}" -I SUITE sh -c "($run_one) || echo SUITE >>'$failed'" run "$folder" "$seconds" SUITE
nfailed=$(wc -l <"$failed")
echo
echo "$(($# - nfailed)) passed, $((nfailed)) failed$(sed 's/^/ /' "$failed" | tr -d '\n' | sed 's/^/:/')"
[ "$((nfailed))" = 0 ]
