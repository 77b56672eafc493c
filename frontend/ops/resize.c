/* Interpolation: resizes the last axes of a tensor. Coordinates are computed in f32, for f64 in f64. */
#include "functions.h"
#include "window.h"
#include <math.h>
#include <string.h>

struct resize {
  int64_t in, out;
  double scale; /* number of input elements per output element */
  enum db_interpolation mode;
  bool align_corners;
};

/* Repeats each element along axis a. */
static struct expr repeat_each(struct expr x, unsigned a, int64_t times) {
  int64_t dim[MAX_RANK], joined[MAX_RANK];
  memcpy(joined, x.dim, sizeof joined);
  joined[a] *= times;
  memcpy(dim, x.dim, sizeof dim);
  memmove(dim + a + 2, dim + a + 1, (x.rank - a - 1) * sizeof *dim);
  dim[a + 1] = 1;
  struct expr e = expr_reshape(x, x.rank + 1, dim);
  dim[a + 1] = times;
  return expr_reshape(expr_expand(e, dim), x.rank, joined);
}

/* For each output along axis a: its coordinate in the input, with a fraction. Has the shape of the output. */
static struct expr input_coordinate(const struct resize *r, struct expr x, unsigned a, enum dtype t) {
  int64_t dim[MAX_RANK];
  memcpy(dim, x.dim, sizeof dim);
  dim[a] = r->out;
  struct expr o = expr_count_along(t, a, x.rank, dim);
  if (r->mode == DB_INTERPOLATE_NEAREST) return binary_num(OP_MUL, o, r->scale);
  if (r->mode == DB_INTERPOLATE_NEAREST_EXACT) return binary_num(OP_MUL, binary_num(OP_ADD, o, 0.5), r->scale);
  if (r->align_corners) return binary_num(OP_MUL, o, r->out > 1 ? (double)(r->in - 1) / (double)(r->out - 1) : 0);
  return binary_num(OP_MAX, binary_num(OP_SUB, binary_num(OP_MUL, binary_num(OP_ADD, o, 0.5), r->scale), 0.5), 0);
}

/* min(at, last) for nonnegative indices */
static struct expr clamp(struct expr at, int64_t last) {
  struct expr most = expr_const(at.dtype, 0, last);
  return expr_where(expr_binary(OP_CMPLT, most, at), most, at);
}

static struct expr resize_axis(const struct resize *r, struct expr x, unsigned a) {
  enum dtype t = x.dtype == DT_F64 ? DT_F64 : DT_F32;
  bool nearest = r->mode != DB_INTERPOLATE_LINEAR;
  if (r->in == r->out) return x;
  if (nearest && r->out % r->in == 0 && r->scale == (double)r->in / (double)r->out)
    return repeat_each(x, a, r->out / r->in);
  struct expr at = input_coordinate(r, x, a, t), low = clamp(expr_cast(at, DT_I32), r->in - 1);
  if (nearest) return expr_gather(x, a, low);
  struct expr high = clamp(binary_num(OP_ADD, low, 1), r->in - 1);
  struct expr weight = expr_cast(expr_binary(OP_SUB, at, expr_cast(low, t)), x.dtype);
  struct expr p = expr_gather(x, a, low), q = expr_gather(x, a, high);
  return expr_binary(OP_ADD, expr_binary(OP_MUL, p, expr_binary(OP_SUB, expr_num(weight, 1), weight)),
                     expr_binary(OP_MUL, q, weight));
}

db_tensor *db_interpolate_at(DB_AT, db_tensor *x, db_list sizes, struct db_interpolate o) {
  struct call c;
  struct window w = {0};
  if (!call_begin(&c, "interpolate", file, line, 1, &x)) return c.result;
  if (x->rank < 3 || x->rank > 2 + WINDOW_AXES)
    return call_fail(&c, "the input is %s; it must have 3 to %d axes, batch and channels first", SHAPE(*x),
                     2 + WINDOW_AXES);
  if (!window_input(&c, &w, x, x->rank - 2)) return c.result;
  if (!o.mode) o.mode = DB_INTERPOLATE_NEAREST;
  if (o.mode < DB_INTERPOLATE_NEAREST || o.mode > DB_INTERPOLATE_LINEAR)
    return call_fail(&c, "unknown interpolation %d", (int)o.mode);
  if (o.align_corners && o.mode != DB_INTERPOLATE_LINEAR)
    return call_fail(&c, "align_corners is possible for linear interpolation only");
  if (o.mode == DB_INTERPOLATE_LINEAR && !dtype_is_float(x->dtype))
    return call_fail(&c, "linear interpolation of %s; cast it to a float", dtype_info[x->dtype].name);
  if (!sizes.n == !(o.scale[0] != 0)) return call_fail(&c, "give either sizes or a scale");
  if (sizes.n && !window_list(&c, "size", sizes, w.n, 1, 1, w.out)) return c.result;
  struct expr e = expr_of(x);
  if (o.mode == DB_INTERPOLATE_LINEAR && e.dtype != DT_F64) e = expr_cast(e, DT_F32);
  for (unsigned i = 0; i < w.n; i++) {
    double factor = o.scale[i] != 0 ? o.scale[i] : o.scale[0];
    if (!sizes.n) {
      double out = floor((double)w.in[i] * factor);
      if (!(factor > 0) || !(out >= 1 && out <= INT32_MAX))
        return call_fail(&c, "the scale %g gives no elements, or too many, for a size of %lld", factor,
                         (long long)w.in[i]);
      w.out[i] = (int64_t)out;
    }
    struct resize r = {w.in[i], w.out[i], sizes.n ? (double)w.in[i] / (double)w.out[i] : 1 / factor, o.mode,
                       o.align_corners};
    e = resize_axis(&r, e, 2 + i);
  }
  return call_end(&c, expr_cast(e, x->dtype));
}
