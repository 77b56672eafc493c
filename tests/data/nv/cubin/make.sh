#!/bin/sh
# Rebuilds the cubins of this folder: nvcc and nvlink of CUDA 13.0, and $PTXAS12, the ptxas of CUDA 12.4.
cd "$(dirname "$0")" || exit 1
for s in 90 120; do nvcc -arch=sm_$s -cubin -o 13.0.sm_$s.cubin cubin.cu; done
nvcc -arch=sm_90 -DPRINTF -cubin -o 13.0.sm_90.printf.cubin cubin.cu
for s in 80 90; do
  nvcc -arch=sm_$s -rdc=true -DLINKED -cubin -o linked.o cubin.cu && nvlink -arch=sm_$s -o 13.0.sm_$s.linked.cubin linked.o
  nvcc -arch=sm_80 -ptx -o - cubin.cu | sed "s/^.version .*/.version 8.4/; s/^.target .*/.target sm_$s/" >cubin.ptx
  [ -n "$PTXAS12" ] && "$PTXAS12" -arch=sm_$s -o 12.4.sm_$s.cubin cubin.ptx
done
rm -f linked.o cubin.ptx
