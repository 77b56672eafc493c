/* Positions: grids, rotary embeddings, and the choice of boxes that objects were found in. */
#include "operators.h"

/* Coordinates of a grid from -1 to 1, transformed by a matrix for each batch: [batch, sizes..., axes]. */
db_tensor *onnx_op_affine_grid(struct onnx_call *c) {
  db_tensor *theta = node_input(c, 0), *out[3] = {NULL, NULL, NULL};
  int64_t size[5];
  int n = node_read_ints(c, 1, size, 5), axes = n - 2;
  bool corners = node_int(c, "align_corners", 0);
  if (n < 0) return NULL;
  if (n < 4 || db_rank(theta) != 3 || db_dim(theta, 1) != axes || db_dim(theta, 2) != axes + 1)
    return node_unsupported(c, "a grid of %d sizes", n);
  db_dtype t = db_dtype_of(theta);
  for (int k = 0; k < axes; k++) {
    db_tensor *row = db_index(theta, DB_WHOLE, DB_PICK(k));
    int64_t dim[4] = {db_dim(theta, 0), 1, 1, 1};
    for (int j = 0; j <= axes; j++) { /* the first coordinate is that of the last axis */
      db_tensor *factor = db_reshape_at(DB_HERE, db_index(row, DB_WHOLE, DB_PICK(j)), SIZES(axes + 1, dim));
      if (j < axes) {
        int64_t length = size[n - 1 - j], ones[4] = {1, 1, 1, 1};
        double step = 2.0 / (double)(corners ? length - 1 : length);
        ones[axes - j] = length;
        db_tensor *at =
            db_add(db_mul(db_arange(0, (double)length, 1, DB_F64, c->dev), step), corners ? -1 : step / 2 - 1);
        factor = db_mul(factor, db_reshape_at(DB_HERE, db_cast(at, t), SIZES(axes + 1, ones)));
      }
      out[k] = out[k] ? db_add(out[k], factor) : factor;
    }
  }
  return db_stack_n(out, (unsigned)axes, -1);
}

/* Rotates pairs of elements of each head by angles that depend on the position: [batch, heads, length, width], or
 * [batch, length, heads * width]. */
db_tensor *onnx_op_rotary_embedding(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *cosine = node_input(c, 1), *sine = node_input(c, 2), *places = node_input(c, 3);
  bool flat = db_rank(x) == 3, interleaved = node_int(c, "interleaved", 0);
  int64_t heads = node_int(c, "num_heads", 0), dim[ONNX_RANK];
  if ((flat && heads < 1) || db_rank(x) < 3 || db_rank(x) > 4) return node_unsupported(c, "%u axes", db_rank(x));
  node_shape(x, dim);
  x = flat ? db_unflatten(x, 2, heads, -1) : db_transpose(x, 1, 2);
  int64_t width = db_dim(x, 3), turned = node_int(c, "rotary_embedding_dim", 0);
  if (!turned) turned = width;
  if (turned < 2 || turned % 2 || turned > width) return node_unsupported(c, "%lld elements", (long long)turned);
  if (places) cosine = db_index(cosine, DB_BY(places)), sine = db_index(sine, DB_BY(places));
  cosine = db_unsqueeze(cosine, 2), sine = db_unsqueeze(sine, 2);
  int64_t half = turned / 2, step = interleaved ? 2 : 1;
  db_tensor *a = db_index(x, DB_REST, DB_SLICE(0, interleaved ? turned : half, step));
  db_tensor *b = db_index(x, DB_REST, DB_SLICE(interleaved ? 1 : half, turned, step));
  db_tensor *re = db_sub(db_mul(cosine, a), db_mul(sine, b)), *im = db_add(db_mul(sine, a), db_mul(cosine, b));
  db_tensor *y = interleaved ? db_flatten(db_stack(-1, re, im), 3, 4) : db_cat(-1, re, im);
  if (turned < width) y = db_cat(-1, y, db_index(x, DB_REST, DB_SLICE(turned, width, 1)));
  return flat ? db_reshape_at(DB_HERE, y, SIZES(3, dim)) : db_transpose(y, 1, 2);
}

/* ---- NonMaxSuppression ---- */

struct box {
  double top, left, bottom, right, score;
  int64_t index;
};
static int by_score(const void *a, const void *b) {
  const struct box *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}
static struct box box_of(const double *v, bool center) {
  if (center) return (struct box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2, 0, 0};
  return (struct box){fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]), fmax(v[1], v[3]), 0, 0};
}
/* The intersection of two boxes as a part of their union. */
static double overlap(const struct box *a, const struct box *b) {
  double height = fmin(a->bottom, b->bottom) - fmax(a->top, b->top);
  double width = fmin(a->right, b->right) - fmax(a->left, b->left);
  if (height <= 0 || width <= 0) return 0;
  double both = (a->bottom - a->top) * (a->right - a->left) + (b->bottom - b->top) * (b->right - b->left);
  return height * width / (both - height * width);
}

struct limits {
  int64_t most;
  double overlap, score;
  bool has_score, center;
};
/* Moves the chosen boxes of one class to the front of `box`, which has space for n. Returns their number. */
static size_t choose(const struct limits *l, const double *v, const double *score, size_t n, struct box *box) {
  size_t kept = 0, candidates = 0;
  for (size_t i = 0; i < n; i++) {
    if (l->has_score && !(score[i] > l->score)) continue;
    box[candidates] = box_of(v + 4 * i, l->center);
    box[candidates].score = score[i], box[candidates++].index = (int64_t)i;
  }
  qsort(box, candidates, sizeof *box, by_score);
  for (size_t i = 0; i < candidates && (int64_t)kept < l->most; i++) {
    size_t k = 0;
    while (k < kept && overlap(&box[i], &box[k]) <= l->overlap) k++;
    if (k == kept) box[kept++] = box[i];
  }
  return kept;
}

db_tensor *onnx_op_non_max_suppression(struct onnx_call *c) {
  const db_tensor *boxes = c->in[0]->t, *scores = c->in[1]->t;
  struct limits l = {.has_score = node_has_input(c, 4), .center = node_int(c, "center_point_box", 0)};
  if (node_read_ints(c, 2, &l.most, 1) < 0 || node_read_numbers(c, 3, &l.overlap, 1) < 0 ||
      node_read_numbers(c, 4, &l.score, 1) < 0)
    return NULL;
  if (db_rank(boxes) != 3 || db_rank(scores) != 3 || db_dim(boxes, 2) != 4 || db_dim(boxes, 1) != db_dim(scores, 2) ||
      db_dim(boxes, 0) != db_dim(scores, 0))
    return node_unsupported(c, "boxes and scores of these shapes");
  size_t nv = 0, ns = 0, n = (size_t)db_dim(boxes, 1), found = 0;
  size_t rows = (size_t)(db_dim(scores, 0) * db_dim(scores, 1)), classes = (size_t)db_dim(scores, 1);
  double *v = node_read_all(c, 0, &nv), *s = v ? node_read_all(c, 1, &ns) : NULL;
  struct box *box = s ? calloc(n + 1, sizeof *box) : NULL;
  int64_t(*out)[3] = box ? calloc(ns + 1, sizeof *out) : NULL;
  for (size_t r = 0; out && r < rows; r++) {
    size_t kept = choose(&l, v + r / classes * n * 4, s + r * n, n, box);
    for (size_t i = 0; i < kept; i++, found++)
      out[found][0] = (int64_t)(r / classes), out[found][1] = (int64_t)(r % classes), out[found][2] = box[i].index;
  }
  db_tensor *chosen = out ? node_tensor(c, out, DB_I64, 2, (int64_t[]){(int64_t)found, 3}) : NULL;
  if (s && !out) db_fail(-ENOMEM, "out of memory");
  free(v), free(s), free(box), free(out);
  return chosen;
}
