/* The architectures, and the numbers of a model. Sources: the key names of GGUF (docs/gguf.md of ggml), and each
 * model's published description. */
#include "../../hcq/error.h"
#include "model.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 4096 };

static const struct architecture architectures[] = {
    {"llama", ROTATION_PAIRS, .normalized_experts = true}, /* also Mistral and Mixtral */
    {"qwen2", ROTATION_HALVES},
    {"qwen2moe", ROTATION_HALVES},
    {"qwen3", ROTATION_HALVES},
    {"qwen3moe", ROTATION_HALVES, .normalized_experts = true},
    {"gemma", ROTATION_HALVES, .gelu = true, .scaled_embedding = true},
    {"gemma2", ROTATION_HALVES, .gelu = true, .scaled_embedding = true, .window_period = 2, .wide_scale_layers = 46},
    {"gemma3", ROTATION_HALVES, .gelu = true, .scaled_embedding = true, .window_period = 6, .local_base = 10000,
     .wide_scale_layers = 62},
    {"phi3", ROTATION_HALVES},
    {"gpt2", ROTATION_NONE, .layer_norm = true, .gelu = true},
};

/* ---- keys ---- */

struct keys {
  const struct gguf *g;
  const char *arch;
  int err;
};

/* The value of ARCH.name, or NULL if there is none. */
static const struct gguf_value *value_of(struct keys *k, const char *name) {
  char key[160];
  snprintf(key, sizeof key, "%s.%s", k->arch, name);
  return gguf_find(k->g, key);
}
static double number_of(struct keys *k, const char *name, double otherwise) {
  const struct gguf_value *v = value_of(k, name);
  double out = otherwise;
  if (v && (v->array || !gguf_number(v, 0, &out) || !isfinite(out)) && !k->err)
    k->err = db_fail(-EINVAL, "%s.%s: not a number%s", k->arch, name, v->array ? ", but a list" : "");
  return out;
}
/* An integer from `least` to 2^31 - 1. otherwise < 0: the key is needed. */
static int64_t count_of(struct keys *k, const char *name, int64_t least, int64_t otherwise) {
  const struct gguf_value *v = value_of(k, name);
  int64_t out = otherwise;
  if (k->err || (!v && otherwise >= 0)) return otherwise;
  if (!v)
    k->err = db_fail(-EINVAL, "%s.%s: missing", k->arch, name);
  else if (v->array)
    k->err = db_fail(-EINVAL, "%s.%s: not supported: a number for each layer", k->arch, name);
  else if (!gguf_integer(v, 0, &out) || out < least || out > INT32_MAX)
    k->err = db_fail(-EINVAL, "%s.%s: not a number from %lld to 2^31 - 1", k->arch, name, (long long)least);
  return k->err ? least : out;
}

static void read_rope(struct keys *k, struct numbers *n) {
  static const char *const kinds[] = {
      [ROPE_PLAIN] = "none", [ROPE_LINEAR] = "linear", [ROPE_YARN] = "yarn", [ROPE_LONG] = "longrope"};
  struct rope *r = &n->rope;
  r->dims = count_of(k, "rope.dimension_count", 2, n->key);
  r->base = number_of(k, "rope.freq_base", 10000);
  r->factor = number_of(k, "rope.scaling.factor", number_of(k, "rope.scale_linear", 1));
  r->attention_factor = number_of(k, "rope.scaling.attn_factor", 1);
  r->beta_fast = number_of(k, "rope.scaling.yarn_beta_fast", 32);
  r->beta_slow = number_of(k, "rope.scaling.yarn_beta_slow", 1);
  r->original_context = count_of(k, "rope.scaling.original_context_length", 1, n->context);
  r->scaling = ROPE_LINEAR;
  char *kind = gguf_text(value_of(k, "rope.scaling.type"));
  bool known = !kind;
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds && kind; i++)
    if (!strcmp(kinds[i], kind)) r->scaling = i, known = true;
  if (!known && !k->err) k->err = db_fail(-EINVAL, "not supported: %s.rope.scaling.type is '%s'", k->arch, kind);
  free(kind);
  if (!k->err && (r->dims % 2 || r->dims > n->key || !(r->base > 1) || !(r->factor > 0)))
    k->err = db_fail(-EINVAL, "%s.rope: %lld dimensions of %lld, base %g, factor %g", k->arch, (long long)r->dims,
                     (long long)n->key, r->base, r->factor);
}

static int read_all(struct keys *k, struct numbers *n) {
  n->layers = count_of(k, "block_count", 1, -1);
  n->width = count_of(k, "embedding_length", 1, -1);
  n->context = count_of(k, "context_length", 1, -1);
  n->heads = count_of(k, "attention.head_count", 1, -1);
  n->kv_heads = count_of(k, "attention.head_count_kv", 1, n->heads);
  if (k->err) return k->err;
  n->key = count_of(k, "attention.key_length", 1, n->width / n->heads);
  n->value = count_of(k, "attention.value_length", 1, n->width / n->heads);
  n->experts = count_of(k, "expert_count", 0, 0);
  n->used_experts = count_of(k, "expert_used_count", 0, 0);
  n->window = count_of(k, "attention.sliding_window", 0, n->arch->window_period == 2 ? 4096 : 0);
  n->eps =
      number_of(k, n->arch->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5);
  n->attention_cap = number_of(k, "attn_logit_softcapping", 0);
  n->logit_cap = number_of(k, "final_logit_softcapping", 0);
  bool wide = n->arch->wide_scale_layers && n->layers == n->arch->wide_scale_layers;
  n->scale = number_of(k, "attention.scale", 1 / sqrt((double)(wide ? n->width / n->heads : n->key)));
  if (n->arch->rotation != ROTATION_NONE) read_rope(k, n);
  if (k->err) return k->err;
  if (n->heads % n->kv_heads || n->layers > MOST_LAYERS || n->key < 1 || n->value < 1 ||
      n->key > INT32_MAX / n->heads || n->value > INT32_MAX / n->heads)
    return db_fail(-EINVAL, "%s: %lld layers, %lld heads, %lld of keys and values, of width %lld and %lld", k->arch,
                   (long long)n->layers, (long long)n->heads, (long long)n->kv_heads, (long long)n->key,
                   (long long)n->value);
  if (n->experts && (n->used_experts < 1 || n->used_experts > n->experts))
    return db_fail(-EINVAL, "%s.expert_used_count: %lld of %lld experts", k->arch, (long long)n->used_experts,
                   (long long)n->experts);
  return 0;
}

int numbers_read(struct numbers *n, const struct gguf *g) {
  char *arch = gguf_text(gguf_find(g, "general.architecture"));
  struct keys k = {g, arch, 0};
  *n = (struct numbers){0};
  for (unsigned i = 0; arch && i < sizeof architectures / sizeof *architectures; i++)
    if (!strcmp(architectures[i].name, arch)) n->arch = &architectures[i];
  int err = n->arch ? read_all(&k, n)
            : arch  ? db_fail(-EINVAL, "not supported: general.architecture is '%s'", arch)
                    : db_fail(-EINVAL, "general.architecture: missing");
  free(arch);
  return err;
}

bool numbers_has_window(const struct numbers *n, int64_t layer) {
  unsigned period = n->arch->window_period;
  return n->window && (!period || layer % period < period - 1);
}

/* ---- rotation ---- */

/* The dimension whose wave turns `turns` times in the original context (Peng et al., "YaRN", 2023). */
static double dimension_of(const struct rope *r, double turns) {
  return (double)r->dims * log((double)r->original_context / (turns * 2 * M_PI)) / (2 * log(r->base));
}

void rope_table(const struct numbers *n, bool local, const float *divisors, int64_t positions, float *cosines,
                float *sines) {
  const struct rope *r = &n->rope;
  bool own_base = local && n->arch->local_base > 0;
  double base = own_base ? n->arch->local_base : r->base, magnitude = r->attention_factor;
  double interpolated = own_base || r->scaling == ROPE_PLAIN ? 1 : 1 / r->factor;
  bool yarn = r->scaling == ROPE_YARN && !own_base;
  double low = 0, high = 0;
  if (yarn) {
    low = fmax(0, floor(dimension_of(r, r->beta_fast))),
    high = fmin((double)r->dims - 1, ceil(dimension_of(r, r->beta_slow)));
    magnitude *= 1 + 0.1 * log(r->factor);
  }
  for (int64_t i = 0; i < r->dims / 2; i++) {
    double frequency = pow(base, -2.0 * (double)i / (double)r->dims) / (divisors ? (double)divisors[i] : 1);
    double ramp = yarn ? 1 - fmin(1, fmax(0, ((double)i - low) / fmax(0.001, high - low))) : 0;
    frequency *= interpolated * (1 - ramp) + ramp;
    for (int64_t p = 0; p < positions; p++) {
      cosines[p * (r->dims / 2) + i] = (float)(cos((double)p * frequency) * magnitude);
      sines[p * (r->dims / 2) + i] = (float)(sin((double)p * frequency) * magnitude);
    }
  }
}
