/* Trains a language model like GPT-2 on a text, with byte pairs that it learns from the text, then writes text:
 *   gpt2 TEXT [VOCABULARY] [--steps N] [--batch N] [--devices N] [--checkpoint FILE.safetensors] [--full]
 *
 * The tokens are the 256 bytes and the most frequent pairs of tokens inside of words, as in Sennrich et al., 2016; the
 * same text gives the same tokens. With --checkpoint, the training is saved from time to time, and a later run
 * continues it. At most 16 MB of the text are read. With --full the layers have the sizes of GPT-2's (86 M parameters
 * with 512 tokens), otherwise the network is small. */
#include "frontend/nets/nets.h"
#include "training.h"
#include <ctype.h>
#include <math.h>

enum { BYTES = 256, MOST_TOKENS = 4096, MOST_TEXT = 1 << 24, WRITTEN = 120, EVERY = 100 };

struct tokens {
  int64_t n, vocabulary;
  uint16_t *token;
  bool *begins;                  /* this token begins a word: it is not merged with the one before */
  uint16_t pair[MOST_TOKENS][2]; /* of the tokens from BYTES on */
};
struct writer {
  struct tokens text;
  struct net_lm net;
};

/* ---- byte pairs ---- */

static int class_of(unsigned char c) { return isalpha(c) || c >= 128 ? 1 : isdigit(c) ? 2 : isspace(c) ? 3 : 4; }

/* A word is a space, if there is one, and the letters, digits or other characters after it. */
static void split_words(struct tokens *t, const unsigned char *text) {
  for (int64_t i = 0; i < t->n; i++) {
    bool after_space = i && text[i - 1] == ' ' && (i < 2 || !isspace(text[i - 2]));
    t->token[i] = text[i];
    t->begins[i] = !i || (class_of(text[i]) != class_of(text[i - 1]) && !(after_space && text[i] != '\n'));
  }
}

/* Stores the most frequent pair, left << 16 | right; the first one of equals. Returns false if no pair occurs twice. */
static bool most_frequent(const struct tokens *t, uint32_t *count, uint32_t *best) {
  uint32_t most = 1;
  memset(count, 0, (size_t)(t->vocabulary * t->vocabulary) * sizeof *count);
  for (int64_t i = 1; i < t->n; i++) {
    if (t->begins[i]) continue;
    uint32_t n = ++count[t->token[i - 1] * t->vocabulary + t->token[i]];
    if (n > most) most = n, *best = (uint32_t)t->token[i - 1] << 16 | t->token[i];
  }
  return most > 1;
}

/* Replaces a pair by a new token. */
static void merge(struct tokens *t, uint32_t pair, uint16_t token) {
  int64_t n = 0;
  for (int64_t i = 0; i < t->n; i++, n++) {
    t->begins[n] = t->begins[i], t->token[n] = t->token[i];
    if (i + 1 == t->n || t->begins[i + 1] || ((uint32_t)t->token[i] << 16 | t->token[i + 1]) != pair) continue;
    t->token[n] = token, i++;
  }
  t->n = n;
}

static void learn_pairs(struct tokens *t, int64_t vocabulary) {
  uint32_t *count = allocate((size_t)(vocabulary * vocabulary) * sizeof *count), pair = 0;
  for (t->vocabulary = vocabulary, vocabulary = BYTES; vocabulary < t->vocabulary; vocabulary++) {
    if (!most_frequent(t, count, &pair)) break;
    t->pair[vocabulary][0] = (uint16_t)(pair >> 16), t->pair[vocabulary][1] = (uint16_t)pair;
    merge(t, pair, (uint16_t)vocabulary);
  }
  t->vocabulary = vocabulary;
  free(count);
}

static void print_token(const struct tokens *t, int token) {
  if (token < BYTES) {
    putchar(token);
    return;
  }
  print_token(t, t->pair[token][0]);
  print_token(t, t->pair[token][1]);
}

/* ---- the network ---- */

static db_tensor *loss_of(void *net, db_tensor *text, db_tensor *next) {
  struct writer *w = net;
  db_tensor *logits = db_reshape(net_lm_apply(&w->net, text, NULL, 0), -1, w->text.vocabulary);
  return db_cross_entropy(logits, db_reshape(next, -1));
}

/* Random pieces of the text, the same for a step in every run. */
static void batch_of(const struct training *t, int64_t step, int64_t first, int64_t end, db_tensor **x,
                     db_tensor **next) {
  const struct writer *w = t->net;
  int64_t length = w->net.sizes.context, n = (end - first) * length;
  uint16_t *in = allocate((size_t)n * sizeof *in), *out = allocate((size_t)n * sizeof *out);
  for (int64_t i = 0; i < n; i++) {
    uint64_t row = (uint64_t)(step * t->batch + first + i / length) * 0x9e3779b97f4a7c15;
    int64_t at = (int64_t)((row ^ row >> 29) % (uint64_t)(w->text.n - length)) + i % length;
    in[i] = w->text.token[at], out[i] = w->text.token[at + 1];
  }
  *x = db_from(in, DB_U16, t->device[0], end - first, length);
  *next = db_from(out, DB_U16, t->device[0], end - first, length);
  free(in);
  free(out);
}

/* Samples a token with a temperature of 0.8. */
static int choose(const float *logits, int64_t n) {
  double most = -INFINITY, sum = 0, at;
  for (int64_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(((double)logits[i] - most) / 0.8);
  at = sum * rand() / RAND_MAX;
  for (int64_t i = 0; i < n; i++)
    if ((at -= exp(((double)logits[i] - most) / 0.8)) <= 0) return (int)i;
  return ' ';
}

static int write_on(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct writer *w = ctx;
  int64_t length = w->net.sizes.context;
  out[0] = db_shrink(net_lm_apply(&w->net, in[0], NULL, 0), 0, 1, length - 1, length, 0, w->text.vocabulary);
  return 0;
}

/* Continues the beginning of the text. */
static int write_text(struct training *t, struct writer *w) {
  int64_t length = w->net.sizes.context;
  uint16_t *window = allocate((size_t)length * sizeof *window);
  float *logits = allocate((size_t)w->text.vocabulary * sizeof *logits);
  db_jit *next = db_jit_new(write_on, w, 1, 1);
  int err = 0;
  memcpy(window, w->text.token, (size_t)length * sizeof *window);
  db_params_train(t->p, false);
  for (int i = 0; i < WRITTEN && !err; i++) {
    DB_SCOPED;
    db_tensor *x = db_from(window, DB_U16, t->all, 1, length), *y;
    err = db_jit_call(next, &x, &y) || db_read(y, logits, (size_t)w->text.vocabulary * sizeof *logits);
    memmove(window, window + 1, (size_t)(length - 1) * sizeof *window);
    window[length - 1] = (uint16_t)choose(logits, w->text.vocabulary);
    if (!err && !t->rank) print_token(&w->text, window[length - 1]);
  }
  if (!t->rank) putchar('\n');
  db_jit_free(next);
  free(window);
  free(logits);
  return err ? failed() : 0;
}

int main(int argc, char **argv) {
  static unsigned char bytes[MOST_TEXT];
  static struct writer w;
  struct training t = {.steps = 300, .batch = 16, .net = &w, .loss = loss_of};
  static const char usage[] = "gpt2 TEXT [VOCABULARY]";
  int status = training_open(&t, argc, argv, usage);
  if (status) return status;
  FILE *f = t.nwords ? fopen(t.word[0], "rb") : NULL;
  int64_t size = f ? (int64_t)fread(bytes, 1, sizeof bytes, f) : 0, most = t.nwords > 1 ? atoll(t.word[1]) : 512;
  struct net_lm_sizes sizes = {0, 64, 64, 2, 4, 4, 256, false};
  if (t.full) sizes = net_gpt2;
  if (f) fclose(f);
  if (!size || t.nwords > 2 || most < BYTES || most > MOST_TOKENS) {
    training_close(&t);
    return fprintf(stderr, "usage: %s, of %d to %d tokens\n", usage, BYTES, MOST_TOKENS), 2;
  }
  w.text.n = size;
  w.text.token = allocate((size_t)size * sizeof *w.text.token), w.text.begins = allocate((size_t)size);
  split_words(&w.text, bytes);
  learn_pairs(&w.text, most);
  sizes.vocabulary = w.text.vocabulary;
  if (!t.rank)
    printf("%lld bytes are %lld tokens, %.2f bytes each\n", (long long)size, (long long)w.text.n,
           (double)size / (double)w.text.n);
  if (w.text.n <= sizes.context + 1)
    status = (fprintf(stderr, "the text needs more than %lld tokens\n", (long long)sizes.context + 1), 2);
  else
    net_lm_new(&w.net, t.p, sizes);
  if (!status) status = training_begin(&t, 0.01);
  if (!status) status = training_run(&t, 3e-3, EVERY, batch_of);
  if (!status) status = write_text(&t, &w);
  training_close(&t);
  free(w.text.token);
  free(w.text.begins);
  return status;
}
