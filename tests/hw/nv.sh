#!/bin/sh
# Runs in a few minutes, unattended, the checks that need a real NVIDIA GPU: brings the device up step by step, compares
# kernels with the emulator bit for bit, runs the benchmark and the test suites on it, and prints CUDA's figures, too.
# It stops at the first step that fails, because later steps would only run on a broken channel.
#
#   tests/hw/nv.sh [DEV] [--record FOLDER]    default NV; EMU+NV:sm_90 rehearses it without a GPU.
#                                             B=folder: build folder (build)
#
# --record writes to FOLDER what the kernels computed (nv.golden) and a trace of the bring-up (steps.trace).
# The script changes no clocks, modes or settings, and resets nothing.
set -eu
cd "$(dirname "$0")/../.."
dev=NV
record=
while [ $# -gt 0 ]; do
  case $1 in
  --record) record=${2:?--record needs a folder}; shift ;;
  *) dev=$1 ;;
  esac
  shift
done
build=${B:-build}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

. tests/hw/lib.sh
[ -z "$record" ] || mkdir -p "$record"

failed() {
  case $dev in EMU+*) ;; *) said_by_kernel 'NVRM|Xid|nvidia' ;; esac
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
bring_up "$dev"
step "kernels against the emulator" 300 "$build/tests/hw/nv_golden" "$dev" EMU+NV:sm_90
if [ -n "$record" ]; then
  step "kernels, recorded" 300 "$build/tests/hw/nv_golden" "$dev" --record
  grep -E '^[^ ]+ [^ ]+ [^ ]+ [0-9a-f]{16}$' "$log/out" >"$record/nv.golden"
fi
step "benchmark" 300 "$build/doorbell" bench --dev "$dev"
step "roofs" 120 "$build/doorbell" bench --peaks --dev "$dev"
step "profile of programs" 300 "$build/doorbell" prof -- "$build/doorbell" bench --dev "$dev"
step "launches and replays" 300 "$build/bench/launch" "$dev"
for t in tensor cases kernels; do
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
