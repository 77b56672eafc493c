#!/bin/sh
# Rebuilds sm_90.cubin with the CUDA toolkit's nvcc (13.0 made the one in the repository).
cd "$(dirname "$0")" && nvcc -arch=sm_90 -O3 -cubin -o sm_90.cubin sm_90.cu
