/* doorbell bench --model: the speed of a model in a file, or of one of known sizes, with random inputs. */
#include "../../../hcq/error.h"
#include "../llm/speed.h"
#include "../../onnx.h"
#include "bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 32, LEAST_RUNS = 5, MOST_RUNS = 50 };
static const double least_seconds = 1;

bool bench_runs_again(const struct runs *r) {
  return r->n < LEAST_RUNS || (r->n < MOST_RUNS && r->sum < least_seconds);
}

void bench_print_runs(struct bench_model *m, const char *unit, double count, const struct runs *r) {
  double mean = runs_mean(r), rate = count / mean, deviation = rate * runs_deviation(r) / mean;
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

static int bench_llm(struct bench_model *m, db_device *dev) {
  struct llm *l;
  if (m->batch > LLM_TEXTS) return db_fail(-EINVAL, "--batch: a language model continues at most %d texts", LLM_TEXTS);
  int err = llm_open(&l, m->file, dev, (unsigned)m->batch, 0, NULL, NULL);
  if (err) return err;
  float *logits = malloc((size_t)(m->batch * llm_vocabulary(l)) * sizeof *logits);
  struct llm_speed speed = {.l = l, .texts = (unsigned)m->batch, .tokens = LLM_SPEED_TOKENS, .logits = logits};
  err = logits ? llm_speed_measure(&speed) : db_fail(-ENOMEM, "out of memory");
  if (!err) bench_print_runs(m, "prompt tokens", (double)speed.prompt, &speed.prompts);
  if (!err && speed.steps.n) bench_print_runs(m, "tokens", (double)m->batch, &speed.steps);
  free(logits);
  llm_close(l);
  return err;
}

/* ---- ONNX ---- */

/* A random input. A first axis of any size is the batch. */
static db_tensor *make_input(const struct bench_model *m, const db_onnx *o, unsigned k, db_device *dev) {
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

static int run_onnx(struct bench_model *m, db_onnx *o, db_device *dev) {
  DB_SCOPED;
  db_tensor *in[PORTS];
  struct runs runs = {0};
  unsigned nin = db_onnx_inputs(o), nout = db_onnx_outputs(o);
  if (nin > PORTS || nout > PORTS) return db_fail(-EINVAL, "not supported: more than %d inputs or outputs", PORTS);
  for (unsigned k = 0; k < nin; k++)
    if (!(in[k] = make_input(m, o, k, dev))) return -EINVAL;
  int err = db_realize_all(in, nin);
  while (!err && bench_runs_again(&runs)) {
    DB_SCOPED;
    db_tensor *y[PORTS];
    runs_begin(&runs);
    if (!(err = db_onnx_run(o, in, y)) && !(err = db_realize_all(y, nout)))
      err = db_device_synchronize(dev, BENCH_WAIT_NS);
    runs_end(&runs);
  }
  if (!err) bench_print_runs(m, "samples", (double)m->batch, &runs);
  return err;
}

static int bench_onnx(struct bench_model *m, db_device *dev) {
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
  struct bench_model m = {.file = file, .batch = batch, .json = json, .first = true};
  int (*run)(struct bench_model *m, db_device *dev) = ends_with(file, ".gguf")   ? bench_llm
                                                      : ends_with(file, ".onnx") ? bench_onnx
                                                                                 : bench_net_find(file);
  int status = EXIT_DONE;
  if (!run)
    return fail_work(self, "--model %s: not supported: a model that is no .onnx or .gguf file, and not one of %s", file,
                     bench_net_names);
  if (json) fputs("{\"models\": [", stdout);
  for (unsigned i = 0; i < n; i++) {
    m.device = devices[i];
    db_device *dev = db_open(m.device);
    if (!dev || run(&m, dev)) status = fail_work(self, "--model %s: %s: %s", file, m.device, db_error());
    db_close(dev);
  }
  if (json) fputs("\n]}\n", stdout);
  db_shutdown();
  return status;
}
