/* The kernels of tests/kernels/cuda on EMU+NV:sm_90, each against its reference: cubins as nvcc made them, through the
 * loader and the queues. Results are equal bit for bit but where a row of the table says how far they may differ. */
#ifndef DOORBELL_TESTS_CUDA_CASES_H
#define DOORBELL_TESTS_CUDA_CASES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "cuda_reference.h"
#include "hcq/hcq.h"

enum cuda_fill { WORDS, SMALL_FLOATS, DOUBLES, ROOTS, SORTED_HALVES };
enum cuda_compare { EXACT, CLOSE_F32, CLOSE_F64 };

struct cuda_case {
  const char *file, *name;
  cuda_reference *reference;
  u32 n, in_words, out_words; /* the argument, and sizes of the buffers */
  u32 grid[3], block[3];
  enum cuda_fill fill;
  enum cuda_compare compare;
  double tolerance, fast; /* of |got - want| over 1 + |want|; fast: where nvcc may use approximations, 0: the same */
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
    ROW("math", math_reduction, 128, 128, 1024, 2, 64, SMALL_FLOATS, CLOSE_F64, 1e-6),
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

static db_device *cuda_device;
static db_queue *cuda_queue;

static int cuda_teardown(void **state) {
  db_queue_release(cuda_queue);
  db_close(cuda_device);
  cuda_queue = NULL, cuda_device = NULL;
  return 0;
}
/* A test that failed leaves a device that takes no more work. */
static bool cuda_busy;
static int cuda_setup(void **state) {
  if (cuda_busy) cuda_teardown(state);
  cuda_busy = false;
  if (!cuda_device) cuda_device = db_open("EMU+NV:sm_90");
  if (cuda_device && !cuda_queue) cuda_queue = db_queue_new(cuda_device, DB_QUEUE_COMPUTE);
  if (!cuda_queue) print_error("%s\n", db_error());
  return cuda_queue ? 0 : -1;
}

/* ---- cubins ------------------------------------------------------------------------------------------------------- */

/* What nvcc built for this machine, else what is in the repository; NULL when there is neither. */
static void *cuda_read(const char *file, const char *level, size_t *size) {
  static const char *const folders[] = {KERNELS_DIR "/tests/kernels/cuda", DATA_DIR "/nv"};
  char path[512];
  for (unsigned i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s.sm_90.%s.cubin", folders[i], file, level);
    FILE *f = fopen(path, "rb");
    if (!f) continue;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    void *image = malloc(*size);
    assert_int_equal(fread(image, 1, *size, f), *size);
    fclose(f);
    return image;
  }
  return NULL;
}

static db_program *cuda_load(const char *file, const char *level, const char *kernel) {
  size_t size;
  void *image = cuda_read(file, level, &size);
  if (!image) {
    print_message("%s.sm_90.%s.cubin: needs nvcc\n", file, level);
    skip();
  }
  db_program *p = db_program_load(cuda_device, image, size, kernel, NULL, 0);
  free(image);
  if (!p) fail_msg("%s", db_error());
  return p;
}

/* ---- one case ------------------------------------------------------------------------------------------------------- */
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

static void cuda_check(const struct cuda_case *c, const char *level, const void *got, const void *want) {
  double tolerance = c->fast > 0 && !strcmp(level, "fast") ? c->fast : c->tolerance;
  u32 step = c->compare == CLOSE_F64 ? 8 : 4;
  for (u32 i = 0; i < c->out_words * 4; i += step) {
    double g = 0, w = 0;
    u32 gw, ww;
    memcpy(&gw, (const char *)got + i, 4), memcpy(&ww, (const char *)want + i, 4);
    if (c->compare == EXACT) {
      if (gw != ww) fail_msg("%s (%s): word %u is 0x%08x, the host has 0x%08x", c->name, level, i / 4, gw, ww);
      continue;
    }
    if (c->compare == CLOSE_F64)
      memcpy(&g, (const char *)got + i, 8), memcpy(&w, (const char *)want + i, 8);
    else
      g = (double)bits_f32(gw), w = (double)bits_f32(ww);
    if (!(fabs(g - w) <= tolerance * (1 + fabs(w))))
      fail_msg("%s (%s): number %u is %.17g, the host has %.17g", c->name, level, i / step, g, w);
  }
}

static db_buffer *cuda_buffer(const void *data, size_t size) {
  db_buffer *b = db_alloc(cuda_device, size, 0);
  if (!b || db_buffer_write(b, 0, data, size)) fail_msg("%s", db_error());
  return b;
}

/* Runs p over buffers of what args point to, and reads the first one back. What it holds is let go before a failure is
 * told: a device closes with its last object. */
static void cuda_launch(db_program *p, struct db_arg *args, unsigned nargs, const u32 grid[3], const u32 block[3],
                        void *out, size_t size) {
  uint64_t when;
  char why[1200] = "";
  cuda_busy = true;
  db_queue_exec(cuda_queue, p, args, nargs, grid, block);
  if (db_queue_submit(cuda_queue, &when) || db_wait(db_queue_timeline(cuda_queue), when, 20000000000ull) ||
      db_buffer_read(args[0].buffer, 0, out, size))
    snprintf(why, sizeof why, "%s: %s", db_program_name(p), db_error());
  for (unsigned i = 0; i < nargs; i++) db_buffer_release(args[i].buffer);
  db_program_release(p);
  if (*why) fail_msg("%s", why);
  cuda_busy = false;
}

static void cuda_run(const struct cuda_case *c, const char *level) {
  db_program *p = cuda_load(c->file, level, c->name);
  u32 *in = calloc(c->in_words, 4), *out = calloc(c->out_words, 4), *want = calloc(c->out_words, 4);
  cuda_fill(c, in);
  c->reference(want, in, c->n);
  struct db_arg args[3] = {
      {.buffer = cuda_buffer(out, c->out_words * 4)}, {.buffer = cuda_buffer(in, c->in_words * 4)}, {.bits = c->n}};
  cuda_launch(p, args, 3, c->grid, c->block, out, c->out_words * 4);
  cuda_check(c, level, out, want);
  free(in), free(out), free(want);
}

/* A structure by value and parameters of every size. */
static void cuda_parameters(const char *level) {
  struct big {
    u32 w[100];
    u64 d[3];
  } big;
  db_program *p = cuda_load("memory", level, "parameters");
  u32 in[64], out[64] = {0}, seed = 99, n = 64;
  for (u32 i = 0; i < 64; i++) in[i] = next_random(&seed);
  for (u32 i = 0; i < 100; i++) big.w[i] = next_random(&seed);
  for (u32 i = 0; i < 3; i++) big.d[i] = (u64)next_random(&seed) << 31;
  u8 a = 200;
  i16 b = -30000;
  double e = 3.5;
  float f = -0.25f;
  struct db_arg args[8] = {{.buffer = cuda_buffer(out, sizeof out)},
                           {.buffer = cuda_buffer(in, sizeof in)},
                           {.data = &n},
                           {.data = &a},
                           {.data = &b},
                           {.data = &big},
                           {.data = &e},
                           {.data = &f}};
  cuda_launch(p, args, 8, (u32[3]){2, 1, 1}, (u32[3]){32, 1, 1}, out, sizeof out);
  for (u32 k = 0; k < 64; k++)
    assert_int_equal(out[k], big.w[in[k] % 100] + 600u + (u32)b * 5u + fold64(big.d[k % 3]) + fold64(f64_bits(e)) +
                                 f32_bits(f));
}
#endif
