/* Trains a convolutional network to read digits:
 *   mnist [--devices N] [DIGITS | TRAIN-IMAGES TRAIN-LABELS TEST-IMAGES TEST-LABELS]
 *
 * With four files in MNIST's IDX format (unpacked) it trains on those. Otherwise it draws digits (12800): strokes with
 * random rotation, scale, slant, shift, width and noise. The held-out digits are drawn with other random numbers and
 * are used only for the final count.
 *
 * On several devices (DEV, DEV:1, ...) each device has all the weights and processes its share of every batch. Under
 * mpirun -n K every process trains on its share, with the mean of all gradients. */
#include "training.h"
#include <math.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, BATCH = 64, EPOCHS = 2, HELD_OUT = 2048 };

struct digits {
  unsigned n;
  unsigned char *image, *label; /* [n, 28 * 28], [n] */
};

/* ---- drawing: each digit is a list of points on a grid of 4 x 6, with a letter per column and a digit per row;
 * strokes connect them ---- */
static const char *const strokes[10] = {
    "b0d1d5b6a5a1b0",   "a1c0c6",           "a1b0d1d2a6d6", "a0d0b2d3d5b6a5",           "c6c0a4d4",
    "d0a0a2c2d3d5c6a6", "c0a3a5b6d5d4b3a4", "a0d0b6",       "b3a2a1b0d1d2a4a5b6d5d4b3", "d2b3a2a1b0d1d3c6"};

static double between(double a, double b) { return a + (b - a) * rand() / RAND_MAX; }

static void draw(const char *stroke, unsigned char *image) {
  double turn = between(-0.25, 0.25), slant = between(-0.25, 0.25), width = between(0.9, 1.6), size = between(2.6, 3.6);
  double shift_x = between(-2.5, 2.5), shift_y = between(-2.5, 2.5), px[16], py[16], noise = between(0, 40);
  unsigned n = (unsigned)strlen(stroke) / 2;
  for (unsigned i = 0; i < n; i++) {
    double x = stroke[2 * i] - 'a' - 1.5 + between(-0.2, 0.2), y = stroke[2 * i + 1] - '3' + between(-0.2, 0.2);
    x += slant * y;
    px[i] = 13.5 + shift_x + size * (x * cos(turn) - y * sin(turn));
    py[i] = 13.5 + shift_y + size * (x * sin(turn) + y * cos(turn));
  }
  for (int at = 0; at < PIXELS; at++) {
    double least = 1e9, x = at % SIDE, y = (at - x) / SIDE;
    for (unsigned i = 0; i + 1 < n; i++) { /* the distance to the nearest stroke */
      double dx = px[i + 1] - px[i], dy = py[i + 1] - py[i],
             t = ((x - px[i]) * dx + (y - py[i]) * dy) / (dx * dx + dy * dy + 1e-9);
      t = fmin(fmax(t, 0), 1);
      least = fmin(least, hypot(x - px[i] - t * dx, y - py[i] - t * dy));
    }
    double ink = 255 * fmin(fmax(width + 0.5 - least, 0), 1) + between(-noise, noise);
    image[at] = (unsigned char)fmin(fmax(ink, 0), 255);
  }
}

static struct digits draw_digits(unsigned n, unsigned seed) {
  struct digits d = {n, malloc((size_t)n * PIXELS + 1), malloc(n + 1)};
  srand(seed);
  for (unsigned i = 0; i < n; i++) draw(strokes[d.label[i] = rand() % 10], d.image + (size_t)i * PIXELS);
  return d;
}

/* ---- files: a magic number, sizes as big-endian numbers of 4 bytes, then bytes ---- */
static unsigned char *read_idx(const char *path, size_t each, unsigned *n) {
  unsigned char head[16], *data = NULL;
  size_t begin = each > 1 ? sizeof head : 8;
  FILE *f = fopen(path, "rb");
  if (f && fread(head, 1, begin, f) == begin && head[2] == 8) {
    unsigned count = (unsigned)head[4] << 24 | (unsigned)head[5] << 16 | (unsigned)head[6] << 8 | head[7];
    data = !*n || *n == count ? malloc((size_t)count * each) : NULL; /* the labels must match the images */
    if (!data || fread(data, each, *n = count, f) != count) *n = 0;
  }
  if (!data || !*n) fprintf(stderr, "%s: not an IDX file of bytes\n", path), exit(1);
  return fclose(f), data;
}

/* ---- the network ---- */
struct net {
  db_convolution near, far;
  db_linear out;
};
static db_tensor *forward(struct net *n, db_tensor *pixels) { /* u8 [batch, 28 * 28] -> logits [batch, 10] */
  db_tensor *x = db_reshape(db_contiguous(db_div(pixels, 255.0)), -1, 1, SIDE, SIDE);
  x = db_relu(db_apply(&n->far, db_relu(db_apply(&n->near, x))));
  return db_apply(&n->out, db_reshape(x, db_dim(x, 0), -1));
}

struct reader {
  struct training t; /* its options are not used */
  struct net net;
  db_tensor *images, *labels; /* u8 [n, 28 * 28], [n] */
};
/* One step on randomly drawn digits. It is captured, so that everything happens on the device. */
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct reader *r = ctx;
  const struct training *t = &r->t;
  int first = BATCH * t->rank / t->size, end = BATCH * (t->rank + 1) / t->size;
  db_tensor *drawn = db_shrink(db_randint(0, db_dim(r->images, 0), DB_I32, t->all, BATCH), first, end);
  drawn = training_share(t, drawn);
  db_tensor *logits = forward(&r->net, db_index_select(r->images, 0, drawn));
  db_tensor *loss = db_cross_entropy(logits, db_index_select(r->labels, 0, drawn));
  loss = db_mul(loss, (double)(end - first) * t->size / BATCH);
  out[0] = db_world_all_reduce(DB_REDUCE_MEAN, loss);
  int err = db_backward(loss);
  if (!err) err = db_world_mean_grads(t->weights, t->nweights);
  if (!err) err = db_optim_step(t->optim, out[0]);
  db_optim_zero_grad(t->optim);
  return err;
}
/* The number of digits of a batch that are read correctly. */
static int count_right(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_sum(db_eq(db_argmax(forward(ctx, in[0]), 1), in[1]));
  return 0;
}

int main(int argc, char **argv) {
  struct digits train = {0}, test = {0};
  struct reader r = {0};
  struct training *t = &r.t;
  unsigned devices = 1;
  if (argc > 2 && !strcmp(argv[1], "--devices")) {
    devices = (unsigned)atoi(argv[2]);
    if (devices < 1 || devices > DB_GROUP_MAX)
      return fprintf(stderr, "--devices %s: expected 1 to %d\n", argv[2], DB_GROUP_MAX), 1;
    argc -= 2, argv += 2;
  }
  if (training_world(t) || training_devices(t, devices)) return 1;
  if (argc == 5) {
    train.image = read_idx(argv[1], PIXELS, &train.n), train.label = read_idx(argv[2], 1, &train.n);
    test.image = read_idx(argv[3], PIXELS, &test.n), test.label = read_idx(argv[4], 1, &test.n);
  } else {
    train = draw_digits(argc == 2 ? (unsigned)atoi(argv[1]) : 12800, 1), test = draw_digits(HELD_OUT, 2);
  }
  unsigned right = 0, seen = 0;
  db_params *p = t->p;
  r.net = (struct net){db_conv2d_new(p, "near", 1, 8, DB_LIST(5), true, .stride = DB_LIST(2), .padding = DB_LIST(2)),
                       db_conv2d_new(p, "far", 8, 16, DB_LIST(3), true, .stride = DB_LIST(2), .padding = DB_LIST(1)),
                       db_linear_new(p, "out", 16 * 7 * 7, 10, true)};
  t->weights = db_params_trained(p, &t->nweights);
  t->optim = db_adam(t->weights, t->nweights, .lr = 2e-3);
  db_jit *train_step = db_jit_new(step, &r, 0, 1), *read = db_jit_new(count_right, &r.net, 2, 1);
  {
    DB_SCOPED;
    r.images = db_from(train.image, DB_U8, t->all, train.n, PIXELS);
    r.labels = db_from(train.label, DB_U8, t->all, train.n);
    unsigned steps = EPOCHS * (train.n / BATCH);
    for (unsigned i = 0; i < steps; i++) {
      DB_SCOPED;
      if (i == steps / 4 * 3 && db_optim_set_lr(t->optim, 5e-4)) return failed();
      db_tensor *loss;
      double v = 0;
      if (db_jit_call(train_step, NULL, &loss)) return failed();
      bool prints = i % 50 == 0 || i == steps - 1;
      if (prints && db_item(loss, &v)) return failed();
      if (prints && !t->rank) printf("step %4u: loss %.3f\n", i, v);
    }
    db_tensor *images = db_from(test.image, DB_U8, t->all, test.n, PIXELS);
    db_tensor *labels = db_from(test.label, DB_U8, t->all, test.n);
    for (unsigned at = 0; at + BATCH <= test.n; at += BATCH, seen += BATCH) {
      DB_SCOPED;
      double same = 0;
      db_tensor *some[] = {db_shrink(images, at, at + BATCH, 0, PIXELS), db_shrink(labels, at, at + BATCH)}, *sum;
      for (unsigned k = 0; k < 2; k++) some[k] = training_share(t, some[k]);
      if (db_jit_call(read, some, &sum) || db_item(sum, &same)) return failed();
      right += (unsigned)same;
    }
  }
  if (!t->rank) printf("%u of %u held-out digits read: %.1f %%\n", right, seen, 100.0 * right / seen);
  db_jit_free(train_step);
  db_jit_free(read);
  training_close(t);
  free(train.image);
  free(train.label);
  free(test.image);
  free(test.label);
  return 0;
}
