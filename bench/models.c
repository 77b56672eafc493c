/* Times training steps and inference of models, and the same in PyTorch with the same parameters and inputs. The two
 * take turns in one run, after their results have been compared. Also times the first step, which includes compilation.
 *
 *   models [--threads N,N] [--cpu-time] [--seconds S] [--json] [--list] [WORD...]
 *
 * DEV names the device; WORDs select models as in bench/kernels: `models mnist`, `models step ^gpt2`. Each model runs
 * in a separate process with an empty kernel cache, on the CPU once for each number of threads. The time of the first
 * step includes scheduling and compiling, but not making parameters and inputs. An emulated GPU runs a small model, and
 * its instructions are counted; PyTorch on the host checks the values. */
#define _GNU_SOURCE
#include "models.h"
#include "speed/speed.h"
#include "frontend/nn.h"
#include "emu/emu.h"
#include "hcq/backend.h"
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS 3600000000000ull
enum { VALUES = 8, STEPS_COMPARED = 3, CONTEXT = 1024, LAYERS = 12, HEADS = 12, HEAD = 64 };

enum program { DIGITS, RESNET, GPT2, GPT2_DECODE };
static const struct row {
  const char *name, *peer; /* peer: its name in torch_models.py */
  enum program program;
  bool train, emulated;
  int64_t batch; /* images or tokens */
  double goal;   /* required speed relative to PyTorch; 0: none */
  double first;  /* upper bound for the seconds of the first step; 0: none */
} rows[] = {
    {"mnist step batch 512", "digits-step", DIGITS, true, false, 512, 1, 1.5},
    {"mnist inference batch 512", "digits", DIGITS, false, false, 512, 0, 0},
    {"resnet50 inference batch 1", "resnet50", RESNET, false, false, 1, 0, 0},
    {"resnet50 inference batch 16", "resnet50", RESNET, false, false, 16, 0, 0},
    {"resnet50 step batch 16", "resnet50-step", RESNET, true, false, 16, 0, 0},
    {"gpt2 step 1x1024", "gpt2-step", GPT2, true, false, 1024, 1 / 1.1, 0},
    {"gpt2 decode 1", "gpt2-decode", GPT2_DECODE, false, false, 1, 0, 0},
    {"mnist step batch 4", "digits-step", DIGITS, true, true, 4, 0, 0},
    {"mnist inference batch 4", "digits", DIGITS, false, true, 4, 0, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

struct result {
  bool ran, ok, compared;
  double first, seconds, torch; /* of one step; torch 0: not measured */
  double error;                 /* the largest difference from PyTorch, relative to the largest value */
  uint64_t instructions;        /* of one step on an emulated device */
  char about[160], reason[200];
};

/* ---- a model that runs ---- */

static db_device *device;

static db_tensor *make(db_list shape, double low, double high) {
  db_tensor *t = low < high ? db_random_at(DB_HERE, DB_RANDOM_UNIFORM, low, high, DB_F32, device, shape)
                            : db_full_at(DB_HERE, db_operand_float(low), DB_F32, device, shape);
  db_realize(t); /* an error is reported when the tensor is used */
  return db_retain(t);
}

struct running {
  const struct row *row;
  struct model m;
  db_jit *jit;
  db_optim *optim;
  db_tensor *x, *y;                   /* y: the classes, for a training step */
  db_tensor *cache[LAYERS][2], *seen; /* cache: keys and values; seen: its length is the number of keys */
  int64_t keys;
};

static db_tensor *decode(struct running *r) {
  struct model *m = &r->m;
  int64_t n = db_bind("n", 1, CONTEXT, r->keys), at = db_size_sub(n, 1);
  db_tensor *words = parameter(m, DB_LIST(50257, 768), -0.035, 0.035);
  db_tensor *places = parameter(m, DB_LIST(CONTEXT, 768), -0.035, 0.035);
  db_tensor *x = db_add(embedding(words, r->x), db_reshape(db_shrink(places, at, n, 0, 768), 1, 768)),
            *all[2 * LAYERS + 1];
  for (int i = 0; i < LAYERS; i++) {
    db_tensor *qkv = db_reshape(linear(m, layer_norm(m, x), 3 * 768), 3, HEADS, 1, HEAD), *part[3];
    for (int64_t k = 0; k < 3; k++)
      part[k] = db_reshape(db_shrink(qkv, k, k + 1, 0, HEADS, 0, 1, 0, HEAD), HEADS, 1, HEAD);
    for (int k = 0; k < 2; k++) {
      all[2 * i + k] = db_assign_slice(r->cache[i][k], part[1 + k], 0, HEADS, at, n, 0, HEAD);
      part[1 + k] = db_shrink(r->cache[i][k], 0, HEADS, 0, n, 0, HEAD);
    }
    db_tensor *y = db_attention(part[0], part[1], part[2]);
    x = db_add(x, linear(m, db_reshape(y, 1, 768), 768));
    x = db_add(x, linear(m, gelu(linear(m, layer_norm(m, x), 4 * 768)), 768));
  }
  all[2 * LAYERS] = db_matmul(layer_norm(m, x), db_transpose(words, 0, 1));
  db_realize_all(all, 2 * LAYERS + 1); /* realize together, because keys and values are written in place */
  return all[2 * LAYERS];
}

static db_tensor *forward(struct running *r) {
  bool train = r->row->train;
  model_again(&r->m);
  switch (r->row->program) {
  case DIGITS: return digits(&r->m, r->x, train);
  case RESNET: return resnet50(&r->m, r->x, train);
  case GPT2: return gpt2(&r->m, r->x);
  case GPT2_DECODE: return decode(r);
  }
  return NULL;
}
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct running *r = ctx;
  out[0] = forward(r);
  if (!r->row->train) return 0;
  out[0] = db_cross_entropy(out[0], r->y);
  int err = db_backward(out[0]);
  if (!err) err = db_optim_step(r->optim, out[0]);
  db_optim_zero_grad(r->optim);
  return err;
}

/* Returns a tensor whose values are made on the host: floats from -1 to 1, or integers less than `classes`. */
static db_tensor *numbers(db_dtype t, int64_t classes, db_list shape) {
  int64_t n = 1;
  for (unsigned i = 0; i < shape.n; i++) n *= shape.v[i];
  float *x = malloc((size_t)n * sizeof *x);
  int32_t *k = malloc((size_t)n * sizeof *k);
  fill_numbers(x, n, (uint32_t)classes + 7);
  for (int64_t i = 0; i < n; i++) k[i] = (int32_t)((x[i] + 1) / 2 * (float)classes);
  db_tensor *out = db_from_at(DB_HERE, t == DB_F32 ? (void *)x : (void *)k, t, device, shape);
  free(x);
  free(k);
  return db_retain(out);
}

static bool prepare(struct running *r) {
  const struct row *w = r->row;
  r->m.make = make, r->m.inference = !w->train;
  if (w->program == DIGITS) r->x = numbers(DB_F32, 0, DB_LIST(w->batch, 1, 28, 28));
  if (w->program == RESNET) r->x = numbers(DB_F32, 0, DB_LIST(w->batch, 3, 224, 224));
  if (w->program >= GPT2) r->x = numbers(DB_I32, 50257, DB_LIST(w->batch));
  r->y = numbers(DB_I32, w->program == DIGITS ? 10 : w->program == RESNET ? 1000 : 50256, DB_LIST(w->batch));
  if (db_realize(r->x, r->y)) return false;
  r->keys = 511;
  if (w->program == GPT2_DECODE) {
    r->seen = make(DB_LIST(CONTEXT), 0, 0);
    for (int i = 0; i < LAYERS; i++)
      for (int k = 0; k < 2; k++) r->cache[i][k] = make(DB_LIST(HEADS, CONTEXT, HEAD), 0, 0);
  }
  { /* makes the parameters */
    DB_SCOPED;
    if (w->program == GPT2_DECODE)
      gpt2(&r->m, r->x); /* uses the same parameters in the same order */
    else
      forward(r);
  }
  if (w->train && w->program == DIGITS) r->optim = db_adam(r->m.parameter, r->m.nparameters, .lr = 1e-3);
  if (w->train && w->program == RESNET)
    r->optim = db_sgd(r->m.parameter, r->m.nparameters, .lr = 1e-5, .momentum = 0.9);
  if (w->train && w->program == GPT2)
    r->optim = db_adamw(r->m.parameter, r->m.nparameters, .lr = 1e-4, .weight_decay = 0.01);
  r->jit = db_jit_new(step, r, w->program == GPT2_DECODE, 1);
  return r->jit && (r->optim || !w->train) && !db_device_synchronize(device, TIMEOUT_NS);
}

static void end(struct running *r) {
  db_jit_free(r->jit);
  db_optim_free(r->optim);
  for (unsigned i = 0; i < r->m.nparameters; i++) db_release(r->m.parameter[i]);
  for (unsigned i = 0; i < r->m.nstatistics; i++) db_release(r->m.statistic[i]);
  for (int i = 0; i < LAYERS; i++)
    for (int k = 0; k < 2; k++) db_release(r->cache[i][k]);
  db_release(r->x);
  db_release(r->y);
  db_release(r->seen);
}

/* Runs `steps` steps. Returns the seconds that they took, or a negative number if one failed. If values is not NULL,
 * stores nvalues elements of the last step's result, spread over all of it. */
static double run_steps(struct running *r, unsigned steps, double *values, unsigned nvalues) {
  bool ok = true;
  double start = speed_now(), seconds = 0;
  for (unsigned i = 0; i < steps && ok; i++) {
    DB_SCOPED;
    db_tensor *out, *in = NULL;
    r->keys = r->keys < CONTEXT ? r->keys + 1 : 513;
    if (r->seen) in = db_shrink(r->seen, 0, db_bind("n", 1, CONTEXT, r->keys));
    ok = !db_jit_call(r->jit, &in, &out);
    if (i + 1 < steps || !ok) continue;
    ok = !db_device_synchronize(device, TIMEOUT_NS);
    seconds = speed_now() - start;
    int64_t n = db_numel(out);
    float *x = values ? malloc((size_t)n * sizeof *x) : NULL;
    if (x) ok = ok && !db_read(out, x, (size_t)n * sizeof *x);
    for (unsigned k = 0; x && ok && k < nvalues; k++)
      values[k] = (double)x[(int64_t)k * (n - 1) / (nvalues > 1 ? nvalues - 1 : 1)];
    free(x);
  }
  return ok ? seconds : -1;
}

/* ---- comparison with PyTorch ---- */

static bool start_torch(struct child *c, struct running *r, const char *dir, unsigned threads, struct result *out) {
  struct db_named named[2 * MAX_PARAMETERS + 2];
  char path[256], line[512], reply[256];
  unsigned n = 0;
  if (!torch_start(c, threads, r->row->emulated ? "x86_64" : db_device_arch(device), out->about, sizeof out->about))
    return false;
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  char(*names)[8] = calloc(2 * MAX_PARAMETERS, sizeof *names);
  for (unsigned i = 0; i < r->m.nparameters; i++, n++) {
    snprintf(names[n], sizeof names[n], "p%u", i);
    named[n] = (struct db_named){names[n], r->m.parameter[i]};
  }
  for (unsigned i = 0; i < r->m.nstatistics; i++, n++) {
    snprintf(names[n], sizeof names[n], "s%u", i);
    named[n] = (struct db_named){names[n], r->m.statistic[i]};
  }
  named[n++] = (struct db_named){"x", r->x};
  named[n++] = (struct db_named){"y", r->y};
  bool ok = !db_save(path, named, n);
  free(names);
  snprintf(line, sizeof line, "model %s %s", r->row->peer, path);
  ok = ok && child_ask(c, line, reply, sizeof reply) && !strcmp(reply, "ok");
  if (!ok) snprintf(out->about, sizeof out->about, "failed: %.120s", reply);
  unlink(path);
  return ok;
}
static bool torch_values(struct child *c, double *values, unsigned n) {
  char line[32], reply[512], *at = reply, *next;
  snprintf(line, sizeof line, "values %u", n);
  if (!child_ask(c, line, reply, sizeof reply)) return false;
  for (unsigned i = 0; i < n; i++, at = next) {
    values[i] = strtod(at, &next);
    if (next == at) return false;
  }
  return true;
}
static double torch_seconds(struct child *c, unsigned steps) {
  char line[32], reply[64];
  snprintf(line, sizeof line, "run %u", steps);
  return child_ask(c, line, reply, sizeof reply) && reply[0] != 'n' ? strtod(reply, NULL) : -1;
}

/* ---- one model, in a separate process ---- */

struct apart {
  const struct row *row;
  const struct options *o;
  unsigned threads; /* 0: all */
  char dir[32];
  struct result *result;
};

static bool failed(struct result *out, const char *what) {
  snprintf(out->reason, sizeof out->reason, "%s", what);
  return out->ok = false;
}

static unsigned steps_for(double seconds) {
  double n = 0.02 / seconds;
  return n < 1 ? 1 : n > 1000 ? 1000 : (unsigned)n;
}

static bool measure(struct running *r, const struct apart *a, struct result *out) {
  struct child torch = {0};
  struct emu_stats before, after;
  double ours[STEPS_COMPARED][VALUES] = {0}, theirs[VALUES], most = 0, difference = 0, begin, s;
  unsigned compared = r->row->train ? STEPS_COMPARED : 1, nvalues = r->row->train ? 1 : VALUES;
  char worst[128] = "";
  bool emulated = !emu_stats(db_device_os(device), db_device_index(device), &before);
  bool beside = start_torch(&torch, r, a->dir, a->threads ? a->threads : 1, out);
  out->first = run_steps(r, 1, ours[0], nvalues);
  if (out->first < 0) return failed(out, db_error());
  for (unsigned i = 1; i < STEPS_COMPARED; i++) { /* a captured function runs twice before it replays */
    emu_stats(db_device_os(device), db_device_index(device), &before);
    s = run_steps(r, 1, ours[i], nvalues);
    if (s < 0) return failed(out, db_error());
    out->seconds = i == 1 ? s : fmin(out->seconds, s);
  }
  if (emulated && !emu_stats(db_device_os(device), db_device_index(device), &after))
    out->instructions = after.instructions - before.instructions;
  for (unsigned i = 0; beside && i < compared; i++) {
    if (!torch_values(&torch, theirs, nvalues)) {
      child_end(&torch);
      return failed(out, "the process that runs PyTorch ended early");
    }
    for (unsigned k = 0; k < nvalues; k++) {
      double d = fabs(ours[i][k] - theirs[k]);
      most = fmax(most, fabs(theirs[k]));
      if (d <= difference) continue;
      difference = isnan(d) ? INFINITY : d;
      snprintf(worst, sizeof worst, "step %u, value %u: %.9g, PyTorch computes %.9g", i, k, ours[i][k], theirs[k]);
    }
    out->compared = true;
  }
  out->error = out->compared ? difference / most : 0;
  out->ok = out->error < 2e-3;
  if (!out->ok) failed(out, worst);
  if (beside && !emulated) out->torch = torch_seconds(&torch, 1);
  begin = speed_wall();
  for (int round = 0; round < 200 && !emulated && (round < 2 || speed_wall() - begin < a->o->seconds); round++) {
    unsigned n = steps_for(out->seconds);
    s = out->seconds < 20 ? run_steps(r, n, NULL, 0) / n : out->seconds;
    if (s < 0) return failed(out, db_error());
    out->seconds = fmin(out->seconds, s);
    if (!beside || out->torch <= 0) continue;
    n = steps_for(out->torch);
    s = torch_seconds(&torch, n) / n;
    if (s > 0) out->torch = fmin(out->torch, s);
    usleep(2000); /* wait until PyTorch's threads are idle */
  }
  child_end(&torch);
  return out->ok;
}

static int run_row(void *ctx) {
  struct apart *a = ctx;
  struct running r = {.row = a->row};
  struct result *out = a->result;
  out->ran = true;
  setenv("XDG_CACHE_HOME", a->dir, 1);
  if (a->threads) keep_cpus(a->threads);
  device = db_open(NULL);
  if (!device) return failed(out, db_error()), 1;
  if (prepare(&r))
    measure(&r, a, out);
  else
    failed(out, db_error());
  end(&r);
  db_close(device);
  return !out->ok;
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) { return remove(path); }

/* ---- output ---- */

static bool json_first = true;

static void print(const struct row *w, unsigned threads, const struct result *r, const struct result *one, bool json) {
  if (json) {
    printf("%s\n{\"model\": \"%s\", \"threads\": %u, \"ok\": %s, \"compared\": %s, \"error\": %.3g, \"first seconds\": "
           "%.6g, "
           "\"seconds\": %.6g, \"PyTorch seconds\": %.6g, \"emulated instructions\": %llu}",
           json_first ? "" : ",", w->name, threads, r->ok ? "true" : "false", r->compared ? "true" : "false",
           isfinite(r->error) ? r->error : -1, r->first, r->seconds, r->torch, (unsigned long long)r->instructions);
    json_first = false;
    return;
  }
  char number[12] = "", text[3][24] = {"-", "-", "-"}, ratio[16] = "-", speedup[16] = "-", error[16] = "-",
       instructions[24] = "-";
  if (threads) snprintf(number, sizeof number, "%u", threads);
  if (r->seconds > 0) time_text(r->first, text[0], sizeof text[0]), time_text(r->seconds, text[1], sizeof text[1]);
  if (r->torch > 0) time_text(r->torch, text[2], sizeof text[2]);
  if (r->torch > 0 && r->seconds > 0) snprintf(ratio, sizeof ratio, "%.3f", r->torch / r->seconds);
  if (one && one->seconds > 0 && r->seconds > 0) snprintf(speedup, sizeof speedup, "%.2f", one->seconds / r->seconds);
  if (r->compared) snprintf(error, sizeof error, "%.1e", r->error);
  if (r->instructions) snprintf(instructions, sizeof instructions, "%llu", (unsigned long long)r->instructions);
  printf("%-28s %2s %10s %10s %10s %8s %8s %8s %12s", w->name, number, text[0], text[1], text[2], ratio, speedup, error,
         instructions);
  if (w->goal > 0 && r->torch > 0)
    printf("  %s %.2f of PyTorch", r->torch / r->seconds >= w->goal ? "reaches" : "BELOW", w->goal);
  if (w->first > 0 && r->first > 0) printf("  first %s %.1f s", r->first <= w->first ? "under" : "OVER", w->first);
  printf("%s%s\n", r->ok ? "" : "  FAILED: ", r->reason);
}

static const char usage[] =
    "usage: models [--threads N,N] [--cpu-time] [--seconds S] [--json] [--list] [WORD...]\n"
    "  --threads N,N  on the CPU: the numbers of threads, with a run for each\n"
    "  --cpu-time     measure the processor time of one thread\n"
    "  --seconds S    seconds for each model\n"
    "  --json         print the results as JSON\n"
    "  --list         print the names of the models for the device\n"
    "  WORD           run the models that have all these words (a,b: one of them; ^a: not a; * and ?)\n"
    "DEV names the device.\n"
    "example: models step ^gpt2\n";

int main(int argc, char **argv) {
  struct options o = {.threads = {1, count_cpus()}, .nthreads = count_cpus() > 1 ? 2 : 1, .seconds = 2};
  unsigned chosen = 0;
  bool has_header = false;
  if (!options_read(&o, argc, argv, false, usage)) return 2;
  const char *name = getenv("DEV");
  bool host = !name || !strcmp(name, "CPU"), emulated = name && !strncmp(name, "EMU+", 4);
  if (!host) o.nthreads = 1, o.threads[0] = 0;
  int bad = 0;
  if (o.json && !o.list) printf("{\"results\": [");
  for (unsigned i = 0; i < ROWS; i++) {
    struct result results[MAX_THREADS] = {0};
    if (rows[i].emulated != emulated || !has_words(rows[i].name, o.words, o.nwords)) continue;
    chosen++;
    if (o.list) printf("%s\n", rows[i].name);
    for (unsigned t = 0; t < o.nthreads && !o.list; t++) {
      struct apart a = {&rows[i], &o, o.threads[t], "/tmp/doorbell-models-XXXXXX", &results[t]};
      if (!mkdtemp(a.dir)) return perror("models"), 1;
      bad |= run_in_child(run_row, &a, &results[t], sizeof results[t]);
      nftw(a.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
      if (!results[t].ran) failed(&results[t], "the process that runs the model ended early");
      if (!has_header && !o.json)
        printf("%s%s%s\n%-28s %2s %10s %10s %10s %8s %8s %8s %12s\n", results[t].about[0] ? "PyTorch " : "",
               results[t].about, speed_cpu_time ? ", processor time" : "", "model", "t", "first", "step", "PyTorch",
               "ratio", "speedup", "error", "emulated");
      has_header = true;
      print(&rows[i], o.threads[t], &results[t], t ? &results[0] : NULL, o.json);
      fflush(stdout);
    }
  }
  if (o.json && !o.list) printf("\n]}\n");
  if (!chosen) return fprintf(stderr, "models: no model matches all words; --list prints all models\n"), 2;
  return bad;
}
