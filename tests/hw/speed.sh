#!/bin/sh
# Measures kernels and models on an NVIDIA GPU, and cuBLAS and PyTorch if they are installed: one call, one
# file. bench/kernels and bench/models say what is measured; every result is compared with plain arithmetic or PyTorch.
#
#   tests/hw/speed.sh [DEV] [--out FILE] [--beam N] [WORD...]
#
#   DEV     NV (default), NV:1 ...; EMU+NV:sm_90 or EMU+AMD:gfx1100 rehearses it without a GPU
#   FILE    default: bench/results/MACHINE.txt
#   N       searches with this beam first; the file always lists the plans that were used
#   WORD    only these cases, as for bench/kernels
#
#   tests/hw/speed.sh --bundle FOLDER
#
# copies the programs, this script and the libraries that they need to FOLDER, for a machine without them: there it is
# FOLDER/tests/hw/speed.sh. Environment: B=folder (build), NO_BUILD=1, KERNELS_SECONDS (420) and MODELS_SECONDS (150).
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

# If one part fails, the other still runs, and the exit status reports the failure.
rc=0
run() {
  seconds=$1
  shift
  { timeout -k 10 "$seconds" "$@" 2>&1 || echo "FAILED: exit status $? of $*"; } | tee -a "$out"
  if grep -q '^FAILED: exit' "$out"; then rc=1; fi
}
run "${KERNELS_SECONDS:-420}" "$build/bench/kernels" --plans "$@"
[ $# -gt 0 ] || run "${MODELS_SECONDS:-150}" "$build/bench/models"
echo "written to $out"
exit $rc
