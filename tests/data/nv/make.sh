#!/bin/sh
# Rebuilds the cubins of this folder with the CUDA toolkit's nvcc (13.0 made those in the repository).
cd "$(dirname "$0")" || exit 1
for f in ${*:-*.cu}; do
  n=${f%.cu}
  nvcc -arch="$(sed -n 's,^// arch: ,,p' "$f" | grep . || echo sm_90)" -cubin -o "$n.cubin" "$f" || exit 1
done
