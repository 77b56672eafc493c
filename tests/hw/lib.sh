# Functions that the scripts for machines with a GPU share. The caller sets build and log, two folders.

say() { printf '\n== %s\n' "$*"; }
# Prints the end of the kernel's log, if this user may read it.
said_by_kernel() {
  say "the kernel's log, last lines of $1"
  dmesg 2>/dev/null | grep -E "$1" | tail -n 30 || true
}
# step TEXT SECONDS COMMAND...: prints the command's output, and ends the script if it fails
step() {
  say "$1"
  seconds=$2
  shift 2
  rc=0
  timeout -k 10 "$seconds" "$@" >"$log/out" 2>&1 || rc=$?
  cat "$log/out"
  [ "$rc" = 0 ] || { failed; say "FAILED (exit $rc); stopped here"; exit 1; }
}
# bring_up DEV: the steps. With a record folder they run once more, in their small form, and leave a trace, which must
# play without the GPU.
bring_up() {
  step "bring-up" 120 "$build/tests/hw/steps" "$1"
  [ -n "$record" ] || return 0
  step "bring-up, recorded" 300 env HCQ_RECORD="$record/steps.trace" "$build/tests/hw/steps" --small "$1"
  step "bring-up, played" 120 "$build/tests/hw/steps" --small "PLAY:$record/steps.trace"
}
