#!/bin/sh
# Everything that only an NVIDIA GPU can show, unattended, in a few minutes: brings the device up step by step, compares
# kernels with the emulator bit for bit, runs the benchmark and the test suites on it, and shows CUDA's figures beside.
# It stops at the first step that fails: what comes after would only run on a broken channel.
#
#   tests/hw/nv.sh [DEV]     default NV; EMU+NV:sm_90 rehearses it where there is none. B=folder: build folder (build)
#
# Clocks, modes and settings are left as they are, and nothing is reset.
set -eu
cd "$(dirname "$0")/../.."
dev=${1:-NV}
build=${B:-build}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

say() { printf '\n== %s\n' "$*"; }
# step TEXT SECONDS COMMAND...: its output, and the end of everything when it fails
step() {
  say "$1"
  seconds=$2
  shift 2
  rc=0
  timeout -k 10 "$seconds" "$@" >"$log/out" 2>&1 || rc=$?
  cat "$log/out"
  [ "$rc" = 0 ] || { say "FAILED (exit $rc); stopped here"; exit 1; }
}

case $dev in
EMU+*) ;;
*)
  say "driver and devices"
  cat /proc/driver/nvidia/version 2>/dev/null || { echo "no NVIDIA kernel driver here"; exit 1; }
  ls -l /dev/nvidia* ;;
esac
[ -n "${NO_BUILD:-}" ] || step "build" 600 make -j"$(nproc)" B="$build" hw
step "devices" 30 "$build/doorbell" devices
step "bring-up" 120 "$build/tests/hw/nv_steps" "$dev"
step "kernels against the emulator" 300 "$build/tests/hw/nv_golden" "$dev" EMU+NV:sm_90
step "benchmark" 300 "$build/doorbell" bench --dev "$dev"
step "launches and replays" 300 "$build/bench/launch" "$dev"
for t in tensor ops kernels; do
  step "suite $t" 300 env TEST_DEV="$dev" "$build/tests/frontend/test_$t"
done
case $dev in
EMU+*) ;;
*)
  if [ -x "$build/tests/hw/cuda_peer" ]; then
    step "the CUDA runtime on the same card" 120 "$build/tests/hw/cuda_peer"
  else
    say "the CUDA runtime: not built (no nvcc)"
  fi ;;
esac
say "all steps passed on $dev"
