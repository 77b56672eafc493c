#!/bin/sh
# run_fuzzers.sh FOLDER SECONDS FUZZER...: runs the libFuzzer programs of a folder for SECONDS each. They start with the
# committed seeds and the inputs that earlier runs found. Stops at the first finding.
folder=$1 seconds=$2
shift 2
for f in "$@"; do
  echo "== $f"
  seeds=tests/fuzz/seeds/$f
  [ -d "$seeds" ] || seeds=
  mkdir -p "$folder/corpus/$f"
  # shellcheck disable=SC2086 # nothing where there are no seeds
  "$folder/$f" -max_total_time="$seconds" -artifact_prefix="$folder/$f-" "$folder/corpus/$f" $seeds \
    >"$folder/$f.log" 2>&1 || {
    tail -40 "$folder/$f.log"
    exit 1
  }
  tail -3 "$folder/$f.log"
done
