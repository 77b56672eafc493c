/* The parts of a language model: numbers and weights from a GGUF file, and the expression of its logits. */
#ifndef DOORBELL_FRONTEND_LLM_MODEL_H
#define DOORBELL_FRONTEND_LLM_MODEL_H
#include "weights.h"

enum rotation { ROTATION_NONE, ROTATION_PAIRS, ROTATION_HALVES };

/* What differs between architectures and cannot be seen from the file's tensors and numbers. */
struct architecture {
  const char *name;
  enum rotation rotation;     /* of positions: elements 2 i and 2 i + 1, or i and i + half of them */
  bool layer_norm;            /* else RMS norm */
  bool gelu;                  /* else SiLU */
  bool scaled_embedding;      /* by the root of the width */
  bool normalized_experts;    /* the weights of the chosen experts add up to 1 */
  unsigned window_period;     /* all layers but each window_period-th see only a window; 0: all do, if there is one */
  double local_base;          /* of the rotation in layers with a window; 0: as in the others */
  unsigned wide_scale_layers; /* a model of this many layers scales products by width / heads, not by a head's width */
};

struct numbers {
  const struct architecture *arch;
  int64_t layers, width, heads, kv_heads, key, value, context, vocabulary;
  int64_t experts, used_experts, window;
  double eps, scale, attention_cap, logit_cap; /* caps: c tanh(x / c); 0: none */
  struct rope {
    int64_t dims, original_context;
    double base, factor, attention_factor, beta_fast, beta_slow;
    enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN, ROPE_LONG } scaling;
  } rope;
};
/* Reads the numbers of a model. Returns 0, or a negative errno with a message that names the key. */
int numbers_read(struct numbers *n, const struct gguf *g);
bool numbers_has_window(const struct numbers *n, int64_t layer);
/* Fills in cosines and sines [positions, dims / 2] of the rotation. divisors: of the frequencies, or NULL. */
void rope_table(const struct numbers *n, bool local, const float *divisors, int64_t positions, float *cosines,
                float *sines);

/* A matrix with a bias, or a part that the model does not have: weight.data is NULL. */
struct linear {
  struct weight weight;
  db_tensor *bias;
};
struct norm {
  db_tensor *weight, *bias;
};
struct layer {
  struct norm before, between, after_attention, after_feed, query, key_norm;
  struct linear q, k, v, qkv, out;
  struct linear gate, up, down;                                 /* without a gate, or with gate and up in one matrix */
  struct linear router, gate_experts, up_experts, down_experts; /* mixture of experts */
  struct linear shared_router, shared_gate, shared_up, shared_down;
  /* f16. Keys [texts, kv_heads, width of a head, key_row(positions)], so that a query is multiplied by vectors of
   * positions; columns past the positions are not used. Values [texts, kv_heads, positions, width of a head] */
  db_tensor *cache[2];
};
enum { LLM_TEXTS = 8 }; /* the most texts that can be continued together */
struct model {
  struct numbers n;
  struct weight embedding, positions;
  struct layer *layer;
  struct norm norm;
  struct linear out;     /* its data is NULL: the embedding */
  db_tensor *rope[2][2]; /* global and local: cosines and sines [positions, dims / 2] */
  db_device *dev;
  int64_t texts, room; /* texts in the caches, and positions of each */
};
/* Consecutive tokens of a text, the first at this position. Both numbers may be symbolic. */
struct span {
  int64_t text, at;
};
/* Called while weights are loaded, with the bytes so far and of all. */
typedef void llm_progress(void *ctx, uint64_t done, uint64_t all);
/* Loads a model for this many texts of at most `room` positions. Returns 0, or a negative errno with a message that
 * names the key or the tensor. model_free releases it, also after an error. */
int model_load(struct model *m, const struct gguf *g, db_device *dev, int64_t texts, int64_t room,
               llm_progress *progress, void *ctx);
void model_free(struct model *m);
/* The logits [n, vocabulary] after tokens of n texts, the same number of each text. x: the tokens' rows of the
 * embedding [count of all, width]. last: the place in x of the token whose logits to compute, which may be symbolic; if
 * n > 1, they are those of all tokens. Assigns keys and values to the caches; assigned receives these tensors, 2 for
 * each layer. */
db_tensor *model_logits(struct model *m, db_tensor *x, const struct span *span, unsigned n, int64_t last,
                        db_tensor **assigned);
#endif
