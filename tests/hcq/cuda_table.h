/* The kernels of tests/kernels/cuda: the arguments of each, and its reference on the host. */
#ifndef DOORBELL_TESTS_CUDA_TABLE_H
#define DOORBELL_TESTS_CUDA_TABLE_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_reference.h"

enum cuda_fill { WORDS, SMALL_FLOATS, DOUBLES, ROOTS, SORTED_HALVES };
enum cuda_compare { EXACT, CLOSE_F32, CLOSE_F64 };

struct cuda_case {
  const char *file, *name;
  cuda_reference *reference;
  u32 n, in_words, out_words; /* n: the argument; sizes of the buffers in words */
  u32 grid[3], block[3];
  enum cuda_fill fill;
  enum cuda_compare compare;
  double tolerance, fast; /* of |got - want| / (1 + |want|); fast: if nvcc approximates; 0: equal */
};

#define ONE(file, name, threads, ...)                                                                                  \
  {file, #name, name##_ref, threads, threads, threads, {(threads) / 64, 1, 1}, {64, 1, 1}, __VA_ARGS__}
#define ARITH_ROW(name)   ONE("arith", name, 256, WORDS, EXACT),
#define HASH_ROW(name)    ONE("hash", name, 128, WORDS, EXACT),
#define CONTROL_ROW(name) ONE("control", name, 128, WORDS, EXACT),
/* n, words in, words out, blocks, threads */
#define ROW(file, name, n, in, out, blocks, threads, ...)                                                              \
  {file, #name, name##_ref, n, in, out, {blocks, 1, 1}, {threads, 1, 1}, __VA_ARGS__}
#define PLANE(file, name, n, in, out, gx, gy, bx, by, ...)                                                             \
  {file, #name, name##_ref, n, in, out, {gx, gy, 1}, {bx, by, 1}, __VA_ARGS__}
#define MMA(name, reference, out, gy) {"mma", #name, reference, 0, 768, out, {2, gy, 1}, {32, 1, 1}, WORDS, EXACT}

static const struct cuda_case cuda_cases[] = {
    ARITH(ARITH_ROW) HASH(HASH_ROW) CONTROL(CONTROL_ROW) ROW("reduce", reduce_tree, 5000, 5000, 3, 3, 256),
    ROW("reduce", reduce_shuffle, 700, 700, 3, 3, 256),
    ROW("reduce", reduce_redux, 256, 256, 64, 2, 128),
    ROW("reduce", reduce_argmax, 768, 768, 6, 3, 256),
    ROW("reduce", reduce_dot, 200, 1600, 16, 2, 128),
    ROW("reduce", reduce_last, 3000, 3000, 6, 5, 128),
    ROW("reduce", reduce_welford, 160, 640, 8, 4, 32),
    ROW("scan", scan_doubling, 256, 256, 256, 1, 256),
    ROW("scan", scan_tree, 512, 512, 512, 2, 128),
    ROW("scan", scan_shuffle, 512, 512, 1024, 2, 256),
    ROW("scan", scan_segmented, 128, 128, 128, 4, 32),
    ROW("scan", scan_compact, 256, 256, 257, 1, 256),
    ROW("scan", scan_max, 128, 128, 128, 4, 32),
    ROW("sort", sort_bitonic, 512, 512, 512, 2, 256),
    ROW("sort", sort_warp, 128, 128, 256, 2, 64),
    ROW("sort", sort_radix, 128, 128, 128, 4, 32),
    ROW("sort", sort_odd_even, 128, 128, 128, 2, 64),
    ROW("sort", sort_merge, 256, 256, 256, 1, 256, SORTED_HALVES),
    ROW("sort", search_text, 4000, 1000, 1, 3, 128),
    ROW("sort", search_graph, 0, 384, 128, 1, 128),
    ROW("memory", histogram_shared, 8000, 2000, 256, 2, 128),
    ROW("memory", histogram_match, 512, 512, 16, 2, 256),
    ROW("memory", atomics32, 256, 256, 272, 2, 128),
    ROW("memory", atomics64, 256, 256, 544, 2, 128),
    ROW("memory", atomics_float, 256, 256, 6, 2, 128),
    ROW("memory", atomics_shared, 256, 256, 38, 2, 128),
    ROW("memory", spin_lock, 128, 128, 2, 2, 64),
    ROW("memory", vectors, 64, 256, 512, 2, 32),
    ROW("memory", constants, 256, 256, 256, 2, 128),
    ROW("memory", generic, 256, 256, 512, 2, 128),
    PLANE("memory", transpose, 48, 2304, 2304, 3, 3, 16, 16),
    ROW("memory", sparse, 256, 256, 256, 2, 128),
    {"memory", "geometry", geometry_ref, 0, 1, 1152, {2, 3, 2}, {8, 4, 3}},
    ROW("warp", shuffles, 128, 128, 128, 2, 64),
    ROW("warp", votes, 256, 256, 256, 2, 128),
    ROW("warp", sides, 128, 128, 128, 2, 64),
    ROW("warp", leaving, 256, 256, 256, 2, 128),
    ROW("warp", relay, 128, 128, 128, 2, 64),
    ROW("warp", warp_lock, 128, 128, 4, 2, 64),
    ROW("warp", named_barriers, 0, 384, 64, 1, 128),
    ROW("warp", elections, 128, 128, 128, 2, 64),
    PLANE("numeric", heat2d, 0, 324, 256, 1, 1, 16, 16),
    ROW("numeric", heat1d, 256, 256, 512, 2, 128),
    PLANE("numeric", life, 32, 256, 256, 4, 1, 32, 8),
    ROW("numeric", blur, 256, 256, 256, 2, 128),
    PLANE("numeric", sgemm, 32, 2048, 1024, 2, 2, 16, 16, SMALL_FLOATS),
    PLANE("numeric", dgemm, 16, 1024, 512, 1, 2, 8, 8, DOUBLES),
    {"numeric", "byte_dots", byte_dots_ref, 512, 512, 64, {1, 1, 1}, {64, 1, 1}},
    ROW("numeric", transform_mod, 256, 256, 256, 2, 64),
    ROW("numeric", transform_f32, 0, 192, 128, 1, 32, ROOTS, CLOSE_F32, 1e-5),
    PLANE("numeric", floyd, 0, 1024, 1024, 1, 1, 32, 8),
    ROW("numeric", common_text, 0, 128, 1, 1, 64),
    ROW("numeric", nbody, 128, 512, 384, 2, 64, SMALL_FLOATS),
    ROW("numeric", triangles, 0, 576, 1152, 1, 24),
    ROW("numeric", side_by_side, 256, 256, 256, 2, 128),
    ROW("halves", half_pairs, 128, 128, 1024, 2, 64),
    ROW("halves", bfloat_pairs, 128, 128, 1024, 2, 64),
    ROW("halves", half_conversions, 128, 128, 1024, 2, 64),
    ROW("halves", half_dot, 40, 1280, 64, 1, 32),
    ROW("math", math_f32, 128, 128, 2048, 2, 64, SMALL_FLOATS, CLOSE_F32, 4e-6, 2e-4),
    ROW("math", math_f64, 128, 128, 4096, 2, 64, SMALL_FLOATS, CLOSE_F64, 1e-14),
    ROW("math", math_reduction, 128, 128, 1024, 2, 64, SMALL_FLOATS, CLOSE_F64, 1e-6, 3),
    ROW("math", math_intrinsics, 128, 128, 1024, 2, 64, SMALL_FLOATS, CLOSE_F32, 4e-6),
    MMA(mma_f16, mma_f32_ref, 512, 2),
    MMA(mma_f16_f16, mma_f16_f16_ref, 256, 2),
    MMA(mma_bf16, mma_f32_ref, 512, 2),
    MMA(mma_tf32, mma_f32_ref, 512, 2),
    MMA(mma_s8, mma_s8_ref, 512, 2),
    MMA(mma_f64, mma_f64_ref, 1024, 4),
    MMA(mma_ldmatrix, mma_f32_ref, 512, 2),
    ROW("mma", mma_transpose, 128, 128, 128, 4, 32),
    ROW("async", copy_async, 0, 2048, 128, 1, 128),
    ROW("async", copy_pipeline, 8, 512, 64, 1, 64),
    ROW("async", barrier_phases, 0, 64, 64, 1, 64),
    ROW("async", barrier_copies, 0, 256, 64, 1, 64),
    ROW("async", copy_bulk, 512, 512, 512, 2, 64),
    ROW("async", cluster, 256, 256, 256, 4, 64),
};
enum { CUDA_CASES = sizeof cuda_cases / sizeof *cuda_cases };

/* ---- inputs ---- */

static int by_word(const void *a, const void *b) {
  u32 x = *(const u32 *)a, y = *(const u32 *)b;
  return (x > y) - (x < y);
}

static void cuda_fill(const struct cuda_case *c, u32 *in) {
  u32 seed = 12345;
  for (const char *p = c->name; *p; p++) seed = seed * 31 + (u32)*p;
  for (u32 i = 0; i < c->in_words; i++) {
    u32 x = next_random(&seed);
    in[i] = x ^ x >> 15 ^ seed * 2654435761u >> 9;
    float unit = (float)(i32)in[i] * 0x1p-31f;
    if (c->fill == SMALL_FLOATS) in[i] = f32_bits(unit * 4);
    if (c->fill == DOUBLES && i % 2) store64(in, i / 2, f64_bits((double)unit + (double)in[i - 1] * 0x1p-60));
    if (c->fill == ROOTS)
      in[i] =
          f32_bits(i < 128 ? unit : (float)(i % 2 ? -sin(M_PI * (i / 2 - 64) / 32) : cos(M_PI * (i / 2 - 64) / 32)));
  }
  if (c->fill == SORTED_HALVES) {
    qsort(in, c->in_words / 2, 4, by_word);
    qsort(in + c->in_words / 2, c->in_words / 2, 4, by_word);
  }
}
#endif
