/* Networks over nn.h, which the trainings of frontend/examples and `doorbell bench --model` share: residual networks
 * (He et al., 2015), vision transformers (Dosovitskiy et al., 2020), and language models like GPT-2 and Llama. The
 * sizes of the published networks are net_resnet50, net_vit_base, net_gpt2 and net_llama_1b. */
#ifndef DOORBELL_FRONTEND_NETS_H
#define DOORBELL_FRONTEND_NETS_H
#include "../nn.h"

/* ---- residual networks: images [batch, 3, size, size] -> logits [batch, classes] ---- */

enum { NET_RESNET_BLOCKS = 64 };
struct net_resnet_sizes {
  int64_t width;     /* channels of the first convolution; the last stage has 32 times as many */
  int64_t blocks[4]; /* of each stage */
  int64_t classes;
  bool small; /* images of 32 pixels: the first convolution keeps their size, and no pooling follows */
};
static const struct net_resnet_sizes net_resnet50 __attribute__((unused)) = {64, {3, 4, 6, 3}, 1000, false};
struct net_resnet {
  struct net_resnet_sizes sizes;
  db_convolution first;
  db_norm first_norm;
  struct net_bottleneck {
    db_convolution conv[3], shortcut;
    db_norm norm[3], shortcut_norm;
    bool projects; /* it has the shortcut's convolution */
  } block[NET_RESNET_BLOCKS];
  unsigned nblocks;
  db_linear out;
};

static inline void net_bottleneck_new(struct net_bottleneck *b, db_params *p, int64_t in, int64_t width,
                                      int64_t stride) {
  b->projects = stride != 1 || in != 4 * width;
  b->conv[0] = db_conv2d_new(p, "conv1", in, width, DB_LIST(1), false);
  b->conv[1] =
      db_conv2d_new(p, "conv2", width, width, DB_LIST(3), false, .stride = DB_LIST(stride), .padding = DB_LIST(1));
  b->conv[2] = db_conv2d_new(p, "conv3", width, 4 * width, DB_LIST(1), false);
  b->norm[0] = db_batch_norm_new(p, "bn1", width);
  b->norm[1] = db_batch_norm_new(p, "bn2", width);
  b->norm[2] = db_batch_norm_new(p, "bn3", 4 * width);
  if (!b->projects) return;
  b->shortcut = db_conv2d_new(p, "downsample.0", in, 4 * width, DB_LIST(1), false, .stride = DB_LIST(stride));
  b->shortcut_norm = db_batch_norm_new(p, "downsample.1", 4 * width);
}

/* Parameters have torchvision's names. At most NET_RESNET_BLOCKS blocks are made. */
static inline void net_resnet_new(struct net_resnet *n, db_params *p, struct net_resnet_sizes sizes) {
  int64_t in = sizes.width, kernel = sizes.small ? 3 : 7;
  *n = (struct net_resnet){.sizes = sizes};
  n->first = db_conv2d_new(p, "conv1", 3, in, DB_LIST(kernel), false, .stride = DB_LIST(sizes.small ? 1 : 2),
                           .padding = DB_LIST(kernel / 2));
  n->first_norm = db_batch_norm_new(p, "bn1", in);
  for (int stage = 0; stage < 4; stage++)
    for (int64_t i = 0; i < sizes.blocks[stage] && n->nblocks < NET_RESNET_BLOCKS; i++) {
      int64_t width = sizes.width << stage;
      net_bottleneck_new(&n->block[n->nblocks++], db_params_at(p, "layer%d.%d", stage + 1, (int)i), in, width,
                         stage && !i ? 2 : 1);
      in = 4 * width;
    }
  n->out = db_linear_new(p, "fc", in, sizes.classes, true);
}

static inline db_tensor *net_resnet_apply(const struct net_resnet *n, db_tensor *x) {
  x = db_relu(db_apply(&n->first_norm, db_apply(&n->first, x)));
  if (!n->sizes.small) x = db_max_pool2d(x, DB_LIST(3), .stride = DB_LIST(2), .padding = DB_LIST(1));
  for (unsigned i = 0; i < n->nblocks; i++) {
    const struct net_bottleneck *b = &n->block[i];
    db_tensor *y = db_relu(db_apply(&b->norm[0], db_apply(&b->conv[0], x)));
    y = db_relu(db_apply(&b->norm[1], db_apply(&b->conv[1], y)));
    y = db_apply(&b->norm[2], db_apply(&b->conv[2], y));
    if (b->projects) x = db_apply(&b->shortcut_norm, db_apply(&b->shortcut, x));
    x = db_relu(db_add(x, y));
  }
  return db_apply(&n->out, db_mean(x, 2, 3));
}

/* ---- vision transformers: images [batch, 3, size, size] -> logits [batch, classes] ---- */

enum { NET_LAYERS = 64 };
struct net_vit_sizes {
  int64_t size, patch, width, layers, heads, classes;
};
static const struct net_vit_sizes net_vit_base __attribute__((unused)) = {224, 16, 768, 12, 12, 1000};
struct net_vit {
  struct net_vit_sizes sizes;
  db_convolution patches;
  db_parameter *token, *places; /* [1, 1, width], [1, patches + 1, width] */
  struct net_vit_layer {
    db_norm before, between;
    db_multihead attention;
    db_linear up, down;
  } layer[NET_LAYERS];
  db_norm norm;
  db_linear out;
};

/* size must be a multiple of patch; at most NET_LAYERS layers are made. */
static inline void net_vit_new(struct net_vit *n, db_params *p, struct net_vit_sizes sizes) {
  int64_t width = sizes.width, side = sizes.size / sizes.patch;
  if (sizes.layers > NET_LAYERS) sizes.layers = NET_LAYERS;
  *n = (struct net_vit){.sizes = sizes};
  n->patches = db_conv2d_new(p, "patches", 3, width, DB_LIST(sizes.patch), true, .stride = DB_LIST(sizes.patch));
  n->token = db_param_normal(p, "token", 0.02, DB_LIST(1, 1, width));
  n->places = db_param_normal(p, "places", 0.02, DB_LIST(1, side * side + 1, width));
  for (int64_t i = 0; i < sizes.layers; i++) {
    db_params *at = db_params_at(p, "layer.%d", (int)i);
    n->layer[i] = (struct net_vit_layer){
        db_layer_norm_new(at, "before", width), db_layer_norm_new(at, "between", width),
        db_multihead_new(at, "attention", width, sizes.heads), db_linear_new(at, "up", width, 4 * width, true),
        db_linear_new(at, "down", 4 * width, width, true)};
  }
  n->norm = db_layer_norm_new(p, "norm", width);
  n->out = db_linear_new(p, "out", width, sizes.classes, true);
}

static inline db_tensor *net_vit_apply(const struct net_vit *n, db_tensor *x) {
  int64_t batch = db_dim(x, 0), width = n->sizes.width;
  x = db_transpose(db_reshape(db_apply(&n->patches, x), batch, width, -1), 1, 2);
  x = db_cat(1, db_expand(n->token->tensor, batch, 1, width), x);
  x = db_add(x, n->places->tensor);
  for (int64_t i = 0; i < n->sizes.layers; i++) {
    const struct net_vit_layer *l = &n->layer[i];
    x = db_add(x, db_apply(&l->attention, db_apply(&l->before, x)));
    x = db_add(x, db_apply(&l->down, db_gelu(db_apply(&l->up, db_apply(&l->between, x)))));
  }
  x = db_reshape(db_shrink(x, 0, batch, 0, 1, 0, width), batch, width); /* the class token */
  return db_apply(&n->out, db_apply(&n->norm, x));
}

/* ---- language models: tokens [batch, length], integers -> logits [batch, length, vocabulary] ---- */

struct net_lm_sizes {
  int64_t vocabulary, context, width, layers, heads;
  int64_t kv_heads, inner; /* of keys and values; width between the two products of a block */
  bool llama;              /* rotary positions, RMS norms, gated products without bias; otherwise like GPT-2 */
};
static const struct net_lm_sizes net_gpt2 __attribute__((unused)) = {50257, 1024, 768, 12, 12, 12, 3072, false};
static const struct net_lm_sizes net_llama_1b
    __attribute__((unused)) = {32000, 2048, 2048, 22, 32, 4, 5632, true}; /* TinyLlama 1.1B */
struct net_lm {
  struct net_lm_sizes sizes;
  db_embedding words, places; /* places: GPT-2 */
  struct net_lm_layer {
    db_norm before, between;
    db_linear qkv, joined, gate, up, down; /* qkv: queries, keys and values; gate: Llama */
  } layer[NET_LAYERS];
  db_norm norm;
  db_linear out; /* Llama; GPT-2 uses the weight of words */
};
/* Keys and values of earlier tokens, [batch, kv_heads, context, width of a head], for each layer. */
struct net_lm_cache {
  db_tensor *keys[NET_LAYERS], *values[NET_LAYERS];
};

static inline void net_lm_new(struct net_lm *n, db_params *p, struct net_lm_sizes s) {
  bool bias = !s.llama;
  if (s.layers > NET_LAYERS) s.layers = NET_LAYERS;
  *n = (struct net_lm){.sizes = s};
  int64_t head = s.width / s.heads;
  n->words.weight = db_param_normal(p, "words.weight", 0.02, DB_LIST(s.vocabulary, s.width));
  if (!s.llama) n->places.weight = db_param_normal(p, "places.weight", 0.01, DB_LIST(s.context, s.width));
  for (int64_t i = 0; i < s.layers; i++) {
    db_params *at = db_params_at(p, "layer.%d", (int)i);
    struct net_lm_layer *l = &n->layer[i];
    l->before = s.llama ? db_rms_norm_new(at, "before", s.width) : db_layer_norm_new(at, "before", s.width);
    l->between = s.llama ? db_rms_norm_new(at, "between", s.width) : db_layer_norm_new(at, "between", s.width);
    l->qkv = db_linear_new(at, "qkv", s.width, (s.heads + 2 * s.kv_heads) * head, bias);
    l->joined = db_linear_new(at, "joined", s.heads * head, s.width, bias);
    if (s.llama) l->gate = db_linear_new(at, "gate", s.width, s.inner, false);
    l->up = db_linear_new(at, "up", s.width, s.inner, bias);
    l->down = db_linear_new(at, "down", s.inner, s.width, bias);
  }
  n->norm = s.llama ? db_rms_norm_new(p, "norm", s.width) : db_layer_norm_new(p, "norm", s.width);
  if (s.llama) n->out = db_linear_new(p, "out", s.width, s.vocabulary, false);
}

/* Rotates pairs of x [batch, heads, length, head] by angles that grow with the position, [length, 1]. */
static inline db_tensor *net_rotate(db_tensor *x, db_tensor *places, int64_t batch, int64_t heads, int64_t length) {
  int64_t head = db_dim(x, 3), half = head / 2;
  db_tensor *rates =
      db_exp(db_mul(db_arange(0, (double)half, 1, DB_F32, db_device_of(x)), -9.210340371976184 / (double)half));
  db_tensor *angle = db_mul(places, db_reshape(rates, 1, half)), *c = db_cos(angle), *s = db_sin(angle);
  db_tensor *a = db_shrink(x, 0, batch, 0, heads, 0, length, 0, half),
            *b = db_shrink(x, 0, batch, 0, heads, 0, length, half, head);
  return db_cat(3, db_sub(db_mul(a, c), db_mul(b, s)), db_add(db_mul(b, c), db_mul(a, s)));
}

/* [batch, length, heads from `first` on, head] of the product as [batch, heads, length, head]. */
static inline db_tensor *net_heads(db_tensor *qkv, int64_t batch, int64_t length, int64_t first, int64_t heads,
                                   int64_t head) {
  db_tensor *part = db_shrink(qkv, 0, batch, 0, length, first * head, (first + heads) * head);
  return db_permute(db_reshape(part, batch, length, heads, head), 0, 2, 1, 3);
}

/* Without a cache, the tokens begin their texts. With one, there is one token per text at position `at`, a size which
 * may be symbolic; its keys and values are written to the cache, whose tensors the caller realizes together with the
 * result. */
static inline db_tensor *net_lm_apply(const struct net_lm *n, db_tensor *tokens, struct net_lm_cache *cache,
                                      int64_t at) {
  const struct net_lm_sizes *s = &n->sizes;
  int64_t batch = db_dim(tokens, 0), length = db_dim(tokens, 1), head = s->width / s->heads, kv = s->kv_heads;
  db_device *dev = db_device_of(tokens);
  db_tensor *place = db_arange(0, (double)length, 1, DB_I32, dev), *x = db_apply(&n->words, tokens);
  if (cache) place = db_reshape(db_cast(db_size_tensor(at, dev), DB_I32), 1);
  if (!s->llama) x = db_add(x, db_apply(&n->places, place));
  db_tensor *far = db_reshape(db_cast(place, DB_F32), length, 1);
  for (int64_t i = 0; i < s->layers; i++) {
    const struct net_lm_layer *l = &n->layer[i];
    db_tensor *qkv = db_apply(&l->qkv, db_apply(&l->before, x));
    db_tensor *q = net_heads(qkv, batch, length, 0, s->heads, head),
              *k = net_heads(qkv, batch, length, s->heads, kv, head),
              *v = net_heads(qkv, batch, length, s->heads + kv, kv, head);
    if (s->llama) q = net_rotate(q, far, batch, s->heads, length), k = net_rotate(k, far, batch, kv, length);
    if (cache) {
      int64_t end = db_size_add(at, 1);
      db_assign_slice(cache->keys[i], k, 0, batch, 0, kv, at, end, 0, head);
      db_assign_slice(cache->values[i], v, 0, batch, 0, kv, at, end, 0, head);
      k = db_shrink(cache->keys[i], 0, batch, 0, kv, 0, end, 0, head);
      v = db_shrink(cache->values[i], 0, batch, 0, kv, 0, end, 0, head);
    }
    db_tensor *y = db_attention(q, k, v, .causal = !cache);
    x = db_add(x, db_apply(&l->joined, db_reshape(db_permute(y, 0, 2, 1, 3), batch, length, s->heads * head)));
    y = db_apply(&l->between, x);
    y = s->llama ? db_mul(db_silu(db_apply(&l->gate, y)), db_apply(&l->up, y)) : db_gelu_tanh(db_apply(&l->up, y));
    x = db_add(x, db_apply(&l->down, y));
  }
  x = db_apply(&n->norm, x);
  return s->llama ? db_apply(&n->out, x) : db_matmul(x, db_transpose(n->words.weight->tensor, 0, 1));
}
#endif
