/* Trains a small GPT on the bytes of a text, then generates text: gpt TEXT [STEPS]
 *
 * Each byte is a token. Every 50 steps it prints the loss, in nats per byte, of a batch from the first nine tenths of
 * the text, and of one from the last tenth, which is held out. */
#include "frontend/nn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 256, LENGTH = 64, WIDTH = 64, HEADS = 4, LAYERS = 2, BATCH = 16, WRITTEN = 300 };

struct gpt {
  db_embedding words, places;
  struct layer {
    db_norm before, between;
    db_multihead attention;
    db_linear up, down;
  } layer[LAYERS];
  db_norm norm;
  db_linear out;
};

static void gpt_new(struct gpt *g, db_params *p) {
  g->words = db_embedding_new(p, "words", WORDS, WIDTH);
  g->places = db_embedding_new(p, "places", LENGTH, WIDTH);
  for (int i = 0; i < LAYERS; i++) {
    db_params *at = db_params_at(p, "layer.%d", i);
    g->layer[i] =
        (struct layer){db_layer_norm_new(at, "before", WIDTH), db_layer_norm_new(at, "between", WIDTH),
                       db_multihead_new(at, "attention", WIDTH, HEADS), db_linear_new(at, "up", WIDTH, 4 * WIDTH, true),
                       db_linear_new(at, "down", 4 * WIDTH, WIDTH, true)};
    g->layer[i].attention.causal = true;
  }
  g->norm = db_layer_norm_new(p, "norm", WIDTH);
  g->out = db_linear_new(p, "out", WIDTH, WORDS, true);
}

static db_tensor *forward(struct gpt *g, db_tensor *text) { /* u8 [batch, length] -> logits [batch * length, 256] */
  db_tensor *x = db_add(db_apply(&g->words, text), db_apply(&g->places, db_arange(0, LENGTH, 1, DB_I32, NULL)));
  for (int i = 0; i < LAYERS; i++) {
    struct layer *l = &g->layer[i];
    x = db_add(x, db_apply(&l->attention, db_apply(&l->before, x)));
    x = db_add(x, db_apply(&l->down, db_relu(db_apply(&l->up, db_apply(&l->between, x)))));
  }
  return db_reshape(db_apply(&g->out, db_apply(&g->norm, x)), -1, WORDS);
}

/* The loss on random pieces of [begin, end) of the text: predicts each byte from those before it. */
static db_tensor *loss_of(struct gpt *g, const unsigned char *text, size_t begin, size_t end) {
  unsigned char in[BATCH][LENGTH], next[BATCH][LENGTH];
  for (int b = 0; b < BATCH; b++) {
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): main requires 20 * LENGTH bytes, so a tenth exceeds LENGTH
    size_t at = begin + (size_t)rand() % (end - begin - LENGTH);
    for (int i = 0; i < LENGTH; i++) in[b][i] = text[at + i], next[b][i] = text[at + i + 1];
  }
  db_tensor *y = forward(g, db_from(in, DB_U8, NULL, BATCH, LENGTH));
  return db_cross_entropy(y, db_from(next, DB_U8, NULL, BATCH * LENGTH));
}

/* Samples a byte with a temperature of 0.8. */
static int choose(const float *logits) {
  double most = -INFINITY, sum = 0, at;
  for (int i = 0; i < WORDS; i++) most = fmax(most, logits[i]);
  for (int i = 0; i < WORDS; i++) sum += exp((logits[i] - most) / 0.8);
  at = sum * rand() / RAND_MAX;
  for (int i = 0; i < WORDS; i++)
    if ((at -= exp((logits[i] - most) / 0.8)) <= 0) return i;
  return ' ';
}

static int write_on(struct gpt *g, const unsigned char *text) {
  unsigned char window[LENGTH];
  float logits[LENGTH][WORDS];
  for (int i = 0; i < LENGTH; i++) window[i] = text[i];
  for (int n = 0; n < WRITTEN; n++) {
    DB_SCOPED;
    db_tensor *y = forward(g, db_from(window, DB_U8, NULL, 1, LENGTH));
    if (db_read(y, logits, sizeof logits)) return -1;
    for (int i = 0; i + 1 < LENGTH; i++) window[i] = window[i + 1];
    putchar(window[LENGTH - 1] = (unsigned char)choose(logits[LENGTH - 1]));
  }
  putchar('\n');
  return 0;
}

int main(int argc, char **argv) {
  static unsigned char text[1 << 24];
  FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
  size_t size = f ? fread(text, 1, sizeof text, f) : 0, held = size - size / 10;
  if (f) fclose(f);
  int steps = argc > 2 ? atoi(argv[2]) : 500;
  if (size < 20 * LENGTH)
    return fprintf(stderr, "usage: gpt TEXT [STEPS], where TEXT is a file of at least %d bytes\n", 20 * LENGTH), 1;
  struct gpt g;
  unsigned n;
  db_params *p = db_params_new(NULL, 1);
  gpt_new(&g, p);
  db_tensor *const *weights = db_params_trained(p, &n);
  db_optim *adam = db_adamw(weights, n, .lr = 3e-3, .weight_decay = 0.01);
  printf("%lld parameters, %zu bytes\n", (long long)db_params_numel(p), size);
  for (int step = 0; step <= steps; step++) {
    DB_SCOPED;
    db_tensor *loss = loss_of(&g, text, 0, held);
    double v, w;
    db_optim_set_lr(adam, db_lr_cosine(3e-3, 3e-4, steps, step));
    if (db_train_step(p, adam, loss) || db_item(loss, &v)) return fprintf(stderr, "%s\n", db_error()), 1;
    if (step % 50 == 0 && db_item(loss_of(&g, text, held, size), &w)) return fprintf(stderr, "%s\n", db_error()), 1;
    if (step % 50 == 0) printf("step %4d: loss %.3f, held out %.3f\n", step, v, w), fflush(stdout);
  }
  if (write_on(&g, text)) return fprintf(stderr, "%s\n", db_error()), 1;
  db_optim_free(adam);
  db_params_free(p);
  return 0;
}
