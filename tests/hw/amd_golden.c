/* Runs OpenCL C kernels of the tests on one device, at every level and in both wave sizes as far as they were built.
 * Compares each result bit for bit with the same C on the host.
 *
 *   amd_golden DEV      prints a line per result: kernel build digest; exit 1 if something differs or fails */
#include "../kernels/bodies.h"
#include "hcq/hcq.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS 20000000000ull
enum { GROUPS = 32, THREADS = 256, N = GROUPS * THREADS - 1 };

static const struct body {
  const char *name;
  u32 (*body)(u32 x, u32 i);
} bodies[] = {
#define X(name) {#name, name##_body},
    BODIES(X)
#undef X
};
static const char *const builds[] = {"", ".O0.w32", ".O0.w64", ".O1.w32", ".O1.w64", ".O3.w32", ".O3.w64"};

static void *read_object(const char *name, const char *level, size_t *size) {
  char path[512];
  snprintf(path, sizeof path, KERNELS_DIR "/tests/kernels/%s.gfx1100%s.co", name, level);
  FILE *f = fopen(path, "rb");
  enum { LARGEST = 1 << 20 };
  void *image = f ? malloc(LARGEST) : NULL;
  *size = image ? fread(image, 1, LARGEST, f) : 0;
  if (f) fclose(f);
  return image;
}

/* FNV-1a over the bytes. */
static u64 digest(const u32 *words) {
  u64 h = 0xcbf29ce484222325;
  const uint8_t *b = (const uint8_t *)words;
  for (size_t i = 0; i < (size_t)N * 4; i++) h = (h ^ b[i]) * 0x100000001b3;
  return h;
}

static bool run(db_queue *q, db_device *dev, const char *name, const void *image, size_t size, const u32 *in,
                u32 *out) {
  db_program *p = db_program_load(dev, image, size, name, NULL, 0);
  db_buffer *a = db_alloc(dev, N * 4, 0), *b = db_alloc(dev, N * 4, 0);
  uint64_t when;
  struct db_arg args[3] = {{.buffer = a}, {.buffer = b}, {.bits = N}};
  bool ok = p && a && b && !db_buffer_write(a, 0, out, N * 4) && !db_buffer_write(b, 0, in, N * 4) &&
            !db_queue_exec(q, p, args, 3, (uint32_t[3]){GROUPS, 1, 1}, (uint32_t[3]){THREADS, 1, 1}) &&
            !db_queue_submit(q, &when) && !db_wait(db_queue_timeline(q), when, TIMEOUT_NS) &&
            !db_buffer_read(a, 0, out, N * 4);
  db_buffer_release(a), db_buffer_release(b);
  db_program_release(p);
  return ok;
}

int main(int argc, char **argv) {
  if (argc != 2) return fputs("usage: amd_golden DEV\n", stderr), 2;
  db_device *dev = db_open(argv[1]);
  db_queue *q = dev ? db_queue_new(dev, DB_QUEUE_COMPUTE) : NULL;
  if (!q) return printf("%s: %s\n", argv[1], db_error()), 1;
  static u32 in[N], out[N], want[N];
  for (u32 i = 0; i < N; i++) in[i] = i < 3 ? i - 1 : i * 2654435761u ^ i << 7;
  unsigned same = 0, different = 0, missing = 0;
  for (unsigned k = 0; k < sizeof bodies / sizeof *bodies; k++) {
    for (u32 i = 0; i < N; i++) want[i] = bodies[k].body(in[i], i);
    for (unsigned l = 0; l < sizeof builds / sizeof *builds; l++) {
      size_t size;
      void *image = read_object(bodies[k].name, builds[l], &size);
      if (!image) {
        missing++;
        continue;
      }
      memset(out, 0, sizeof out);
      bool ok = run(q, dev, bodies[k].name, image, size, in, out);
      free(image);
      /* A failed device accepts no more work, so later results would mean nothing. */
      if (!ok) return printf("%s%s: FAILED: %s\n", bodies[k].name, builds[l], db_error()), 1;
      printf("%s %s %016llx\n", bodies[k].name, l ? builds[l] + 1 : "O2", (unsigned long long)digest(out));
      bool equal = !memcmp(out, want, sizeof out);
      for (u32 i = 0; i < N && !equal; i++)
        if (out[i] != want[i]) {
          printf("%s%s: word %u is 0x%08x, on the host 0x%08x\n", bodies[k].name, builds[l], i, out[i], want[i]);
          break;
        }
      *(equal ? &same : &different) += 1;
    }
  }
  db_queue_release(q);
  db_close(dev);
  printf("%u results, %u differ, %u not built\n", same + different, different, missing);
  return different ? 1 : 0;
}
