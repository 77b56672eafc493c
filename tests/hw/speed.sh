#!/bin/sh
# Measures kernels and models on a GPU, and cuBLAS and PyTorch if they are installed: one call of at most ten minutes,
# one file. bench/kernels and bench/models say what is measured; every result is compared with plain arithmetic or
# PyTorch.
#
#   tests/hw/speed.sh [DEV] [--out FILE] [--beam N] [WORD...]
#
#   DEV     NV (default), NV:1 ...; EMU+NV:sm_90 or EMU+AMD:gfx1100 rehearses it without a GPU, with smaller sizes
#   FILE    default: bench/results/MACHINE.txt
#   N       searches with this beam first; the file always lists the plans that were used
#   WORD    only these cases of bench/kernels, in one process
#
# Without a WORD it measures, the most important first: matmuls of bf16 by several plans beside cuBLAS, attention beside
# the matmul rate, elementwise kernels beside a copy, other matmuls and normalizations, then models. Each case is a
# process of its own with a time limit. One that fails or hangs is reported, and the next one runs. When the time is
# over, the rest is skipped.
#
#   tests/hw/speed.sh --bundle FOLDER
#
# copies the programs, this script and the libraries that they need to FOLDER, for a machine without them: there it is
# FOLDER/tests/hw/speed.sh. Environment: B=folder (build), NO_BUILD=1, SECONDS_ALL (570), SECONDS_CASE (60).
#
# The script changes no clocks, modes or settings of the GPU, and resets nothing.
set -eu
cd "$(dirname "$0")/../.."
dev=NV
out=
beam=
bundle=
while [ $# -gt 0 ]; do
  case $1 in
  --out) out=${2:?--out needs a file}; shift ;;
  --beam) beam=${2:?--beam needs a number}; shift ;;
  --bundle) bundle=${2:?--bundle needs a folder}; shift ;;
  NV*|EMU+*|CPU) dev=$1 ;;
  *) break ;;
  esac
  shift
done
build=${B:-build}
[ -n "${NO_BUILD:-}" ] || [ -d lib ] || make -j"$(nproc)" B="$build" "$build/bench/kernels" "$build/bench/models"

if [ -n "$bundle" ]; then
  mkdir -p "$bundle/lib" "$bundle/$build/bench" "$bundle/bench/speed" "$bundle/bench/results" "$bundle/tests/hw"
  cp "$build/bench/kernels" "$build/bench/models" "$bundle/$build/bench/"
  strip "$bundle/$build/bench/kernels" "$bundle/$build/bench/models"
  cp bench/speed/*.py "$bundle/bench/speed/"
  cp tests/hw/speed.sh "$bundle/tests/hw/"
  git rev-parse HEAD >"$bundle/commit" 2>/dev/null || true
  # Leaves out the C library, which belongs to the machine.
  ldd "$build/bench/kernels" | awk '$3 ~ "^/" && $1 !~ "^(libc|libm|libdl|libpthread|librt)[.]so" { print $3 }' |
    xargs -I{} cp -L {} "$bundle/lib/"
  du -sh "$bundle"
  exit 0
fi

if [ -d lib ]; then # in a bundle
  LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi
export DEV="$dev" TORCH_PEER="$PWD/bench/speed/torch_peer.py"
[ -z "$beam" ] || export BEAM="$beam"

case $dev in
NV*) machine=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) ;;
*) machine=$dev ;;
esac
[ -n "$out" ] || out=bench/results/$(printf '%s' "${machine:-$dev}" | tr -cs 'A-Za-z0-9.\n' '-' | tr 'A-Z' 'a-z').txt
mkdir -p "$(dirname "$out")"

{
  echo "machine   ${machine:-$dev}"
  case $dev in
  NV*)
    sed -n '1s/^/driver    /p' /proc/driver/nvidia/version 2>/dev/null || true
    nvidia-smi --query-gpu=clocks.max.sm,clocks.max.mem,power.limit --format=csv 2>/dev/null || true ;;
  esac
  echo "commit    $(git rev-parse HEAD 2>/dev/null || cat commit 2>/dev/null || echo unknown)"
  echo "date      $(date -u +%Y-%m-%d)"
  [ -z "$beam" ] || echo "search    BEAM=$beam"
} | tee "$out"

# run SECONDS COMMAND...: a failure is reported, and the exit status of this script shows it.
begin=$(date +%s)
rc=0
run() {
  seconds=$1
  left=$((begin + ${SECONDS_ALL:-570} - $(date +%s)))
  shift
  if [ "$left" -lt 5 ]; then
    echo "SKIPPED, no time is left: $*" | tee -a "$out"
    rc=1
    return 0
  fi
  if [ "$seconds" -gt "$left" ]; then seconds=$left; fi
  status=0
  timeout -k 5 "$seconds" "$@" >"$out.one" 2>&1 || status=$?
  grep -v '^$' "$out.one" | tee -a "$out" || true
  rm -f "$out.one"
  [ "$status" != 0 ] || return 0
  rc=1
  case $status in
  124 | 137) what="not finished after $seconds s" ;;
  *) what="exit status $status" ;;
  esac
  echo "FAILED, $what: $*" | tee -a "$out"
}

# measure CASE [PLAN]: a case of bench/kernels (--case), by the plan that is chosen or by this one.
measure() {
  printf '\n-- %s%s\n' "$1" "${2:+ by the plan $2}" | tee -a "$out"
  if [ -n "${2:-}" ]; then
    run "${SECONDS_CASE:-60}" env -u BEAM PLAN="$2" "$build/bench/kernels" --plans --case "$1"
  else
    run "${SECONDS_CASE:-60}" "$build/bench/kernels" --plans --case "$1"
  fi
}

if [ $# -gt 0 ]; then
  run "${SECONDS_ALL:-570}" "$build/bench/kernels" --plans "$@"
  echo "written to $out"
  exit $rc
fi

# The sizes of a GPU, or those that an emulator computes in seconds. `product` needs more blocks than there are
# processors, so that workgroups compute several.
case $dev in
EMU+*) product='4096 2048 256' middle=512 small=256 elements=512x1024 attention=4x1024x128x0 causal=4x1024x128x1
  short=12x256x64x0 ;;
*) product='8192 8192 8192' middle=4096 small=1024 elements=8192x8192 attention=32x4096x128x0 causal=32x4096x128x1
  short=12x1024x64x0 ;;
esac
# shellcheck disable=SC2086 # three numbers
set -- $product
name=r_$1_$2_$3 product=1x$1x$2x$3
measure "matmul bf16 $product"
case $dev in
NV* | *sm_90*)
  block='matrix wgmma256_f32_bf16 a b c; local a:2; unroll c:4'
  turns='adjacent a:16; join a b; join a a6; persist a:128'
  measure "matmul bf16 $product" "$name = $block; $turns; pipeline c:4; collect 0"
  measure "matmul bf16 $product" "$name = $block; $turns; pipeline c:3; collect 0"
  measure "matmul bf16 $product" "$name = $block; $turns; pipeline c:4"
  measure "matmul bf16 $product" "$name = $block; adjacent a:16; pipeline c:4; collect 0"
  measure "matmul bf16 $product" "$name = $block; adjacent a:16; pipeline c:3; collect 0"
  measure "matmul bf16 $product" "$name = $block; adjacent a:16; pipeline c:4" ;;
esac
measure "attention bf16 $attention"
measure "attention bf16 $causal"
measure "add f32 $elements"
measure "gelu f32 $elements"
measure "matmul f16 $product"
measure "matmul bf16 1x${middle}x${middle}x${middle}"
measure "matmul bf16 1x${small}x${small}x${small}"
measure "matmul bf16 1x$((middle - 1))x$((middle - 1))x$((middle - 1))"
measure "matmul f8e4m3 1x${middle}x${middle}x${middle}"
measure "matmul f32 1x${middle}x${middle}x${middle}"
measure "softmax f32 $elements"
measure "layer_norm f32 $elements"
measure "transpose f32 $elements"
measure "attention bf16 $short"
case $dev in
EMU+*) ;; # takes too long
*) run 150 "$build/bench/models" ;;
esac
echo "written to $out"
exit $rc
