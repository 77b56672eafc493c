/* Measures the kernels of a schedule's item: launches them on their device, on separate memory, between two timestamps.
 * For an emulated device it uses model time (emu/exec/cost.def).
 *
 * The memory holds small positive numbers, so that sums do not cancel. Integers that the kernel uses as indices are
 * 0. */
#include "beam.h"
#include "launch.h"
#include "../../emu/emu.h"
#include "../../hcq/backend.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A kernel is launched until its times add up to LONG_MS or its best time exceeds DEAD_HEAT times the best of all
 * kernels, but more than FEW and at most MANY times. If a launch takes more than SLOW times the best, the kernel is not
 * launched again.
 *
 * On an emulated device slow kernels take minutes. Growing parts of the grid are launched first, the first with SAMPLE
 * workgroups and each with SAMPLE_GROWS times as many as the one before. If their times suggest more than SAMPLE_SLOW
 * times the best, that is the result. */
enum { FEW = 3, MANY = 30, LONG_MS = 20, SAMPLE = 256, SAMPLE_GROWS = 8 };
static const double SLOW = 2, DEAD_HEAT = 1.1, SAMPLE_SLOW = 8;

struct memory {
  db_buffer *buffer;
  enum dtype dtype;
  int64_t n;
  bool places, output;
  uint8_t *result; /* of an output: the result of the first kernel */
};
struct beam_measure {
  unsigned slot, nmemories, nvars;
  struct memory memory[MAX_KERNEL_ARGS];
  const char *var[MAX_KERNEL_ARGS];
  int64_t value[MAX_KERNEL_ARGS];
  db_signal *begin, *end;
  bool model, compares; /* compares: results to compare with are stored */
};

/* ---- memory ---- */

static void mark_places(struct beam_measure *m, struct uop *ast) {
  size_t count;
  struct uop **order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count; i++) {
    if (order[i]->op != OP_INDEX) continue;
    size_t under;
    struct uop **below = uop_toposort(order[i]->src + 1, order[i]->nsrc - 1, &under);
    for (size_t k = 0; below && k < under; k++)
      if (below[k]->op == OP_PARAM) m->memory[below[k]->arg.i].places = true;
    free(below);
  }
  free(order);
}

/* The bits of an element: for floats a number from 1/2 to 3/2, for integers a small one. */
static uint64_t element_bits(const struct memory *x, uint64_t h) {
  double v = 0.5 + (double)(h % 1024) / 1024;
  float single = (float)v;
  _Float16 half = (_Float16)single;
  uint64_t bits = 0;
  uint32_t word;
  memcpy(&word, &single, sizeof word);
  switch (x->dtype) {
  case DT_F64: memcpy(&bits, &v, sizeof v); return bits;
  case DT_F32: return word;
  case DT_BF16: return word >> 16;
  case DT_F16: memcpy(&bits, &half, sizeof half); return bits;
  case DT_F8E4M3: return 0x30 + h % 12; /* 1/2 to 1.375 */
  case DT_F8E5M2: return 0x38 + h % 6;  /* 1/2 to 1.25 */
  case DT_BOOL: return h & 1;
  default: return x->places ? 0 : h % 3;
  }
}

static int fill_buffer(const struct memory *x) {
  enum { PIECE = 1 << 18 };
  size_t size = dtype_info[x->dtype].size;
  uint8_t *piece = malloc((size_t)PIECE * size);
  int err = piece ? 0 : db_fail(-ENOMEM, "BEAM: out of memory");
  uint64_t h = 0x9e3779b97f4a7c15;
  for (int64_t i = 0; piece && i < PIECE && i < x->n; i++) {
    h = h * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t bits = element_bits(x, h >> 33);
    memcpy(piece + (size_t)i * size, &bits, size);
  }
  for (int64_t at = 0; at < x->n && !err; at += PIECE) {
    int64_t n = x->n - at < PIECE ? x->n - at : PIECE;
    err = db_buffer_write(x->buffer, (size_t)at * size, piece, (size_t)n * size);
  }
  free(piece);
  return err;
}

static int fill_all(struct beam_measure *m) {
  int err = 0;
  for (unsigned i = 0; i < m->nmemories && !err; i++)
    if (m->memory[i].buffer) err = fill_buffer(&m->memory[i]);
  return err;
}

void beam_measure_free(struct beam_measure *m) {
  if (!m) return;
  for (unsigned i = 0; i < m->nmemories; i++) {
    db_buffer_release(m->memory[i].buffer);
    free(m->memory[i].result);
  }
  db_signal_release(m->begin);
  db_signal_release(m->end);
  free(m);
}

static int make_memory(struct beam_measure *m, const struct schedule_item *item) {
  size_t count;
  struct uop *ast = item->ast, **order = uop_toposort(&ast, 1, &count);
  int err = order ? 0 : db_fail(-ENOMEM, "BEAM: out of memory");
  m->nmemories = item->nbufs, m->nvars = item->nvars;
  for (size_t i = 0; i < count && !err; i++) {
    struct uop *u = order[i];
    if (u->op != OP_PARAM || u->arg.i >= item->nbufs) continue;
    struct memory *x = &m->memory[u->arg.i];
    *x = (struct memory){.dtype = u->dtype, .n = uop_max(u->src[0]), .output = u->arg.i < item->noutputs};
    size_t bytes = (size_t)x->n * dtype_info[u->dtype].size;
    x->buffer = db_alloc(slot_device(m->slot), (bytes + 255) / 256 * 256 + 256, 0);
    if (!x->buffer) err = db_fail(-ENOMEM, "BEAM: %s", db_error());
  }
  for (unsigned i = 0; i < item->nvars && !err; i++)
    m->var[i] = item->vars[i]->arg.s, m->value[i] = uop_max(item->vars[i]);
  free(order);
  if (!err) mark_places(m, ast);
  return err ? err : fill_all(m);
}

static bool is_emulated(db_device *dev) {
  struct emu_stats stats;
  return !emu_stats(db_device_os(dev), db_device_index(dev), &stats);
}

bool beam_has_times(unsigned slot) {
  db_device *dev = slot_device(slot);
  return !is_emulated(dev) || emu_has_model(db_device_arch(dev));
}

struct beam_measure *beam_measure_new(const struct schedule_item *item) {
  struct beam_measure *m = calloc(1, sizeof *m);
  if (!m) return db_fail_null(-ENOMEM, "BEAM: out of memory");
  m->slot = item->device;
  db_device *dev = slot_device(m->slot);
  m->model = is_emulated(dev);
  m->begin = db_signal_new(dev), m->end = db_signal_new(dev);
  if (item->nbufs + item->nvars > MAX_KERNEL_ARGS)
    db_fail(-E2BIG, "BEAM: a kernel has more than %d arguments", MAX_KERNEL_ARGS);
  else if (m->begin && m->end && !make_memory(m, item))
    return m;
  beam_measure_free(m);
  return NULL;
}

bool beam_measure_is_model(const struct beam_measure *m) { return m->model; }

/* ---- running ---- */

/* The arguments of a launch. */
struct call {
  const struct kernel *k;
  db_program *program;
  struct db_arg args[MAX_KERNEL_ARGS];
  uint32_t grid[3];
};

static bool make_call(struct beam_measure *m, const struct kernel *k, struct call *c) {
  int64_t vars[MAX_KERNEL_ARGS] = {0};
  *c = (struct call){.k = k, .program = slot_load(m->slot, k)};
  for (unsigned i = 0; i < k->nparams; i++) {
    c->args[i].buffer = i < m->nmemories ? m->memory[i].buffer : NULL;
    for (unsigned v = 0; i >= m->nmemories && v < m->nvars; v++)
      if (!strcmp(m->var[v], k->params[i].name)) c->args[i].bits = (uint64_t)(vars[i - m->nmemories] = m->value[v]);
  }
  kernel_grid(k, vars, c->grid);
  return c->program != NULL;
}

static int launch(struct beam_measure *m, const struct call *c) {
  db_queue *q = slot_queue(m->slot, DB_QUEUE_COMPUTE);
  if (!q) return -ENOMEM;
  int err = db_queue_memory_barrier(q);
  if (!err) err = db_queue_timestamp(q, m->begin);
  if (!err) err = db_queue_exec(q, c->program, c->args, c->k->nparams, c->grid, c->k->block);
  if (!err) err = db_queue_timestamp(q, m->end);
  int submitted = db_queue_submit(q, slot_submitted(m->slot));
  if (!err) err = submitted;
  return err ? err : db_wait(db_queue_timeline(q), *slot_submitted(m->slot), db_device_timeout(slot_device(m->slot)));
}

static int model_launch(struct beam_measure *m, const struct call *c, double *seconds) {
  struct emu_stats before, after;
  db_device *dev = slot_device(m->slot);
  struct os *os = db_device_os(dev);
  emu_detail(os, true);
  emu_stats(os, db_device_index(dev), &before);
  int err = launch(m, c);
  emu_stats(os, db_device_index(dev), &after);
  emu_detail(os, false);
  *seconds = (double)(after.detail.model_ps - before.detail.model_ps) * 1e-12;
  if (err || *seconds > 0) return err;
  return db_fail(-EPROTO, "BEAM: %s computed no model time", db_device_name(dev));
}

static double workgroups(const struct call *c) { return (double)c->grid[0] * c->grid[1] * c->grid[2]; }

/* Reduces the grid to at most n workgroups, at least one. */
static void shrink_grid(struct call *c, double n) {
  for (unsigned d = 0; d < 3; d++) {
    double most = n < 1 ? 1 : n;
    if (c->grid[d] > most) c->grid[d] = (uint32_t)most;
    n /= c->grid[d];
  }
}

static int time_model(struct beam_measure *m, const struct call *c, double best, double *seconds) {
  double all = workgroups(c), last = 0, last_n = 0;
  int err = 0;
  for (double n = SAMPLE; !isinf(best) && n * 4 <= all && !err; n *= SAMPLE_GROWS) {
    struct call part = *c;
    shrink_grid(&part, n);
    double now = 0, now_n = workgroups(&part);
    err = model_launch(m, &part, &now);
    *seconds = now + (now - last) * (all - now_n) / (now_n - last_n);
    if (last_n > 0 && !err && *seconds > SAMPLE_SLOW * best) return 0;
    last = now, last_n = now_n;
  }
  return err ? err : model_launch(m, c, seconds);
}

static int time_launch(struct beam_measure *m, const struct call *c, double *seconds) {
  uint64_t begin, end;
  int err = launch(m, c);
  db_signal_interval(m->begin, m->end, &begin, &end);
  *seconds = err ? INFINITY : end > begin ? (double)(end - begin) * 1e-9 : 1e-9;
  return err;
}

static int time_launches(struct beam_measure *m, const struct call *c, double best, double *seconds) {
  double sum = 0, once;
  int err = time_launch(m, c, &once); /* a warm-up */
  *seconds = once > SLOW * best ? once : INFINITY;
  for (unsigned n = 0; !err && n < MANY && !(once > SLOW * best); n++) {
    err = time_launch(m, c, &once);
    sum += once;
    if (once < *seconds) *seconds = once;
    if (n >= FEW && (sum > LONG_MS * 1e-3 || *seconds > DEAD_HEAT * best)) break;
  }
  return err;
}

int beam_measure(struct beam_measure *m, const struct kernel *k, double best, double *seconds) {
  struct call c;
  *seconds = INFINITY;
  if (!make_call(m, k, &c)) return 0; /* for example, it needs more memory than the device has */
  int err = (m->model ? time_model : time_launches)(m, &c, best, seconds);
  db_program_release(c.program);
  return err;
}

/* ---- comparing ---- */

static double number_of(enum dtype t, const uint8_t *p) {
  uint64_t bits = 0;
  uint32_t word;
  float single;
  _Float16 half;
  double v;
  memcpy(&bits, p, dtype_info[t].size);
  switch (t) {
  case DT_F64: memcpy(&v, p, sizeof v); return v;
  case DT_F32: memcpy(&single, p, sizeof single); return single;
  case DT_F16: memcpy(&half, p, sizeof half); return half;
  case DT_BF16:
    word = (uint32_t)bits << 16;
    memcpy(&single, &word, sizeof single);
    return single;
  default: return (double)bits; /* 8-bit floats and integers: the bits */
  }
}

/* Relative error that another order of additions and one rounding to the type may cause. */
static double tolerance_of(enum dtype t) {
  return t == DT_F64 ? 1e-9 : t == DT_F32 ? 1e-3 : t == DT_F16 ? 4e-3 : t == DT_BF16 ? 2e-2 : 0;
}

static int compare_results(const struct memory *x, const uint8_t *got, const char *name, const char *plan) {
  size_t size = dtype_info[x->dtype].size;
  bool byte_float = x->dtype == DT_F8E4M3 || x->dtype == DT_F8E5M2;
  for (int64_t i = 0; i < x->n; i++) {
    const uint8_t *a = x->result + (size_t)i * size, *b = got + (size_t)i * size;
    if (!memcmp(a, b, size)) continue;
    double want = number_of(x->dtype, a), have = number_of(x->dtype, b), scale = fabs(want) + fabs(have);
    if ((isnan(want) && isnan(have)) || fabs(want - have) <= tolerance_of(x->dtype) * (scale > 1 ? scale : 1)) continue;
    if (byte_float && fabs(want - have) <= 1) continue; /* adjacent values */
    return db_fail(-EPROTO,
                   "BEAM: element %lld of an output of %s is %.9g with the plan '%s', but %.9g with the optimizer's "
                   "plan: this is an error of the compiler",
                   (long long)i, name, have, plan, want);
  }
  return 0;
}

int beam_compare(struct beam_measure *m, const struct kernel *k) {
  struct call c;
  if (!make_call(m, k, &c)) return 0;
  int err = fill_all(m);
  if (!err) err = launch(m, &c);
  for (unsigned i = 0; i < m->nmemories && !err; i++) {
    struct memory *x = &m->memory[i];
    if (!x->output || !x->buffer) continue;
    size_t bytes = (size_t)x->n * dtype_info[x->dtype].size;
    uint8_t *got = malloc(bytes);
    err = got ? db_buffer_read(x->buffer, 0, got, bytes) : db_fail(-ENOMEM, "BEAM: out of memory");
    if (!err && m->compares) err = compare_results(x, got, k->shape, k->plan);
    if (!err && !m->compares)
      x->result = got;
    else
      free(got);
  }
  m->compares = true;
  db_program_release(c.program);
  return err;
}
