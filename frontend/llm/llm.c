/* Models in memory, and the programs that evaluate them: one for each number of tokens of one text, and one for each
 * number of texts with one token each. */
#include "llm.h"
#include "../../hcq/error.h"
#include "../files/files.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 4096, SIZES = 4, NUMBERS = 3, PROGRAMS = SIZES - 1 + LLM_TEXTS };
/* Numbers of tokens of a text that are computed together. The last tokens of a prompt are padded if there are `least`:
 * fewer take less time in smaller parts. */
static const struct {
  int64_t size, least;
} program_sizes[SIZES] = {{LLM_PART, LLM_PART - LLM_SHORT_PART + 1}, {LLM_SHORT_PART, 33}, {32, 5}, {1, 1}};

struct llm {
  struct mapping file;
  struct gguf g;
  struct model m;
  struct tokenizer *tokenizer;
  char no_tokenizer[200];
  db_tensor *sizes; /* u8: a part of it has a symbolic number as its size */
  struct program {
    struct llm *l;
    int64_t size;   /* tokens of each text */
    unsigned texts; /* more than one only if size is 1 */
    struct llm_next next[LLM_TEXTS];
    int64_t last;
    db_jit *jit;
  } program[PROGRAMS]; /* the last ones are of size 1, for 1 to LLM_TEXTS texts */
  db_tensor **all;     /* of a step: the caches, and the logits */
  int64_t length[LLM_TEXTS];
};

/* ---- programs ---- */

/* The numbers that differ between calls, of each text: the position; the text; and the token, of programs of size 1, or
 * the place of the last token among those of the program. Then a replay copies nothing to the device but the tokens of
 * other programs. */
struct variables {
  int64_t number[NUMBERS][LLM_TEXTS];
};
enum { AT, TEXT, TOKEN };
static struct variables variables_of(const struct program *p) {
  const struct llm *l = p->l;
  struct variables v;
  for (unsigned i = 0; i < p->texts; i++) {
    const struct llm_next *next = &p->next[i];
    bool one = p->size == 1;
    const struct variable {
      const char *name;
      int64_t most, value;
    } all[NUMBERS] = {
        [AT] = {"at", l->m.room - p->size, l->length[next->text]},
        [TEXT] = {"text", l->m.texts - 1, next->text},
        [TOKEN] = {one ? "token" : "last", one ? l->m.n.vocabulary - 1 : p->size - 1, one ? next->token : p->last},
    };
    for (unsigned k = 0; k < NUMBERS; k++) {
      char name[16];
      snprintf(name, sizeof name, "%s%u", all[k].name, i);
      v.number[k][i] = all[k].most ? db_bind(name, 0, all[k].most, all[k].value) : 0;
    }
  }
  return v;
}

/* The number of inputs that give the variables, and their tensors. */
static unsigned inputs_of(const struct program *p, db_tensor **in) {
  struct variables v = variables_of(p);
  unsigned n = 0;
  for (unsigned i = 0; i < p->texts; i++)
    for (unsigned k = 0; k < NUMBERS; k++) in[n++] = db_shrink(p->l->sizes, 0, v.number[k][i]);
  return n;
}

/* Runs once and is captured by the second call. Inputs: a tensor for each variable, whose size it is, and the tokens of
 * a program of another size than 1. */
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct program *p = ctx;
  struct llm *l = p->l;
  unsigned caches = 2 * (unsigned)l->m.n.layers;
  struct variables v = variables_of(p);
  struct span span[LLM_TEXTS] = {0};
  db_tensor *x[LLM_TEXTS] = {0};
  for (unsigned i = 0; i < p->texts; i++) {
    int64_t token = v.number[TOKEN][i];
    span[i] = (struct span){v.number[TEXT][i], v.number[AT][i]};
    x[i] = p->size > 1 ? weight_rows(&l->m.embedding, in[NUMBERS])
                       : weight_range(&l->m.embedding, token, db_size_add(token, 1));
  }
  db_tensor *rows = p->texts > 1 ? db_contiguous(db_cat_n(x, p->texts, 0)) : *x;
  int64_t last = p->size > 1 ? v.number[TOKEN][0] : 0;
  *out = l->all[caches] = model_logits(&l->m, rows, span, p->texts, last, l->all);
  return db_realize_all(l->all, caches + 1); /* together, because the caches are written in place */
}

/* Appends n tokens to each text of a program. tokens may be NULL for a program of size 1. */
static int run(struct program *p, const int32_t *tokens, int64_t n, float *logits) {
  struct llm *l = p->l;
  int32_t padded[LLM_PART] = {0};
  DB_SCOPED;
  db_tensor *in[NUMBERS * LLM_TEXTS + 1], *out;
  p->last = n - 1;
  unsigned inputs = inputs_of(p, in);
  if (p->size > 1 && tokens) {
    memcpy(padded, tokens, (size_t)n * sizeof *tokens);
    in[inputs++] = db_from(padded, DB_I32, l->m.dev, p->size);
  }
  if (!p->jit && !(p->jit = db_jit_new(step, p, inputs, 1))) return -ENOMEM;
  int err = db_jit_call(p->jit, in, &out);
  if (!err && logits) err = db_read(out, logits, p->texts * (size_t)l->m.n.vocabulary * sizeof *logits);
  for (unsigned i = 0; i < p->texts && !err; i++) l->length[p->next[i].text] += n;
  return err;
}

/* The program for the next of n tokens of a text; *count is how many it appends. */
static struct program *program_for(struct llm *l, unsigned text, size_t n, int64_t *count) {
  for (unsigned i = 0; i < SIZES; i++) {
    int64_t size = program_sizes[i].size;
    if (l->length[text] + size > l->m.room || (int64_t)n < program_sizes[i].least) continue;
    *count = (int64_t)n < size ? (int64_t)n : size;
    return &l->program[i];
  }
  return NULL;
}

/* Checks that n tokens can be appended to a text. */
static int check_room(const struct llm *l, unsigned text, const int32_t *tokens, size_t n) {
  if (text >= l->m.texts) return db_fail(-EINVAL, "text %u is not below %lld", text, (long long)l->m.texts);
  for (size_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= l->m.n.vocabulary)
      return db_fail(-EINVAL, "token %d is not below %lld", tokens[i], (long long)l->m.n.vocabulary);
  if (!n) return db_fail(-EINVAL, "no tokens");
  if (n > (size_t)(l->m.room - l->length[text]))
    return db_fail(-ENOSPC, "the context of %lld tokens is full", (long long)l->m.room);
  return 0;
}

int llm_eval(struct llm *l, unsigned text, const int32_t *tokens, size_t n, float *logits) {
  int err = check_room(l, text, tokens, n);
  for (int64_t count = 0; n && !err; tokens += count, n -= (size_t)count) {
    struct program *p = program_for(l, text, n, &count);
    p->next[0] = (struct llm_next){text, *tokens};
    err = run(p, tokens, count, (int64_t)n == count ? logits : NULL);
  }
  return err;
}

int llm_eval_next(struct llm *l, const struct llm_next *next, unsigned n, float *logits) {
  if (!n || n > l->m.texts) return db_fail(-EINVAL, "%u texts, but 1 to %lld are possible", n, (long long)l->m.texts);
  for (unsigned i = 0; i < n; i++) {
    int err = check_room(l, next[i].text, &next[i].token, 1);
    if (err) return err;
    for (unsigned k = 0; k < i; k++)
      if (next[k].text == next[i].text) return db_fail(-EINVAL, "text %u has two tokens", next[i].text);
  }
  struct program *p = &l->program[SIZES - 1 + n - 1];
  memcpy(p->next, next, n * sizeof *next);
  return run(p, NULL, 1, logits);
}

/* ---- models ---- */

static int open_model(struct llm *l, db_device *dev, unsigned texts, int64_t context, llm_progress *progress,
                      void *ctx) {
  char why[400];
  struct numbers n;
  if (!texts || texts > LLM_TEXTS) return db_fail(-EINVAL, "%u texts, but 1 to %d are possible", texts, LLM_TEXTS);
  int err = gguf_parse(l->file.bytes, l->file.size, &l->g, why, sizeof why);
  if (err) db_fail(err, "%s", why);
  if (!err) err = numbers_read(&n, &l->g);
  if (err) return err;
  if (!context) context = n.context < DEFAULT_CONTEXT ? n.context : DEFAULT_CONTEXT;
  if ((err = model_load(&l->m, &l->g, dev, texts, context, progress, ctx))) return err;
  if (tokenizer_new(&l->tokenizer, &l->g)) snprintf(l->no_tokenizer, sizeof l->no_tokenizer, "%s", db_error());
  l->all = calloc(2 * (size_t)n.layers + 1, sizeof *l->all);
  if (!l->all) return db_fail(-ENOMEM, "out of memory");
  DB_SCOPED;
  l->sizes = db_retain(db_contiguous(db_zeros(DB_U8, dev, context + l->m.n.vocabulary + LLM_PART)));
  for (unsigned i = 0; i < PROGRAMS; i++) {
    bool prompt = i < SIZES - 1;
    l->program[i] = (struct program){l, prompt ? program_sizes[i].size : 1, prompt ? 1 : i - SIZES + 2};
  }
  return db_realize(l->sizes);
}

int llm_open(struct llm **out, const char *path, db_device *dev, unsigned texts, int64_t context,
             llm_progress *progress, void *ctx) {
  struct llm *l = *out = calloc(1, sizeof *l);
  if (!l) return db_fail(-ENOMEM, "%s: out of memory", path);
  int err = map_file(path, &l->file); /* its message names the file */
  if (!err && (err = open_model(l, dev, texts, context, progress, ctx))) db_fail(err, "%s: %s", path, db_error());
  if (!err) return 0;
  llm_close(l);
  *out = NULL;
  return err;
}

void llm_close(struct llm *l) {
  if (!l) return;
  for (unsigned i = 0; i < PROGRAMS; i++) db_jit_free(l->program[i].jit);
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
int64_t llm_length(const struct llm *l, unsigned text) { return l->length[text]; }
void llm_truncate(struct llm *l, unsigned text, int64_t length) {
  if (length < l->length[text]) l->length[text] = length > 0 ? length : 0;
}
