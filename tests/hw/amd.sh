#!/bin/sh
# Runs in a few minutes, unattended, the checks that need a real AMD GPU: brings the device up step by step, compares
# kernels with the host bit for bit, runs the benchmark and the test suites on it. It stops at the first step that
# fails and prints the end of the kernel's log, because later steps would only run on a broken queue.
#
#   tests/hw/amd.sh [DEV] [--record FOLDER]    default AMD; EMU+AMD:gfx1100 rehearses it without a GPU.
#                                              B=folder: build folder (build)
#
# --record writes to FOLDER what the kernels computed (amd.golden), a trace of the bring-up (steps.trace) and thread
# traces (saxpy.se*.sqtt).
# The script changes no clocks, modes or settings, and resets nothing.
set -eu
export STABLE_CLOCKS=0
cd "$(dirname "$0")/../.."
dev=AMD
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
  case $dev in EMU+*) return ;; esac
  said_by_kernel 'amdgpu|kfd|drm'
  for dump in /sys/class/drm/renderD*/device/devcoredump/data; do
    [ -r "$dump" ] || continue
    say "the driver's core dump, $dump"
    head -n 40 "$dump"
  done
}

case $dev in
EMU+*) ;;
*)
  say "driver and devices"
  [ -e /dev/kfd ] || { echo "no /dev/kfd here: is the amdgpu kernel driver loaded?"; exit 1; }
  uname -r
  cat /sys/module/amdgpu/version 2>/dev/null || true
  ls -l /dev/kfd /dev/dri/renderD*
  for node in /sys/devices/virtual/kfd/kfd/topology/nodes/*; do
    echo "$node: $(cat "$node/name" 2>/dev/null)"
    grep -E 'gfx_target_version|simd_count|cwsr_size|ctl_stack_size' "$node/properties" 2>/dev/null || true
  done
  [ -r /dev/kfd ] && [ -w /dev/kfd ] || {
    echo "this user may not use /dev/kfd: add it to the group render"
    exit 1
  } ;;
esac
[ -n "${NO_BUILD:-}" ] || step "build" 600 make -j"$(nproc)" B="$build" hw
step "devices" 30 "$build/doorbell" devices
bring_up "$dev"
step "kernels against the host" 300 "$build/tests/hw/amd_golden" "$dev"
[ -z "$record" ] || grep -E "^[^ ]+ [^ ]+ [0-9a-f]{16}$" "$log/out" >"$record/amd.golden"
step "benchmark" 300 "$build/doorbell" bench --dev "$dev"
trace_args="--grid 1000 --block 64 --arg f32[64000]=ones --arg f32[64000]=iota --arg f32:2 --arg u32:64000"
saxpy="$build/kernels/bench/kernels/saxpy.gfx1100.co"
# shellcheck disable=SC2086
step "thread trace" 60 "$build/doorbell" run "$saxpy" --dev "$dev" $trace_args --thread-trace "$log/saxpy"
for trace in "$log"/saxpy.se*.sqtt; do
  step "thread trace ${trace##*/}" 30 "$build/doorbell" show "$trace" --code "$saxpy"
done
[ -z "$record" ] || cp "$log"/saxpy.se*.sqtt "$record"
say "performance counters"
# Prints the sums that a device counts for the launch, as members of a JSON object.
counted() {
  # shellcheck disable=SC2086
  "$build/doorbell" run "$saxpy" --dev "$1" $trace_args --json \
    --counters SQ_WAVES,SQ_INSTS_VALU,SQ_INSTS_SALU,SQC_LDS_IDX_ACTIVE | sed -n 's/.*"counters": {\([^}]*\)}.*/\1/p'
}
here=$(counted "$dev")
emulated=$(counted EMU+AMD:gfx1100)
echo "$here"
[ -n "$here" ] && [ "$here" = "$emulated" ] || { echo "the emulated gfx1100 counts $emulated"; exit 1; }
step "roofs" 120 "$build/doorbell" bench --peaks --dev "$dev"
# shellcheck disable=SC2086
step "profile of a kernel" 120 "$build/doorbell" prof --counters metrics run "$saxpy" --dev "$dev" $trace_args
step "profile of programs" 300 "$build/doorbell" prof -- "$build/doorbell" bench --dev "$dev"
step "launches and replays" 300 "$build/bench/launch" "$dev"
for t in tensor cases kernels; do
  step "suite $t" 300 env TEST_DEV="$dev" "$build/tests/frontend/test_$t"
done
say "all steps passed on $dev"
