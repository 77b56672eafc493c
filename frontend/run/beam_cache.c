/* Plans found by searches, in beam.txt in the folder of the kernel cache. The file has a line per kernel and machine,
 *
 *   KEY MACHINE SHAPE WIDTH STATE CHOSEN_US BEST_US = PLAN
 *
 * that a person may read, edit and copy to another machine. KEY is a hash of the kernel before optimization steps, of
 * the set of possible steps, and of the features of the processor (beam_key). SHAPE is its name in DEBUG=3. STATE is
 * `done`, or `round:N` for a search that was interrupted. CHOSEN_US is the time of the optimizer's plan, BEST_US that
 * of this plan; for a `model` machine they are model time. Lines that begin with # are preserved. Lines that cannot be
 * parsed are preserved too, reported once and ignored.
 *
 * The file is written under another name and renamed, by one process at a time. */
#define _GNU_SOURCE /* for asprintf */
#include "beam.h"
#include "../../compiler/plan/plan.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct beam_cache {
  char *path; /* NULL if nothing is kept on disk */
  struct beam_record *records;
  size_t n, capacity;
};

static const char head[] =
    "# Doorbell's plans found by BEAM=n: kernel, machine, shape, n, state, us by the optimizer's "
    "plan, us by this plan = plan\n";

static bool fail(char *err, size_t cap, const char *what) {
  snprintf(err, cap, "%s", what);
  return false;
}

bool beam_record_parse(const char *line, struct beam_record *out, char *why, size_t cap) {
  char state[24] = "", plan_why[384];
  int at = 0, end = 0;
  memset(out, 0, sizeof *out);
  line += strspn(line, " \t");
  if (*line == '#' || *line == '\n' || !*line) return fail(why, cap, "");
  int got = sscanf(line, "%16" SCNx64 " %95s %63s %u %23s %lf %lf = %n", &out->key, out->machine, out->shape,
                   &out->width, state, &out->chosen_us, &out->best_us, &at);
  if (got < 7 || !at)
    return fail(why, cap, "a key, machine, shape, width, state, two times, '=' and a plan are expected");
  if (strcmp(state, "done") != 0 && (sscanf(state, "round:%u%n", &out->round, &end) != 1 || state[end] || !out->round))
    return fail(why, cap, "the state is neither done nor round:N");
  if (!out->width || out->width > BEAM_MOST) return fail(why, cap, "the width is not a possible value of BEAM");
  if (!(out->chosen_us > 0 && isfinite(out->chosen_us) && out->best_us > 0 && isfinite(out->best_us)))
    return fail(why, cap, "a time is not a positive number");
  if (!plan_check_sections(line + at, plan_why, sizeof plan_why)) return fail(why, cap, plan_why);
  size_t n = strcspn(line + at, "\n");
  while (n && strchr(" \t\r", line[at + (int)n - 1])) n--;
  out->plan = strndup(line + at, n);
  return out->plan || fail(why, cap, "out of memory");
}

static void print_record(FILE *f, const struct beam_record *r) {
  fprintf(f, "%016" PRIx64 " %s %s %u ", r->key, r->machine, r->shape, r->width);
  fprintf(f, r->round ? "round:%u" : "done", r->round);
  fprintf(f, " %.3f %.3f = %s\n", r->chosen_us, r->best_us, r->plan);
}

static bool is_same_kernel(const struct beam_record *a, const struct beam_record *b) {
  return a->key == b->key && !strcmp(a->machine, b->machine);
}

/* Adds or replaces a record. Takes over r->plan. If the file has several lines for a kernel, the last one counts. */
static bool keep_record(struct beam_cache *c, const struct beam_record *r) {
  for (size_t i = 0; i < c->n; i++)
    if (is_same_kernel(&c->records[i], r)) {
      free(c->records[i].plan);
      c->records[i] = *r;
      return true;
    }
  if (c->n == c->capacity) {
    size_t capacity = c->capacity ? 2 * c->capacity : 32;
    struct beam_record *more = realloc(c->records, capacity * sizeof *more);
    if (!more) {
      free(r->plan);
      return false;
    }
    c->records = more, c->capacity = capacity;
  }
  c->records[c->n++] = *r;
  return true;
}

struct beam_cache *beam_cache_open(const char *dir) {
  struct beam_cache *c = calloc(1, sizeof *c);
  char *line = NULL, why[512];
  size_t cap = 0;
  if (!c || !dir) return c;
  if (asprintf(&c->path, "%s/beam.txt", dir) < 0) c->path = NULL;
  FILE *f = c->path ? fopen(c->path, "re") : NULL;
  for (unsigned number = 1; f && getline(&line, &cap, f) > 0; number++) {
    struct beam_record r;
    if (beam_record_parse(line, &r, why, sizeof why))
      keep_record(c, &r);
    else if (*why)
      fprintf(stderr, "doorbell: %s:%u is ignored: %s\n", c->path, number, why);
  }
  if (f) fclose(f);
  free(line);
  return c;
}

void beam_cache_close(struct beam_cache *c) {
  if (!c) return;
  for (size_t i = 0; i < c->n; i++) free(c->records[i].plan);
  free(c->records);
  free(c->path);
  free(c);
}

const struct beam_record *beam_cache_find(const struct beam_cache *c, uint64_t key, const char *machine) {
  for (size_t i = 0; i < c->n; i++)
    if (c->records[i].key == key && !strcmp(c->records[i].machine, machine)) return &c->records[i];
  return NULL;
}

/* Copies the file, with the line of the record replaced in place or added at the end. */
static bool rewrite_line(const struct beam_cache *c, const struct beam_record *r, FILE *out) {
  char *line = NULL, ignored[512];
  size_t cap = 0;
  bool written = false;
  FILE *in = fopen(c->path, "re");
  if (!in) fputs(head, out);
  for (ssize_t n; in && (n = getline(&line, &cap, in)) > 0;) {
    struct beam_record old;
    bool is_record = beam_record_parse(line, &old, ignored, sizeof ignored),
         replaced = is_record && is_same_kernel(&old, r);
    if (is_record) free(old.plan);
    if (!replaced) {
      fputs(line, out);
      if (line[n - 1] != '\n') fputc('\n', out); /* a truncated last line */
    } else if (!written) {
      print_record(out, r);
      written = true;
    }
  }
  if (!written) print_record(out, r);
  if (in) fclose(in);
  free(line);
  return !ferror(out);
}

static int write_file(const struct beam_cache *c, const struct beam_record *r) {
  char *lock = NULL, *fresh = NULL;
  int err = -ENOMEM, fd = -1;
  if (asprintf(&lock, "%s.lock", c->path) < 0) lock = NULL;
  if (asprintf(&fresh, "%s.new", c->path) < 0) fresh = NULL;
  if (lock && fresh) fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666), err = fd < 0 ? -errno : 0;
  if (!err) flock(fd, LOCK_EX); /* where files cannot be locked, the last writer wins */
  FILE *f = err ? NULL : fopen(fresh, "we");
  if (!err && !f) err = -errno;
  if (f) {
    bool ok = rewrite_line(c, r, f);
    if (fclose(f) || !ok)
      err = -EIO;
    else if (rename(fresh, c->path))
      err = -errno;
  }
  if (fd >= 0) close(fd);
  free(lock);
  free(fresh);
  return err;
}

int beam_cache_put(struct beam_cache *c, const struct beam_record *r) {
  struct beam_record own = *r;
  own.plan = strdup(r->plan);
  if (!own.plan || !keep_record(c, &own)) return -ENOMEM;
  return c->path ? write_file(c, r) : 0;
}
