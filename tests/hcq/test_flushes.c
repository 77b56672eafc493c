/* EMU_STRICT=1: with all cache maintenance of the AMD driver a program on two GPUs runs; if any part is left out, the
 * machine reports the accesses that needed it. The encoders are wrapped (Makefile). */
#include "hcq/amd/amd.h"
#include "hcq/amd/pm4.h"
#include "hcq/amd/sdma.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/ok.h"
#include "tests/sanitizers.h"

enum { N = 1000, BYTES = 4 * N };

/* The part that is left out: a whole packet, or bits of one. */
static enum left_out {
  NOTHING,
  HDP_PM4,
  HDP_SDMA,
  HDP_HOST,
  ACQUIRE,
  ACQUIRE_NEAR,
  ACQUIRE_L2,
  ACQUIRE_CODE,
  RELEASE_L2,
  COPY_CACHES,
  COPY_WRITES_BACK,
  COPY_INVALIDATES,
  LEFT_OUT,
} left_out;
static const char *const says[LEFT_OUT] = {
    [HDP_PM4] = "missing HDP flush",
    [HDP_SDMA] = "missing HDP flush",
    [HDP_HOST] = "missing HDP flush",
    [ACQUIRE] = "",
    [ACQUIRE_NEAR] = "caches are not written back and invalidated",
    [ACQUIRE_L2] = "no cache is invalidated",
    [ACQUIRE_CODE] = "no cache is invalidated",
    [RELEASE_L2] = "caches are not written back and invalidated",
    [COPY_CACHES] = "",
    [COPY_WRITES_BACK] = "caches are not written back and invalidated",
    [COPY_INVALIDATES] = "",
};

#define WRAPPED(name, parameters, ...)                                                                                 \
  void __real_##name parameters;                                                                                       \
  void __wrap_##name parameters;                                                                                       \
  void __wrap_##name parameters { __VA_ARGS__ }
/* Clears bits of the dword that is from_end dwords before the last one of a packet. */
static void clear(struct words *w, size_t from_end, uint32_t bits) { w->w[w->n - 1 - from_end] &= ~bits; }

WRAPPED(pm4_hdp_flush, (struct words * w), if (left_out != HDP_PM4) __real_pm4_hdp_flush(w);)
WRAPPED(sdma_hdp_flush, (struct words * w), if (left_out != HDP_SDMA) __real_sdma_hdp_flush(w);)
WRAPPED(amd_flush_peers, (struct kfd_process * p, const struct amd_node *own),
        if (left_out != HDP_HOST) __real_amd_flush_peers(p, own);)
WRAPPED(pm4_acquire_mem, (struct words * w), if (left_out == ACQUIRE) return; __real_pm4_acquire_mem(w);
        clear(w, 0,
              left_out == ACQUIRE_NEAR   ? BITS_MASK(PM4_ACQUIRE_MEM_GLV_INV)
              : left_out == ACQUIRE_L2   ? BITS_MASK(PM4_ACQUIRE_MEM_GL2_INV)
              : left_out == ACQUIRE_CODE ? BITS_MASK(PM4_ACQUIRE_MEM_GLI_INV)
                                         : 0);)
WRAPPED(pm4_release_mem, (struct words * w, const struct pm4_release *r), __real_pm4_release_mem(w, r);
        clear(w, 6, left_out == RELEASE_L2 ? BITS_MASK(PM4_RELEASE_MEM_GL2_WB) : 0);)
WRAPPED(sdma_cache_flush, (struct words * w), if (left_out == COPY_CACHES) return; __real_sdma_cache_flush(w);
        uint32_t bits = left_out == COPY_WRITES_BACK   ? BITS_MASK(PM4_ACQUIRE_MEM_GL2_WB)
                        : left_out == COPY_INVALIDATES ? BITS_MASK(PM4_ACQUIRE_MEM_GL2_INV)
                                                       : 0;
        clear(w, 2, bits << 16);)

static const void *read_image(size_t *size) {
  static char image[1 << 20];
  FILE *f = fopen(KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co", "rb");
  assert_non_null(f);
  *size = fread(image, 1, sizeof image, f);
  fclose(f);
  return image;
}

struct one {
  db_queue *q;
  uint64_t when;
};
static struct one submit(db_queue *q) {
  struct one o = {.q = q};
  OK(db_queue_submit(q, &o.when));
  return o;
}
static void after(db_queue *q, struct one o) { OK(db_queue_wait(q, db_queue_timeline(o.q), o.when)); }
static void saxpy(db_queue *q, db_program *program, db_buffer *y, db_buffer *x) {
  float one = 1;
  const uint32_t grid[3] = {(N + 63) / 64, 1, 1}, block[3] = {64, 1, 1};
  OK(db_queue_exec(q, program, (struct db_arg[]){{.buffer = y}, {.buffer = x}, {.data = &one}, {.bits = N}}, 4, grid,
                   block));
}

/* The host writes x through the window of GPU 0. GPU 0 computes y0 += x, then y1 += y0 on another queue, and copies b =
 * y0 on its copy queue. GPU 1 copies y0 and x and computes y2 += b. GPU 0 also copies x. Stores the error of waiting
 * for all of this in said, "" on success. */
static void run(char *said, size_t cap) {
  size_t size;
  const void *image = read_image(&size);
  db_device *dev[2] = {db_open("EMU+AMD:gfx1100"), db_open("EMU+AMD:gfx1100:1")};
  if (!dev[0] || !dev[1]) fail_msg("%s", db_error());
  db_program *program[2] = {NULL};
  db_buffer *x = db_alloc(dev[0], BYTES, DB_BUFFER_CPU_MAP), *y0 = db_alloc(dev[0], BYTES, 0),
            *y1 = db_alloc(dev[0], BYTES, 0), *b = db_alloc(dev[0], BYTES, 0), *x0 = db_alloc(dev[0], BYTES, 0),
            *x1 = db_alloc(dev[1], BYTES, 0), *c = db_alloc(dev[1], BYTES, 0), *y2 = db_alloc(dev[1], BYTES, 0);
  db_buffer *all[] = {x, y0, y1, b, x0, x1, c, y2}, *zero[] = {y0, y1, y2};
  db_queue *compute = db_queue_new(dev[0], DB_QUEUE_COMPUTE), *second = db_queue_new_at(dev[0], DB_QUEUE_COMPUTE, 1),
           *copies = db_queue_new(dev[0], DB_QUEUE_COPY), *far_copies = db_queue_new(dev[1], DB_QUEUE_COPY),
           *far = db_queue_new(dev[1], DB_QUEUE_COMPUTE);
  db_queue *queues[] = {compute, second, copies, far_copies, far};
  float data[N] = {0};
  int err = 0;
  for (int i = 0; i < 3 && !err; i++) err = db_buffer_write(zero[i], 0, data, BYTES);
  for (int i = 0; i < 2 && !err; i++)
    if (!(program[i] = db_program_load(dev[i], image, size, "saxpy", NULL, 0))) fail_msg("%s", db_error());
  for (int i = 0; i < N; i++) ((volatile float *)db_buffer_host(x))[i] = (float)i;
  struct one done[8] = {{0}};
  int n = 0;
  if (!err) {
    /* The host's flush for the other GPU is last: later submissions run after it. */
    saxpy(compute, program[0], y0, x);
    struct one first = done[n++] = submit(compute);
    OK(db_queue_copy(copies, x0, 0, x, 0, BYTES));
    done[n++] = submit(copies);
    OK(db_queue_copy(far_copies, x1, 0, x, 0, BYTES));
    done[n++] = submit(far_copies);
    after(second, first);
    saxpy(second, program[0], y1, y0);
    done[n++] = submit(second);
    after(far_copies, first);
    OK(db_queue_copy(far_copies, c, 0, y0, 0, BYTES));
    done[n++] = submit(far_copies);
    after(copies, first);
    OK(db_queue_copy(copies, b, 0, y0, 0, BYTES));
    struct one copied = done[n++] = submit(copies);
    after(far, copied);
    saxpy(far, program[1], y2, b);
    done[n++] = submit(far);
  }
  *said = 0;
  if (err) snprintf(said, cap, "%s", db_error());
  for (int i = 0; i < n; i++)
    if (db_wait(db_queue_timeline(done[i].q), done[i].when, *said ? SECOND / 2 : 20 * SECOND) && !*said)
      snprintf(said, cap, "%s", db_error());
  if (!*said) {
    db_buffer *results[] = {x0, x1, y0, y1, b, c, y2};
    for (int k = 0; k < 7; k++) {
      OK(db_buffer_read(results[k], 0, data, BYTES));
      for (int i = 0; i < N; i++) assert_float_equal(data[i], (float)i, 0);
    }
  }
  for (int i = 0; i < 5; i++) db_queue_release(queues[i]);
  for (int i = 0; i < 8; i++) db_buffer_release(all[i]);
  for (int i = 0; i < 2; i++) db_program_release(program[i]);
  for (int i = 0; i < 2; i++) db_close(dev[i]);
}

static void each_flush_is_needed(void **state) {
#ifndef __x86_64__
  skip(); /* the host's accesses are not watched there (emu/watch.h), which changes what is reported first */
#endif
  for (left_out = NOTHING; left_out < LEFT_OUT; left_out++) {
    if (left_out) NO_THREAD_SANITIZER;
    char said[1024] = "";
    bool right = false;
    /* On a busy host the queues may become idle between two submissions, which orders their work. */
    for (int tries = 0; tries < 8 && !right && (left_out || !tries); tries++) {
      run(said, sizeof said);
      right = left_out == NOTHING ? !*said : *said && strstr(said, says[left_out]);
    }
    if (!right)
      fail_msg("without packet or bits %d: \"%s\" does not contain \"%s\"", (int)left_out, said,
               left_out ? says[left_out] : "");
  }
  left_out = NOTHING;
}

/* A program is loaded while another queue's flush is blocked by a wait: the launch has its own flush. */
static void each_queue_flushes(void **state) {
  left_out = NOTHING;
  size_t size;
  const void *image = read_image(&size);
  db_device *dev = db_open("EMU+AMD:gfx1100");
  db_program *program = db_program_load(dev, image, size, "saxpy", NULL, 0);
  if (!program) fail_msg("%s", db_error());
  db_buffer *x = db_alloc(dev, BYTES, DB_BUFFER_HOST), *y = db_alloc(dev, BYTES, DB_BUFFER_HOST);
  memset(db_buffer_host(x), 0, BYTES);
  memset(db_buffer_host(y), 0, BYTES);
  db_signal *gate = db_signal_new(dev);
  db_queue *first = db_queue_new(dev, DB_QUEUE_COMPUTE), *second = db_queue_new_at(dev, DB_QUEUE_COMPUTE, 1);
  uint64_t held, when;
  OK(db_queue_wait(second, gate, 1));
  OK(db_queue_memory_barrier(second));
  OK(db_queue_submit(second, &held));
  saxpy(first, program, y, x);
  OK(db_queue_submit(first, &when));
  OK(db_wait(db_queue_timeline(first), when, 20 * SECOND));
  db_signal_set(gate, 1);
  OK(db_wait(db_queue_timeline(second), held, 20 * SECOND));
  db_signal_release(gate);
  db_queue_release(first);
  db_queue_release(second);
  db_buffer_release(x);
  db_buffer_release(y);
  db_program_release(program);
  db_close(dev);
}

int main(void) {
  setenv("EMU_STRICT", "1", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_flush_is_needed), cmocka_unit_test(each_queue_flushes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
