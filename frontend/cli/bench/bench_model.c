/* doorbell bench --model: the speed of a model in a file, with random inputs. */
#include "../../../hcq/error.h"
#include "../../llm/llm.h"
#include "../../onnx.h"
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 32, WARM = 3, PROMPT = 512, PROMPTS = 5, TOKENS = 64, LEAST_RUNS = 5, MOST_RUNS = 50 };
static const double least_seconds = 1;
#define WAIT_NS 600000000000ull

/* The seconds of runs. The first WARM runs compile, capture and replay first, and do not count. */
struct runs {
  unsigned warm, n;
  double sum, squares, start;
};
static void begin_run(struct runs *r) { r->start = bench_now(); }
static void end_run(struct runs *r) {
  double s = bench_now() - r->start;
  if (r->warm++ < WARM) return;
  r->n++, r->sum += s, r->squares += s * s;
}

struct model_bench {
  const char *file, *device;
  int64_t batch;
  bool json, first;
};

/* Prints the rate of runs that compute `count` of something each, and its standard deviation between runs. */
static void print_runs(struct model_bench *m, const char *unit, double count, const struct runs *r) {
  double mean = r->sum / r->n, variance = r->n > 1 ? fmax(0, (r->squares - r->n * mean * mean) / (r->n - 1)) : 0;
  double rate = count / mean, deviation = rate * sqrt(variance) / mean;
  if (m->json)
    json_line(stdout,
              json_pack("{s:o, s:o, s:I, s:s, s:o, s:o, s:i}", "device", json_text(m->device), "model",
                        json_text(m->file), "batch", (json_int_t)m->batch, "unit", unit, "per_second",
                        json_finite(rate), "deviation", json_finite(deviation), "runs", (int)r->n),
              m->first);
  else
    printf("%-15s %s, batch %lld: %.2f %s/s, deviation %.2f, %u runs\n", m->device, m->file, (long long)m->batch, rate,
           unit, deviation, r->n);
  fflush(stdout);
  m->first = false;
}

/* ---- language models ---- */

/* Prompts of one text, then tokens of `batch` texts together. */
static int run_llm(struct model_bench *m, struct llm *l, float *logits) {
  int32_t tokens[PROMPT];
  int64_t words = llm_vocabulary(l), prompt = llm_context(l) / 2 < PROMPT ? llm_context(l) / 2 : PROMPT;
  struct runs prompts = {0}, steps = {0};
  int err = 0;
  for (int64_t i = 0; i < prompt; i++) tokens[i] = (int32_t)(i * 7919 % words);
  for (unsigned i = 0; i < WARM + PROMPTS && !err; i++) {
    llm_truncate(l, 0, 0);
    begin_run(&prompts);
    err = llm_eval(l, 0, tokens, (size_t)prompt, logits);
    end_run(&prompts);
  }
  for (unsigned t = 1; t < m->batch && !err; t++) err = llm_eval(l, t, tokens, (size_t)prompt, NULL);
  for (int64_t i = 0; i < WARM + TOKENS && i < llm_context(l) - prompt && !err; i++) {
    struct llm_next next[LLM_TEXTS];
    for (unsigned t = 0; t < m->batch; t++) next[t] = (struct llm_next){t, (int32_t)((i + t) * 104729 % words)};
    begin_run(&steps);
    err = llm_eval_next(l, next, (unsigned)m->batch, logits);
    end_run(&steps);
  }
  if (err) return err;
  print_runs(m, "prompt tokens", (double)prompt, &prompts);
  if (steps.n) print_runs(m, "tokens", (double)m->batch, &steps);
  return 0;
}

static int bench_llm(struct model_bench *m, db_device *dev) {
  struct llm *l;
  if (m->batch > LLM_TEXTS) return db_fail(-EINVAL, "--batch: a language model continues at most %d texts", LLM_TEXTS);
  int err = llm_open(&l, m->file, dev, (unsigned)m->batch, 0, NULL, NULL);
  if (err) return err;
  float *logits = malloc((size_t)(m->batch * llm_vocabulary(l)) * sizeof *logits);
  err = logits ? run_llm(m, l, logits) : db_fail(-ENOMEM, "out of memory");
  free(logits);
  llm_close(l);
  return err;
}

/* ---- ONNX ---- */

/* A random input. A first axis of any size is the batch. */
static db_tensor *make_input(const struct model_bench *m, const db_onnx *o, unsigned k, db_device *dev) {
  struct db_onnx_port p;
  int64_t dim[sizeof p.dim / sizeof *p.dim];
  if (db_onnx_input(o, k, &p)) return NULL;
  if (!p.has_shape || p.dtype == DB_NONE)
    return db_fail(-EINVAL, "input %s: the file does not say its shape", p.name), NULL;
  for (unsigned i = 0; i < p.rank; i++) {
    dim[i] = p.dim[i] < 0 && !i ? m->batch : p.dim[i];
    if (dim[i] < 0) return db_fail(-EINVAL, "input %s: not supported: axis %u of any size", p.name, i), NULL;
  }
  db_list shape = {p.rank, dim};
  bool is_float = p.dtype == DB_F32 || p.dtype == DB_F16 || p.dtype == DB_BF16 || p.dtype == DB_F64;
  db_tensor *x = is_float ? db_random_at(DB_HERE, DB_RANDOM_NORMAL, 0, 1, p.dtype, dev, shape)
                          : db_full_at(DB_HERE, db_operand_float(0), p.dtype, dev, shape);
  return db_contiguous(x);
}

static int run_onnx(struct model_bench *m, db_onnx *o, db_device *dev) {
  DB_SCOPED;
  db_tensor *in[PORTS];
  struct runs runs = {0};
  unsigned nin = db_onnx_inputs(o), nout = db_onnx_outputs(o);
  if (nin > PORTS || nout > PORTS) return db_fail(-EINVAL, "not supported: more than %d inputs or outputs", PORTS);
  for (unsigned k = 0; k < nin; k++)
    if (!(in[k] = make_input(m, o, k, dev))) return -EINVAL;
  int err = db_realize_all(in, nin);
  while (!err && (runs.n < LEAST_RUNS || (runs.n < MOST_RUNS && runs.sum < least_seconds))) {
    DB_SCOPED;
    db_tensor *y[PORTS];
    begin_run(&runs);
    if (!(err = db_onnx_run(o, in, y)) && !(err = db_realize_all(y, nout))) err = db_device_synchronize(dev, WAIT_NS);
    end_run(&runs);
  }
  if (!err) print_runs(m, "samples", (double)m->batch, &runs);
  return err;
}

static int bench_onnx(struct model_bench *m, db_device *dev) {
  db_onnx *o = db_onnx_load(m->file, dev);
  if (!o) return -EINVAL;
  int err = run_onnx(m, o, dev);
  db_onnx_free(o);
  return err;
}

/* ---- the option ---- */

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), k = strlen(end);
  return n >= k && !strcmp(text + n - k, end);
}

int bench_model(const struct command *self, const char *file, int64_t batch, const char *const *devices, unsigned n,
                bool json) {
  struct model_bench m = {.file = file, .batch = batch, .json = json, .first = true};
  bool llm = ends_with(file, ".gguf");
  int status = EXIT_DONE;
  if (!llm && !ends_with(file, ".onnx"))
    return fail_work(self, "--model %s: not supported: a model that is no .onnx or .gguf file", file);
  if (json) fputs("{\"models\": [", stdout);
  for (unsigned i = 0; i < n; i++) {
    m.device = devices[i];
    db_device *dev = db_open(m.device);
    if (!dev || (llm ? bench_llm : bench_onnx)(&m, dev))
      status = fail_work(self, "--model %s: %s: %s", file, m.device, db_error());
    db_close(dev);
  }
  if (json) fputs("\n]}\n", stdout);
  db_shutdown();
  return status;
}
