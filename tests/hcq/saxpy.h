/* The kernels saxpy (y += a * x) and relay (ends when told to), on the CPU and on an emulated GPU of each vendor, for
 * suites about queues. */
#ifndef DOORBELL_TESTS_HCQ_SAXPY_H
#define DOORBELL_TESTS_HCQ_SAXPY_H
#include "hcq/hcq.h"
#include "host_object.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { SAXPY_ITEMS = 64 }; /* elements per workgroup */
static const struct machine {
  const char *name, *file, *relay; /* file, relay: NULL: compiled by the host's compiler */
  uint32_t block[3];
} machines[] = {
    {"CPU", NULL, NULL, {1, 1, 1}},
    {"EMU+AMD:gfx1100",
     KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co",
     KERNELS_DIR "/tests/kernels/relay.gfx1100.co",
     {SAXPY_ITEMS, 1, 1}},
    {"EMU+NV:sm_90",
     DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin",
     DATA_DIR "/nv/relay.cubin",
     {SAXPY_ITEMS, 1, 1}},
};
enum { MACHINES = sizeof machines / sizeof *machines };

/* Parameters of kernels made by host_object: void name(float *y, const float *x, float a, uint32_t n). One call is a
 * workgroup of 64 elements. */
static const struct db_param saxpy_params[] = {{"y", 0, 8, DB_PARAM_BUFFER},
                                               {"x", 8, 8, DB_PARAM_BUFFER},
                                               {"a", 16, 4, DB_PARAM_VALUE},
                                               {"n", 20, 4, DB_PARAM_VALUE}};
static const char saxpy_host[] =
    "#include <stdint.h>\n"
    "void saxpy(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  const struct { float *y; const float *x; float a; uint32_t n; } *p = k;\n"
    "  for (uint32_t i = x * 64; i < x * 64 + 64 && i < p->n; i++) p->y[i] += p->a * p->x[i];\n}\n"
    "void relay(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  const struct { uint32_t *wait_for, *set; uint32_t value; } *p = k;\n"
    "  __atomic_store_n(p->set, p->value, __ATOMIC_SEQ_CST);\n"
    "  while (__atomic_load_n(p->wait_for, __ATOMIC_SEQ_CST) < p->value) {}\n}\n";

/* The file's image, which the caller frees. NULL if there is no file and the host has no compiler. */
static inline void *kernel_image(const char *file, size_t *size) {
  if (!file) return host_object(saxpy_host, "", size);
  FILE *f = fopen(file, "rb");
  if (!f) fail_msg("no %s", file);
  void *image = malloc(1 << 20);
  *size = fread(image, 1, 1 << 20, f);
  fclose(f);
  return image;
}

static inline void *saxpy_image(const struct machine *m, size_t *size) { return kernel_image(m->file, size); }

static inline db_program *saxpy_load(const struct machine *m, db_device *dev, const void *image, size_t size) {
  return db_program_load(dev, image, size, "saxpy", m->file ? NULL : saxpy_params, m->file ? 0 : 4);
}

/* Loads a kernel that sets the flag `set` when it runs and ends when the flag `wait_for` is 1. */
static inline db_program *relay_load(const struct machine *m, db_device *dev) {
  static const struct db_param params[] = {
      {"wait_for", 0, 8, DB_PARAM_BUFFER}, {"set", 8, 8, DB_PARAM_BUFFER}, {"value", 16, 4, DB_PARAM_VALUE}};
  size_t size = 0;
  void *image = kernel_image(m->relay, &size);
  if (!image) return NULL;
  db_program *p = db_program_load(dev, image, size, "relay", m->relay ? NULL : params, m->relay ? 0 : 3);
  free(image);
  return p;
}
static inline int relay_record(const struct machine *m, db_queue *q, db_program *relay, db_buffer *flags) {
  const struct db_arg args[] = {{.buffer = flags}, {.buffer = flags, .bits = 64}, {.bits = 1}};
  return db_queue_exec(q, relay, args, 3, (uint32_t[3]){1, 1, 1}, m->block);
}

static inline int saxpy_record(const struct machine *m, db_queue *q, db_program *saxpy, db_buffer *y, db_buffer *x,
                               float a, unsigned a_slot, uint32_t n) {
  uint32_t bits;
  memcpy(&bits, &a, 4);
  const struct db_arg args[] = {{.buffer = y}, {.buffer = x}, {.bits = bits, .slot = a_slot}, {.bits = n}};
  return db_queue_exec(q, saxpy, args, 4, (uint32_t[3]){(n + SAXPY_ITEMS - 1) / SAXPY_ITEMS, 1, 1}, m->block);
}
#endif
