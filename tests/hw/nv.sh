#!/bin/sh
# Runs in a few minutes, unattended, the checks that need a real NVIDIA GPU: brings the device up step by step, compares
# kernels with the emulator bit for bit, runs the benchmark and the test suites on it, and prints CUDA's figures, too.
# It stops at the first step that fails, because later steps would only run on a broken channel.
#
#   tests/hw/nv.sh [DEV] [--record FOLDER]    default NV; EMU+NV:sm_90 or EMU+NV:sm_86 rehearses it without
#                                             a GPU.
#                                             B=folder: build folder (build)
#
# --record writes to FOLDER what the kernels computed (nv.golden), a trace of the bring-up (steps.trace), and what the
# profiling steps printed (nv.profile).
# The script changes no clocks, modes or settings, and resets nothing.
set -eu
export STABLE_CLOCKS=0
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
arch=$("$build/doorbell" devices | awk -v dev="$dev" '$1 == dev { print $2 }')
case $dev in EMU+NV:*) arch=${dev#EMU+NV:} ;; esac
if [ "$arch" = sm_90 ]; then
  saxpy=bench/kernels/saxpy.sm_90.cubin
else # nvcc compiles the kernels for this GPU
  saxpy=bench/kernels/saxpy.cu
  step "kernels for $arch" 120 make B="$build" "$build/kernels/tests/kernels/cuda/hw.$arch.O3.cubin" \
    "$build/kernels/bench/kernels/saxpy.$arch.O3.cubin"
fi
bring_up "$dev"
# The other kernels are compiled for sm_90 only.
[ "$arch" != sm_90 ] || step "kernels against the emulator" 300 "$build/tests/hw/nv_golden" "$dev" EMU+NV:sm_90
if [ -n "$record" ] && [ "$arch" = sm_90 ]; then
  step "kernels, recorded" 300 "$build/tests/hw/nv_golden" "$dev" --record
  grep -E '^[^ ]+ [^ ]+ [^ ]+ [0-9a-f]{16}$' "$log/out" >"$record/nv.golden"
fi
step "benchmark" 300 "$build/doorbell" bench --dev "$dev"
step "roofs" 120 "$build/doorbell" bench --peaks --dev "$dev"
# Profiling: timestamps, counters or the reason why there are none, thread traces, PC samples, a profile by the device's
# clock.
saxpy_args="--grid 1000 --block 64 --arg f32[64000]=ones --arg f32[64000]=iota --arg f32:2 --arg u32:64000"
profile=$log/profile
: >"$profile"
# expected TEXT PATTERN COMMAND...: prints and keeps the output, which must have a line that matches the pattern
expected() {
  say "$1"
  pattern=$2
  shift 2
  timeout -k 10 120 "$@" >"$log/out" 2>&1 || echo "exit status $?" >>"$log/out"
  cat "$log/out"
  { echo "== $*"; cat "$log/out"; } >>"$profile"
  grep -qE "$pattern" "$log/out" || { failed; say "FAILED: no line matches $pattern"; exit 1; }
}
case $dev in
EMU+*)
  no_counters='^SM_WARPS '
  counted='SM_WARPS +2000'
  ;;
*)
  # What RM permits is the administrator's choice; beyond that, the events are not public.
  no_counters='NVreg_RestrictProfilingToAdminUsers=0|not supported: performance counters'
  counted=$no_counters
  ;;
esac
expected "list of counters" "$no_counters" "$build/doorbell" run "$saxpy" --dev "$dev" --counters list
# shellcheck disable=SC2086
expected "counters of a launch" "$counted" "$build/doorbell" run "$saxpy" --dev "$dev" $saxpy_args --counters SM_WARPS
# shellcheck disable=SC2086
expected "thread trace" "not supported: thread traces" \
  "$build/doorbell" run "$saxpy" --dev "$dev" $saxpy_args --thread-trace "$log/saxpy"
# PC samples, or the reason why there are none: the registers of some chips are not public.
case $arch in
sm_86 | sm_89 | sm_120) sampled='^pc samples +[1-9]' ;;
*) sampled="not supported: PC sampling of $arch, because its registers are not public" ;;
esac
case $dev in EMU+*) ;; *) sampled="NVreg_RestrictProfilingToAdminUsers=0|$sampled" ;; esac
# shellcheck disable=SC2086
expected "PC samples" "$sampled" "$build/doorbell" run "$saxpy" --dev "$dev" $saxpy_args --pc-samples
# shellcheck disable=SC2086
expected "profile of a kernel" "saxpy +20 " "$build/doorbell" prof run "$saxpy" --dev "$dev" $saxpy_args
[ -z "$record" ] || cp "$profile" "$record/nv.profile"
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
