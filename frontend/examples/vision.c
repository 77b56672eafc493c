/* Trains a residual network or a vision transformer on images that it draws, and evaluates it on others:
 *   vision resnet50|vit [--steps N] [--batch N] [--devices N] [--checkpoint FILE.safetensors] [--full]
 *
 * An image shows one of eight textures with random colors, scale, position and noise. With --checkpoint, the training
 * is saved from time to time, and a later run continues it. Without --full the networks are small, of the same kinds,
 * for images of 32 pixels; with it they are ResNet-50 and ViT-B/16 for images of 224 pixels. */
#include "frontend/nets/nets.h"
#include "training.h"
#include <math.h>

enum { CLASSES = 8, HELD_OUT = 256, EVERY = 50 };

struct net {
  bool vit;
  int64_t size;
  struct net_resnet resnet;
  struct net_vit transformer;
};

/* ---- images ---- */

/* A random number from 0 to 1 (SplitMix64). */
static double draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* How much of the second color a point has. */
static double texture(int kind, double x, double y) {
  static const double pi = 3.141592653589793;
  switch (kind) {
  case 0: return sin(2 * pi * x) > 0;
  case 1: return sin(2 * pi * y) > 0;
  case 2: return sin(2 * pi * x) * sin(2 * pi * y) > 0;
  case 3: return sin(pi * (x + y)) > 0;
  case 4: return hypot(x - floor(x) - 0.5, y - floor(y) - 0.5) < 0.35;
  case 5: return sin(2 * pi * hypot(x, y)) > 0;
  case 6: return fabs(x - floor(x) - 0.5) + fabs(y - floor(y) - 0.5) < 0.3;
  default: return 0.5 + 0.5 * sin(pi * x);
  }
}

/* Draws image number `index` of a seed as [3, size, size] from 0 to 255. Returns its class. */
static int draw_image(uint64_t seed, int64_t index, int64_t size, unsigned char *image) {
  uint64_t state = seed << 40 ^ (uint64_t)index * 0x2545f4914f6cdd1d;
  double color[2][3], x0 = draw(&state) * 8, y0 = draw(&state) * 8, scale = 2 + 3 * draw(&state), noise;
  int kind = (int)(draw(&state) * CLASSES);
  for (int i = 0; i < 6; i++) color[i / 3][i % 3] = (i < 3 ? 0 : 130) + 110 * draw(&state);
  noise = 40 * draw(&state);
  for (int64_t i = 0; i < size * size; i++) {
    int64_t row = i / size;
    double y = (double)row / (double)size * scale + y0, x = (double)(i % size) / (double)size * scale + x0;
    double share = texture(kind, x, y);
    for (int c = 0; c < 3; c++) {
      double v = color[0][c] * (1 - share) + color[1][c] * share + noise * (draw(&state) - 0.5);
      image[c * size * size + i] = (unsigned char)fmin(fmax(v, 0), 255);
    }
  }
  return kind;
}

/* The images `first` to `end` of a seed, and their classes. */
static void draw_images(const struct training *t, uint64_t seed, int64_t first, int64_t end, db_tensor **x,
                        db_tensor **classes) {
  const struct net *n = t->net;
  int64_t each = 3 * n->size * n->size;
  unsigned char *image = allocate((size_t)((end - first) * each)), *kind = allocate((size_t)(end - first));
  for (int64_t i = first; i < end; i++)
    kind[i - first] = (unsigned char)draw_image(seed, i, n->size, image + (i - first) * each);
  *x = db_from(image, DB_U8, t->device[0], end - first, 3, n->size, n->size);
  *classes = db_from(kind, DB_U8, t->device[0], end - first);
  free(image);
  free(kind);
}
static void batch_of(const struct training *t, int64_t step, int64_t first, int64_t end, db_tensor **x,
                     db_tensor **classes) {
  draw_images(t, 1, step * t->batch + first, step * t->batch + end, x, classes);
}

/* ---- the network ---- */

static db_tensor *forward(struct net *n, db_tensor *pixels) { /* u8 [batch, 3, size, size] -> logits [batch, CLASSES] */
  db_tensor *x = db_contiguous(db_sub(db_div(pixels, 64.0), 2.0));
  return n->vit ? net_vit_apply(&n->transformer, x) : net_resnet_apply(&n->resnet, x);
}
static db_tensor *loss_of(void *net, db_tensor *pixels, db_tensor *classes) {
  return db_cross_entropy(forward(net, pixels), classes);
}
/* The number of images of a batch that are recognized. */
static int count_right(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_sum(db_eq(db_argmax(forward(ctx, in[0]), 1), in[1]));
  return 0;
}

static int evaluate(struct training *t) {
  db_jit *count = db_jit_new(count_right, t->net, 2, 1);
  int64_t right = 0, seen = 0;
  char text[64] = "";
  db_params_train(t->p, false);
  for (; seen + t->batch <= HELD_OUT || !seen; seen += t->batch) {
    DB_SCOPED;
    db_tensor *in[2], *sum;
    double v;
    draw_images(t, 2, seen, seen + t->batch, &in[0], &in[1]);
    for (int k = 0; k < 2; k++) in[k] = training_share(t, in[k]);
    if (db_jit_call(count, in, &sum) || db_item(sum, &v)) return failed();
    right += (int64_t)v;
  }
  snprintf(text, sizeof text, "%lld", (long long)right);
  db_jit_free(count);
  if (!t->rank)
    printf("%s of %lld held-out images recognized: %.1f %%\n", text, (long long)seen,
           100.0 * (double)right / (double)seen);
  return 0;
}

int main(int argc, char **argv) {
  static struct net net;
  struct training t = {.steps = 150, .batch = 32, .net = &net, .loss = loss_of};
  static const char usage[] = "vision resnet50|vit";
  int status = training_open(&t, argc, argv, usage);
  if (status) return status;
  net.vit = t.nwords == 1 && !strcmp(t.word[0], "vit");
  if (t.nwords != 1 || (!net.vit && strcmp(t.word[0], "resnet50") != 0)) {
    training_close(&t);
    return fprintf(stderr, "usage: %s\n", usage), 2;
  }
  net.size = t.full ? 224 : 32;
  if (net.vit)
    net_vit_new(&net.transformer, t.p, t.full ? net_vit_base : (struct net_vit_sizes){32, 4, 48, 3, 4, CLASSES});
  else
    net_resnet_new(&net.resnet, t.p, t.full ? net_resnet50 : (struct net_resnet_sizes){8, {1, 1, 1, 1}, CLASSES, true});
  status = training_begin(&t, 0.05);
  if (!status) status = training_run(&t, 2e-3, EVERY, batch_of);
  if (!status) status = evaluate(&t);
  training_close(&t);
  return status;
}
