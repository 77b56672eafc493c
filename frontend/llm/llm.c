/* Models in memory, and the programs that evaluate them: one for each number of tokens that are computed together. */
#include "llm.h"
#include "../../hcq/error.h"
#include "../files/files.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 4096, SIZES = 3, MOST_TOKENS = 256, PADDED = 8 };
/* Numbers of tokens that are computed together. The last tokens of a prompt are padded if that is worth it: if they are
 * more than one in PADDED of the size. */
static const int64_t program_sizes[SIZES] = {MOST_TOKENS, 32, 1};

struct llm {
  struct mapping file;
  struct gguf g;
  struct model m;
  struct tokenizer *tokenizer;
  char no_tokenizer[200];
  db_tensor *sizes; /* u8: a part of it has a symbolic number as its size */
  struct program {
    struct llm *l;
    int64_t size, last, token;
    db_jit *jit;
  } program[SIZES];
  db_tensor **all; /* of a step: the caches, and the logits */
  int64_t length;
};

/* ---- programs ---- */

/* The numbers that differ between calls: the position, the place of the last token among those of the program, and the
 * token, of a program for one. Then a replay copies nothing to the device. */
struct variables {
  int64_t at, last, token;
};
static struct variables variables_of(const struct program *p) {
  const struct llm *l = p->l;
  return (struct variables){
      .at = db_bind("at", 0, l->m.room - p->size, l->length),
      .last = p->size > 1 ? db_bind("last", 0, p->size - 1, p->last) : 0,
      .token = p->size > 1 ? 0 : db_bind("token", 0, l->m.n.vocabulary - 1, p->token),
  };
}

/* Runs once and is captured by the second call. Inputs: two tensors whose sizes are variables, and the tokens. */
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct program *p = ctx;
  struct llm *l = p->l;
  unsigned caches = 2 * (unsigned)l->m.n.layers;
  struct variables v = variables_of(p);
  db_tensor *x = p->size > 1 ? weight_rows(&l->m.embedding, in[2])
                             : weight_range(&l->m.embedding, v.token, db_size_add(v.token, 1));
  *out = l->all[caches] = model_logits(&l->m, x, v.at, v.last, l->all);
  return db_realize_all(l->all, caches + 1); /* together, because the caches are written in place */
}

static int run(struct program *p, const int32_t *tokens, int64_t n, float *logits) {
  struct llm *l = p->l;
  int32_t padded[MOST_TOKENS] = {0};
  DB_SCOPED;
  memcpy(padded, tokens, (size_t)n * sizeof *tokens);
  p->last = n - 1, p->token = *tokens;
  bool one = p->size == 1;
  struct variables v = variables_of(p);
  db_tensor *in[3] = {db_shrink(l->sizes, 0, v.at), db_shrink(l->sizes, 0, one ? v.token : v.last)}, *out;
  if (!one) in[2] = db_from(padded, DB_I32, l->m.dev, p->size);
  if (!p->jit && !(p->jit = db_jit_new(step, p, one ? 2 : 3, 1))) return -ENOMEM;
  int err = db_jit_call(p->jit, in, &out);
  if (!err && logits) err = db_read(out, logits, (size_t)l->m.n.vocabulary * sizeof *logits);
  if (!err) l->length += n;
  return err;
}

/* The program for the next tokens of n; *count is how many. */
static struct program *program_for(struct llm *l, size_t n, int64_t *count) {
  for (unsigned i = 0; i < SIZES; i++) {
    int64_t size = program_sizes[i];
    if (l->length + size > l->m.room) continue;
    if ((int64_t)n >= size || (int64_t)n * PADDED > size) {
      *count = (int64_t)n < size ? (int64_t)n : size;
      return &l->program[i];
    }
  }
  return NULL;
}

int llm_eval(struct llm *l, const int32_t *tokens, size_t n, float *logits) {
  for (size_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= l->m.n.vocabulary)
      return db_fail(-EINVAL, "token %d is not below %lld", tokens[i], (long long)l->m.n.vocabulary);
  if (!n) return db_fail(-EINVAL, "no tokens");
  if (n > (size_t)(l->m.room - l->length))
    return db_fail(-ENOSPC, "the context of %lld tokens is full", (long long)l->m.room);
  int err = 0;
  for (int64_t count = 0; n && !err; tokens += count, n -= (size_t)count) {
    struct program *p = program_for(l, n, &count);
    err = run(p, tokens, count, (int64_t)n == count ? logits : NULL);
  }
  return err;
}

/* ---- models ---- */

static int open_model(struct llm *l, db_device *dev, int64_t context, llm_progress *progress, void *ctx) {
  char why[400];
  struct numbers n;
  int err = gguf_parse(l->file.bytes, l->file.size, &l->g, why, sizeof why);
  if (err) db_fail(err, "%s", why);
  if (!err) err = numbers_read(&n, &l->g);
  if (err) return err;
  if (!context) context = n.context < DEFAULT_CONTEXT ? n.context : DEFAULT_CONTEXT;
  if ((err = model_load(&l->m, &l->g, dev, context, progress, ctx))) return err;
  if (tokenizer_new(&l->tokenizer, &l->g)) snprintf(l->no_tokenizer, sizeof l->no_tokenizer, "%s", db_error());
  l->all = calloc(2 * (size_t)n.layers + 1, sizeof *l->all);
  if (!l->all) return db_fail(-ENOMEM, "out of memory");
  DB_SCOPED;
  l->sizes = db_retain(db_contiguous(db_zeros(DB_U8, dev, context + l->m.n.vocabulary + MOST_TOKENS)));
  for (unsigned i = 0; i < SIZES; i++) l->program[i] = (struct program){.l = l, .size = program_sizes[i]};
  return db_realize(l->sizes);
}

int llm_open(struct llm **out, const char *path, db_device *dev, int64_t context, llm_progress *progress, void *ctx) {
  struct llm *l = *out = calloc(1, sizeof *l);
  if (!l) return db_fail(-ENOMEM, "%s: out of memory", path);
  int err = map_file(path, &l->file); /* its message names the file */
  if (!err && (err = open_model(l, dev, context, progress, ctx))) db_fail(err, "%s: %s", path, db_error());
  if (!err) return 0;
  llm_close(l);
  *out = NULL;
  return err;
}

void llm_close(struct llm *l) {
  if (!l) return;
  for (unsigned i = 0; i < SIZES; i++) db_jit_free(l->program[i].jit);
  db_release(l->sizes);
  free(l->all);
  tokenizer_free(l->tokenizer);
  model_free(&l->m);
  gguf_free(&l->g);
  unmap_file(&l->file);
  free(l);
}

const struct tokenizer *llm_tokenizer(const struct llm *l, const char **why) {
  *why = l->no_tokenizer;
  return l->tokenizer;
}
const struct gguf *llm_file(const struct llm *l) { return &l->g; }
int64_t llm_vocabulary(const struct llm *l) { return l->m.n.vocabulary; }
int64_t llm_context(const struct llm *l) { return l->m.room; }
int64_t llm_length(const struct llm *l) { return l->length; }
void llm_truncate(struct llm *l, int64_t length) {
  if (length < l->length) l->length = length > 0 ? length : 0;
}
