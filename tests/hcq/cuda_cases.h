/* Runs the kernels of tests/kernels/cuda on EMU+NV:sm_90 and compares each with its reference: nvcc's cubins, through
 * the loader and the queues. Results are bitwise equal unless a row of the table states a tolerance. */
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
#include "cuda_table.h"
#include "hcq/hcq.h"

static db_device *cuda_device;
static db_queue *cuda_queue;

static int cuda_teardown(void **state) {
  db_queue_release(cuda_queue);
  db_close(cuda_device);
  cuda_queue = NULL, cuda_device = NULL;
  return 0;
}
/* A failed test leaves a device that accepts no more work. True from a launch until it succeeds. */
static bool cuda_busy;
static int cuda_setup(void **state) {
  if (cuda_busy) cuda_teardown(state);
  cuda_busy = false;
  if (!cuda_device) cuda_device = db_open("EMU+NV:sm_90");
  if (cuda_device && !cuda_queue) cuda_queue = db_queue_new(cuda_device, DB_QUEUE_COMPUTE);
  if (!cuda_queue) print_error("%s\n", db_error());
  return cuda_queue ? 0 : -1;
}

/* ---- cubins ---------------------------------------------------------------------------------- */

/* Reads the cubin that nvcc built on this machine, or else the one in the repository. Returns NULL if there is neither.
 */
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

/* ---- one case -------------------------------------------------------------------------------- */
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

/* Runs p with args and reads back the first buffer. Releases the program and the buffers before it reports a failure,
 * because a device closes with its last object. */
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

/* Passes a structure by value and parameters of every size. */
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
