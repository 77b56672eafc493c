/* doorbell bench --model NAME: networks of published sizes with random parameters, in f32. */
#include "../../../hcq/error.h"
#include "../../nets/nets.h"
#include "bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 512, STEPS = 64, SIZE = 224 };

/* Measures a captured function, which processes `count` units of x in each run. */
static int run_captured(struct bench_model *m, db_device *dev, db_jit *j, db_tensor *x, const char *unit,
                        int64_t count) {
  struct runs runs = {0};
  int err = j ? db_realize(x) : -ENOMEM;
  while (!err && bench_runs_again(&runs)) {
    DB_SCOPED;
    db_tensor *y;
    runs_begin(&runs);
    if (!(err = db_jit_call(j, &x, &y)) && !(err = db_realize(y))) err = db_device_synchronize(dev, BENCH_WAIT_NS);
    runs_end(&runs);
  }
  if (!err) bench_print_runs(m, unit, (double)count, &runs);
  return err;
}

/* ---- images ---- */

struct images {
  bool vit;
  struct net_resnet resnet;
  struct net_vit transformer;
};
static int classify(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct images *n = ctx;
  out[0] = n->vit ? net_vit_apply(&n->transformer, in[0]) : net_resnet_apply(&n->resnet, in[0]);
  return 0;
}

static int bench_images(struct bench_model *m, db_device *dev) {
  DB_SCOPED;
  db_params *p = db_params_new(dev, 1);
  struct images *n = calloc(1, sizeof *n);
  if (!p || !n) {
    db_params_free(p);
    free(n);
    return db_fail(-ENOMEM, "out of memory");
  }
  n->vit = !strcmp(m->file, "vit");
  if (n->vit)
    net_vit_new(&n->transformer, p, net_vit_base);
  else
    net_resnet_new(&n->resnet, p, net_resnet50);
  db_params_train(p, false);
  db_jit *j = db_jit_new(classify, n, 1, 1);
  int err = run_captured(m, dev, j, db_randn(DB_F32, dev, m->batch, 3, SIZE, SIZE), "images", m->batch);
  db_jit_free(j);
  db_params_free(p);
  free(n);
  return err;
}

/* ---- language models ---- */

struct texts {
  struct net_lm net;
  struct net_lm_cache cache;
  int64_t position; /* of the next token */
};

/* The logits of the last token of each prompt. */
static int read_prompts(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct texts *t = ctx;
  int64_t batch = db_dim(in[0], 0), length = db_dim(in[0], 1);
  out[0] = db_shrink(net_lm_apply(&t->net, in[0], NULL, 0), 0, batch, length - 1, length, 0, t->net.sizes.vocabulary);
  return 0;
}

/* The logits after one more token of each text. in[1] only carries the symbolic size
 * `tokens`, so that db_jit uses its new value at each call. */
static int read_token(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct texts *t = ctx;
  db_tensor *all[2 * NET_LAYERS + 1];
  unsigned n = 0;
  int64_t end = db_bind("tokens", 1, t->net.sizes.context, t->position + 1);
  all[n++] = out[0] = net_lm_apply(&t->net, in[0], &t->cache, db_size_sub(end, 1));
  for (int64_t i = 0; i < t->net.sizes.layers; i++) all[n++] = t->cache.keys[i], all[n++] = t->cache.values[i];
  return db_realize_all(all, n);
}

static int run_tokens(struct bench_model *m, db_device *dev, db_jit *j, struct texts *t) {
  DB_SCOPED;
  const struct net_lm_sizes *s = &t->net.sizes;
  struct runs runs = {0};
  int err = 0;
  for (int64_t i = 0; i < s->layers && !err; i++) {
    t->cache.keys[i] = db_contiguous(db_zeros(DB_F32, dev, m->batch, s->kv_heads, s->context, s->width / s->heads));
    t->cache.values[i] = db_contiguous(db_zeros(DB_F32, dev, m->batch, s->kv_heads, s->context, s->width / s->heads));
    err = db_realize(t->cache.keys[i], t->cache.values[i]);
  }
  db_tensor *token = db_randint(0, s->vocabulary, DB_I32, dev, m->batch, 1), *seen = db_zeros(DB_U8, dev, s->context);
  if (!err) err = db_realize(token, seen = db_contiguous(seen));
  for (t->position = PROMPT; t->position < PROMPT + RUNS_WARM + STEPS && !err; t->position++) {
    DB_SCOPED;
    db_tensor *in[] = {token, db_shrink(seen, 0, db_bind("tokens", 1, s->context, t->position + 1))}, *y;
    runs_begin(&runs);
    if (!(err = db_jit_call(j, in, &y)) && !(err = db_realize(y))) err = db_device_synchronize(dev, BENCH_WAIT_NS);
    runs_end(&runs);
  }
  if (!err) bench_print_runs(m, "tokens", (double)m->batch, &runs);
  return err;
}

static int bench_texts(struct bench_model *m, db_device *dev) {
  DB_SCOPED;
  db_params *p = db_params_new(dev, 1);
  struct texts *t = calloc(1, sizeof *t);
  if (!p || !t) {
    db_params_free(p);
    free(t);
    return db_fail(-ENOMEM, "out of memory");
  }
  net_lm_new(&t->net, p, !strcmp(m->file, "gpt2") ? net_gpt2 : net_llama_1b);
  db_params_train(p, false);
  db_jit *prompts = db_jit_new(read_prompts, t, 1, 1), *tokens = db_jit_new(read_token, t, 2, 1);
  db_tensor *text = db_randint(0, t->net.sizes.vocabulary, DB_I32, dev, m->batch, PROMPT);
  int err = run_captured(m, dev, prompts, text, "prompt tokens", m->batch * PROMPT);
  if (!err && !tokens) err = -ENOMEM;
  if (!err) err = run_tokens(m, dev, tokens, t);
  db_jit_free(prompts);
  db_jit_free(tokens);
  db_params_free(p);
  free(t);
  return err;
}

/* ---- names ---- */

const char bench_net_names[] = "resnet50, vit, gpt2, llama-1b";

bench_model_fn *bench_net_find(const char *name) {
  static const struct {
    const char *name;
    bench_model_fn *run;
  } nets[] = {{"resnet50", bench_images}, {"vit", bench_images}, {"gpt2", bench_texts}, {"llama-1b", bench_texts}};
  for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
    if (!strcmp(name, nets[i].name)) return nets[i].run;
  return NULL;
}
