/* doorbell run --pc-samples: where the warps of a kernel were, and why they waited, by instruction. */
#include "run.h"
#include "../run/record.h"
#include "../../hcq/profile.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 64 << 20, SHOWN = 8, INSTRUCTION = 16 /* bytes */ };

struct line {
  uint64_t samples, issued, of[DB_STALLS];
};

struct run_samples {
  db_pc_sampler *sampler;
  json_t *rows; /* [address in the kernel, text] by instruction */
  struct line *line, all;
  size_t n;
  uint64_t elsewhere, lost; /* elsewhere: of other kernels */
};

struct run_samples *run_samples_open(const struct command *self, db_device *dev) {
  struct run_samples *s = calloc(1, sizeof *s);
  if (s && (s->sampler = db_pc_sampler_new(dev, MEMORY))) return s;
  fail_work(self, "--pc-samples: %s", s ? db_error() : "out of memory");
  free(s);
  return NULL;
}

void run_samples_close(struct run_samples *s) {
  if (!s) return;
  db_pc_sampler_release(s->sampler);
  json_decref(s->rows);
  free(s->line);
  free(s);
}

void run_samples_begin(struct run_samples *s, db_queue *q) {
  if (s) db_queue_samples_begin(q, s->sampler);
}

void run_samples_end(struct run_samples *s, db_queue *q) {
  if (s) db_queue_samples_end(q, s->sampler);
}

static void add(struct line *l, const struct db_pc_sample *p) {
  l->samples++, l->issued += p->issued, l->of[p->reason]++;
}

int run_samples_read(const struct command *self, struct run_samples *s, db_device *dev, const db_program *program,
                     const void *image, size_t size) {
  size_t n;
  if (!s) return EXIT_DONE;
  s->rows = record_sass_rows(db_device_arch(dev), db_program_name(program), image, size);
  if (!s->rows) return fail_work(self, "--pc-samples: the file has no instructions of %s", db_program_name(program));
  s->n = json_array_size(s->rows);
  s->line = calloc(s->n + 1, sizeof *s->line);
  if (!s->line) return fail_work(self, "--pc-samples: out of memory");
  struct db_pc_sample *samples = db_pc_sampler_read(s->sampler, &n, &s->lost);
  if (!samples) return fail_work(self, "--pc-samples: %s", db_error());
  for (size_t i = 0; i < n; i++) {
    uint64_t at = (samples[i].pc - db_program_address(program)) / INSTRUCTION;
    if (at < s->n)
      add(&s->line[at], &samples[i]), add(&s->all, &samples[i]);
    else
      s->elsewhere++;
  }
  free(samples);
  if (s->lost) fprintf(stderr, "doorbell run: --pc-samples: %" PRIu64 " samples or more were dropped\n", s->lost);
  return EXIT_DONE;
}

/* ---- printing ---- */

static const struct line *sorted; /* of by_samples; the command has one thread */
static int by_samples(const void *a, const void *b) {
  size_t x = *(const size_t *)a, y = *(const size_t *)b;
  return sorted[x].samples != sorted[y].samples ? (sorted[x].samples < sorted[y].samples ? 1 : -1) : x < y ? -1 : 1;
}

static double percent(uint64_t part, uint64_t all) { return all ? 100.0 * (double)part / (double)all : 0; }

/* The reason that most samples have. */
static enum db_stall main_reason(const struct line *l) {
  int most = DB_STALL_NONE;
  for (int r = 0; r < DB_STALLS; r++)
    if (l->of[r] > l->of[most]) most = r;
  return (enum db_stall)most;
}

static void print_text(const struct run_samples *s) {
  size_t *order = malloc((s->n + 1) * sizeof *order);
  printf("pc samples    %" PRIu64 "; issued %.1f %%", s->all.samples, percent(s->all.issued, s->all.samples));
  for (int r = 0; r < DB_STALLS; r++)
    if (r != DB_STALL_NONE && s->all.of[r])
      printf(", %s %.1f %%", db_stall_name((enum db_stall)r), percent(s->all.of[r], s->all.samples));
  printf("\n");
  for (size_t i = 0; order && i < s->n; i++) order[i] = i;
  sorted = s->line;
  if (order) qsort(order, s->n, sizeof *order, by_samples);
  for (size_t i = 0; order && i < s->n && i < SHOWN && s->line[order[i]].samples; i++) {
    const struct line *l = &s->line[order[i]];
    printf("  0x%04zx %5.1f %%  %-20s %s\n", order[i] * INSTRUCTION, percent(l->samples, s->all.samples),
           db_stall_name(main_reason(l)), json_string_value(json_array_get(json_array_get(s->rows, order[i]), 1)));
  }
  free(order);
}

static json_t *reasons_json(const struct line *l) {
  json_t *reasons = json_object();
  for (int r = 0; r < DB_STALLS; r++)
    if (l->of[r]) json_object_set_new(reasons, db_stall_name((enum db_stall)r), json_integer((json_int_t)l->of[r]));
  return reasons;
}

static json_t *samples_json(const struct run_samples *s) {
  json_t *list = json_array();
  for (size_t i = 0; i < s->n; i++)
    if (s->line[i].samples)
      json_array_append_new(
          list, json_pack("{s:O, s:O, s:I, s:I, s:o}", "address", json_array_get(json_array_get(s->rows, i), 0), "text",
                          json_array_get(json_array_get(s->rows, i), 1), "samples", (json_int_t)s->line[i].samples,
                          "issued", (json_int_t)s->line[i].issued, "reasons", reasons_json(&s->line[i])));
  return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "samples", (json_int_t)s->all.samples, "issued",
                   (json_int_t)s->all.issued, "lost", (json_int_t)s->lost, "elsewhere", (json_int_t)s->elsewhere,
                   "reasons", reasons_json(&s->all), "instructions", list);
}

void run_samples_print(const struct run_samples *s, bool json) {
  if (!json) {
    print_text(s);
    return;
  }
  json_t *o = samples_json(s);
  fputs(", \"pc_samples\": ", stdout);
  json_dumpf(o, stdout, JSON_COMPACT);
  json_decref(o);
}

/* ---- the record ---- */

static json_t *count_or_null(uint64_t n) { return n ? json_integer((json_int_t)n) : json_null(); }

static json_t *rows_json(const struct run_samples *s) {
  json_t *rows = json_array();
  for (size_t i = 0; i < s->n; i++) {
    const struct line *l = &s->line[i];
    json_t *row = json_array(), *from = json_array_get(s->rows, i);
    json_array_append(row, json_array_get(from, 0));
    json_array_append_new(row, count_or_null(l->samples));
    json_array_append_new(row, count_or_null(l->issued));
    for (int r = 0; r < DB_STALLS; r++)
      if (r != DB_STALL_NONE) json_array_append_new(row, count_or_null(l->of[r]));
    json_array_append(row, json_array_get(from, 1));
    json_array_append_new(rows, row);
  }
  return rows;
}

void run_samples_record(const struct run_samples *s, db_device *dev, const char *kernel) {
  char source[512];
  if (!s || !atomic_load(&hcq_recorded)) return;
  json_t *columns = json_pack("[s, s]", "samples", "issued");
  for (int r = 0; r < DB_STALLS; r++)
    if (r != DB_STALL_NONE) json_array_append_new(columns, json_string(db_stall_name((enum db_stall)r)));
  snprintf(source, sizeof source,
           "PC samples of the last launch: %" PRIu64 ", and %" PRIu64 " lost. In an issued sample the SM issued the "
           "instruction; in the others the warp waited for the reason of the column. On an emulated GPU times and "
           "reasons are those of a model.",
           s->all.samples, s->lost);
  hcq_record_line("lines", dev,
                  json_pack("{s:o, s:s, s:o, s:o}", "name", json_text(kernel), "source", source, "columns", columns,
                            "rows", rows_json(s)));
}
