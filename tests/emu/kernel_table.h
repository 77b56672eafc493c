/* The table of kernel cases: KERNEL_CASES(X) expands to X(name) for each. test_rdna3_kernels.c runs them once, at -O2;
 * long_rdna3_kernels.c runs them at other levels and in both wave sizes. */
#ifndef DOORBELL_TESTS_KERNEL_TABLE_H
#define DOORBELL_TESTS_KERNEL_TABLE_H
#include "kernel_algorithms.h"
#include "kernel_cases.h"
/* clang-format off */
#define KERNEL_CASES(X) \
  X(saxpy) X(sgemm) X(reduce) X(histogram) X(stencil) X(scan) X(bitonic) X(hash) X(f64) X(int64) X(bytes) \
  X(f16) X(transcend) X(diverge) X(scratch) X(calls) X(atomics) X(ldsatomics) X(hidden) X(structarg) \
  X(flatptr) X(vectors) X(convert) X(lanes) X(fft) X(blur) X(dots) X(wave64) X(life) X(transpose) X(median) \
  X(conv) X(matmuls) X(spmv) X(floyd) X(radix) X(blelloch) X(search) X(nbody) X(argmax) X(subgroup) X(heat) \
  X(dct) BODIES(X)
/* clang-format on */
#endif
