/* Runs the CUDA C kernels of the tests, at every level at which they were built, on one device. Compares each result
 * bit for bit with another device's, or records the results.
 *
 *   nv_golden DEV OTHER           compares, for example NV with EMU+NV:sm_90; exit 1 if something differs or fails
 *   nv_golden DEV --record        prints a line per result: file kernel level digest
 *   nv_golden DEV --check FILE    compares with such lines */
#include "../hcq/cuda_table.h"
#include "hcq/hcq.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = {"O3", "O0", "fast", "G"};
#define TIMEOUT_NS 20000000000ull

struct side {
  const char *name;
  db_device *dev;
  db_queue *queue;
};

static bool side_open(struct side *s, const char *name) {
  s->name = name;
  s->dev = db_open(name);
  s->queue = s->dev ? db_queue_new(s->dev, DB_QUEUE_COMPUTE) : NULL;
  if (!s->queue) printf("%s: %s\n", name, db_error());
  return s->queue;
}
static void side_close(struct side *s) {
  db_queue_release(s->queue);
  db_close(s->dev);
  s->queue = NULL, s->dev = NULL;
}

static void *read_cubin(const struct cuda_case *c, const char *level, size_t *size) {
  char path[512];
  snprintf(path, sizeof path, KERNELS_DIR "/tests/kernels/cuda/%s.sm_90.%s.cubin", c->file, level);
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  enum { LARGEST = 16 << 20 };
  void *image = malloc(LARGEST);
  *size = image ? fread(image, 1, LARGEST, f) : 0;
  fclose(f);
  return image;
}

/* Runs the kernel and reads its first buffer. On failure returns false with a message in db_error(). */
static bool run(struct side *s, const struct cuda_case *c, const void *image, size_t size, const u32 *in, u32 *out) {
  db_program *p = db_program_load(s->dev, image, size, c->name, NULL, 0);
  db_buffer *a = db_alloc(s->dev, c->out_words * 4, 0), *b = db_alloc(s->dev, c->in_words * 4, 0);
  memset(out, 0, c->out_words * 4);
  uint64_t when;
  struct db_arg args[3] = {{.buffer = a}, {.buffer = b}, {.bits = c->n}};
  bool ok = p && a && b && !db_buffer_write(a, 0, out, c->out_words * 4) &&
            !db_buffer_write(b, 0, in, c->in_words * 4) && !db_queue_exec(s->queue, p, args, 3, c->grid, c->block) &&
            !db_queue_submit(s->queue, &when) && !db_wait(db_queue_timeline(s->queue), when, TIMEOUT_NS) &&
            !db_buffer_read(a, 0, out, c->out_words * 4);
  if (!ok) printf("%s: %s: FAILED: %s\n", s->name, c->name, db_error());
  db_buffer_release(a), db_buffer_release(b);
  db_program_release(p);
  return ok;
}

/* FNV-1a over the bytes. */
static uint64_t digest(const u32 *words, u32 n) {
  uint64_t h = 0xcbf29ce484222325;
  const uint8_t *b = (const uint8_t *)words;
  for (size_t i = 0; i < (size_t)n * 4; i++) h = (h ^ b[i]) * 0x100000001b3;
  return h;
}

struct golden {
  char file[24], kernel[40], level[8];
  unsigned long long digest;
};
static size_t read_golden(const char *path, struct golden *g, size_t cap) {
  FILE *f = fopen(path, "r");
  size_t n = 0;
  if (!f) return 0;
  while (n < cap && fscanf(f, "%23s %39s %7s %llx", g[n].file, g[n].kernel, g[n].level, &g[n].digest) == 4) n++;
  fclose(f);
  return n;
}

int main(int argc, char **argv) {
  bool record = argc == 3 && !strcmp(argv[2], "--record"), check = argc == 4 && !strcmp(argv[2], "--check");
  if (argc != 3 && !check) return fputs("usage: nv_golden DEV OTHER | DEV --record | DEV --check FILE\n", stderr), 2;
  enum { MOST = CUDA_CASES * 4 };
  static struct golden golden[MOST];
  size_t ngolden = check ? read_golden(argv[3], golden, MOST) : 0;
  if (check && !ngolden) return fprintf(stderr, "nv_golden: %s: no results in it\n", argv[3]), 2;
  struct side a = {0}, b = {0};
  bool other = !record && !check;
  if (!side_open(&a, argv[1]) || (other && !side_open(&b, argv[2]))) return 1;
  unsigned same = 0, different = 0, missing = 0;
  for (unsigned i = 0; i < CUDA_CASES; i++) {
    const struct cuda_case *c = &cuda_cases[i];
    u32 *in = calloc(c->in_words, 4), *x = calloc(c->out_words, 4), *y = calloc(c->out_words, 4);
    if (!in || !x || !y) return 1;
    cuda_fill(c, in);
    for (unsigned l = 0; l < 4; l++) {
      size_t size = 0;
      void *image = read_cubin(c, levels[l], &size);
      if (!image) {
        missing++;
        continue;
      }
      /* A failed device accepts no more work, so later results would mean nothing. */
      if (!run(&a, c, image, size, in, x) || (other && !run(&b, c, image, size, in, y))) return 1;
      free(image);
      if (record)
        printf("%s %s %s %016llx\n", c->file, c->name, levels[l], (unsigned long long)digest(x, c->out_words));
      bool equal = record || !memcmp(x, y, c->out_words * 4);
      if (check) {
        const struct golden *g = golden;
        while (g < golden + ngolden &&
               (strcmp(g->file, c->file) || strcmp(g->kernel, c->name) || strcmp(g->level, levels[l])))
          g++;
        if (g == golden + ngolden) {
          missing++;
          continue;
        }
        equal = g->digest == digest(x, c->out_words);
        if (!equal) printf("%s %s (%s): differs from the recording\n", c->file, c->name, levels[l]);
      }
      for (u32 k = 0; other && !equal && k < c->out_words; k++) {
        if (x[k] == y[k]) continue;
        printf("%s %s (%s): word %u is 0x%08x on %s, 0x%08x on %s\n", c->file, c->name, levels[l], k, x[k], a.name,
               y[k], b.name);
        break;
      }
      *(equal ? &same : &different) += 1;
    }
    free(in), free(x), free(y);
  }
  side_close(&a), side_close(&b);
  fflush(stdout); /* before other writers of the same file */
  fprintf(record ? stderr : stdout, "%u results%s, %u differ, %u not built or not recorded\n", same + different,
          record ? " recorded" : "", different, missing);
  return different ? 1 : 0;
}
