/* Shared by suites of language models: what llama.cpp computes for the models of tests/data/llm (make_models.py). */
#ifndef DOORBELL_TESTS_FRONTEND_LLM_H
#define DOORBELL_TESTS_FRONTEND_LLM_H
#include "command.h"
#include "../../frontend/llm/llm.h"
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DATA DATA_DIR "/llm/"
enum { WORDS = 64, CONTEXT = 64 };

static json_t *golden; /* {model: {"tokens", "prompt", "logits", "greedy"}} */
enum { GREEDY = 200 }; /* tokens */

static int read_golden(void **state) {
  golden = json_load_file(DATA "logits.json", 0, NULL);
  return golden ? begin(state) : -1;
}
static int forget(void **state) {
  json_decref(golden);
  return finish(state) || db_shutdown();
}

static struct llm *open_texts(const char *name, db_device *dev, unsigned texts, int64_t context) {
  char path[512];
  struct llm *l;
  snprintf(path, sizeof path, DATA "%s.gguf", name);
  if (llm_open(&l, path, dev, texts, context, NULL, NULL)) fail_msg("%s", db_error());
  assert_int_equal(llm_vocabulary(l), WORDS);
  return l;
}
__attribute__((unused)) static struct llm *open_model(const char *name, db_device *dev, int64_t context) {
  return open_texts(name, dev, 1, context);
}

static bool is_quantized(const char *name) { return !strcmp(name, "types") || *name == 'Q'; }
static bool has_experts(const char *name) { return strstr(name, "moe") || !strcmp(name, "mixtral"); }

/* The largest difference of a logit from that of llama.cpp, as a part of the largest one. Keys and values are f16 here
 * and in llama.cpp, and may be rounded differently. llama.cpp rounds the inputs of quantized matrices to 8 bits, and
 * those of bf16 matrices to bf16. */
static double tolerance_of(const char *name) { return is_quantized(name) ? 0.05 : !strcmp(name, "BF16") ? 0.01 : 2e-3; }

static double largest(const float *logits) {
  float most = 0;
  for (int i = 0; i < WORDS; i++) most = fmaxf(most, fabsf(logits[i]));
  return (double)most;
}

/* Appends n greedy tokens of llama.cpp, and expects at each position that the most likely token here is the same.
 * It may be another one only in a tie: the logits of the two tokens differ by less than the tolerance, or rounding
 * chose another expert. Ties are few: one position in 10 if weights are quantized, otherwise one in 100. */
__attribute__((unused)) static void expect_greedy(const char *name, const json_t *want, db_device *dev, size_t n) {
  assert_non_null(want);
  const json_t *tokens = json_object_get(want, "tokens"), *greedy = json_object_get(want, "greedy");
  size_t prompt = (size_t)json_integer_value(json_object_get(want, "prompt")), ties = 0;
  struct llm *l = open_model(name, dev, 4 * CONTEXT);
  struct sampler sampler = {.temperature = 0};
  float logits[WORDS];
  int32_t id[64];
  for (size_t i = 0; i < prompt; i++) id[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
  if (llm_eval(l, 0, id, prompt, logits)) fail_msg("%s: %s", name, db_error());
  for (size_t i = 0; i < n; i++) {
    int32_t got = sampler_choose(&sampler, logits, WORDS),
            other = (int32_t)json_integer_value(json_array_get(greedy, i));
    ties += got != other;
    if ((double)(logits[got] - logits[other]) > tolerance_of(name) * largest(logits) && !has_experts(name))
      fail_msg("%s: token %zu is %d, not %d: the logits are %g and %g", name, i, got, other, (double)logits[got],
               (double)logits[other]);
    if (llm_eval(l, 0, &other, 1, logits)) fail_msg("%s: %s", name, db_error());
  }
  if (ties > n / (is_quantized(name) ? 10 : 100)) fail_msg("%s: %zu of %zu tokens are different", name, ties, n);
  llm_close(l);
}

__attribute__((unused)) static void expect_logits(const char *name, size_t at, const float *got, const json_t *row) {
  double most = 0;
  for (size_t i = 0; i < WORDS; i++) most = fmax(most, fabs(json_number_value(json_array_get(row, i))));
  for (size_t i = 0; i < WORDS; i++) {
    double want = json_number_value(json_array_get(row, i));
    if (!(fabs((double)got[i] - want) <= tolerance_of(name) * most))
      fail_msg("%s on %s, row %zu: logit %zu is %g, not %g", name, at ? "decode" : "prompt", at, i, (double)got[i],
               want);
  }
}

__attribute__((unused)) static void expect_model(const char *name, const json_t *want, db_device *dev) {
  assert_non_null(want);
  struct llm *l = open_model(name, dev, CONTEXT);
  const json_t *tokens = json_object_get(want, "tokens"), *rows = json_object_get(want, "logits");
  size_t prompt = (size_t)json_integer_value(json_object_get(want, "prompt"));
  int32_t id[64];
  float logits[WORDS];
  for (size_t i = 0; i < json_array_size(tokens); i++) id[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
  for (size_t i = 0; i < json_array_size(rows); i++) {
    size_t first = i ? prompt + i - 1 : 0, n = i ? 1 : prompt;
    if (llm_eval(l, 0, id + first, n, logits)) fail_msg("%s: %s", name, db_error());
    expect_logits(name, i, logits, json_array_get(rows, i));
  }
  assert_int_equal(llm_length(l, 0), json_array_size(tokens));
  llm_close(l);
}

__attribute__((unused)) static void expect_all_models(db_device *dev) {
  const char *name;
  json_t *want;
  json_object_foreach(golden, name, want) expect_model(name, want, dev);
}

/* DEVICE_NAME and others like it. */
__attribute__((unused)) static db_device *open_group(const char *name, unsigned n) {
  char other[64];
  db_device *one[4];
  for (unsigned i = 0; i < n; i++) {
    snprintf(other, sizeof other, "%s:%u", name, i);
    one[i] = open_device(i ? other : name);
  }
  db_device *group = db_group(one, n);
  assert_non_null(group);
  for (unsigned i = 0; i < n; i++) db_close(one[i]);
  return group;
}
__attribute__((unused)) static db_device *open_pair(const char *name) { return open_group(name, 2); }

/* The command in another process. Its streams are pipes. */
struct running {
  pid_t pid;
  FILE *in, *out, *errors;
};
__attribute__((unused)) static struct running start_command(const char *const *args) {
  int in[2], output[2], errors[2];
  assert_false(pipe(in) || pipe(output) || pipe(errors));
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a suite that fails leaves no server */
    dup2(in[0], 0), dup2(output[1], 1), dup2(errors[1], 2);
    close(in[1]), close(output[0]), close(errors[0]);
    execv(DOORBELL, (char *const *)args);
    _exit(127);
  }
  close(in[0]), close(output[1]), close(errors[1]);
  return (struct running){pid, fdopen(in[1], "w"), fdopen(output[0], "r"), fdopen(errors[0], "r")};
}
#endif
