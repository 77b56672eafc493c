/* Losses: the distance of a tensor from its target, by element or by class, then summed or averaged. Narrow floats are
 * computed in f32, which is also the type of their losses. */
#include "functions.h"
#include "ops.h"
#include <math.h>
#include <string.h>

static unsigned all_axes(struct expr x) { return (1u << x.rank) - 1; }

/* The sum of all elements of x, as a scalar. */
static struct expr sum_all(struct expr x) {
  unsigned mask = all_axes(x);
  return expr_drop_axes(expr_reduce(OP_ADD, x, mask), mask);
}

/* ---- losses by element ---- */

struct pair {
  struct expr x, y, positive; /* positive.u is NULL for a weight of 1 */
  const struct db_loss *o;
};

static struct expr loss_mse(const struct pair *p) {
  struct expr d = sub(p->x, p->y);
  return mul(d, d);
}
static struct expr loss_l1(const struct pair *p) { return math_abs(sub(p->x, p->y)); }
/* d^2 / 2 if |d| < delta, otherwise delta * (|d| - delta / 2) */
static struct expr loss_huber(const struct pair *p) {
  double delta = p->o->delta != 0 ? p->o->delta : 1;
  struct expr d = sub(p->x, p->y), size = math_abs(d);
  struct expr far = mul_num(binary_num(OP_SUB, size, delta / 2), delta);
  return expr_where(less(size, expr_num(d, delta)), mul_num(mul(d, d), 0.5), far);
}
static struct expr loss_smooth_l1(const struct pair *p) {
  double delta = p->o->delta != 0 ? p->o->delta : 1;
  return mul_num(loss_huber(p), 1 / delta);
}
/* Clamps logarithms to at least -100, so that a certain and wrong prediction has a finite loss and gradient. */
static struct expr clamped_log(struct expr x) { return binary_num(OP_MAX, math_log(x), -100); }
static struct expr loss_bce(const struct pair *p) {
  struct expr one = expr_num(p->x, 1);
  struct expr yes = mul(p->y, clamped_log(p->x)), no = mul(sub(one, p->y), clamped_log(sub(one, p->x)));
  return math_neg(add(yes, no));
}
/* (1 - y) x + w log(1 + exp(-x)), with w = 1 + (positive - 1) y. */
static struct expr loss_bce_logits(const struct pair *p) {
  struct expr one = expr_num(p->x, 1), tail = math_softplus(math_neg(p->x));
  struct expr linear = mul(sub(one, p->y), p->x);
  if (p->positive.u) tail = mul(tail, add(mul(binary_num(OP_SUB, p->positive, 1), p->y), one));
  return add(linear, tail);
}
static struct expr loss_kl(const struct pair *p) {
  if (p->o->log_target) return mul(math_exp(p->y), sub(p->y, p->x));
  struct expr positive = less(expr_num(p->y, 0), p->y), safe = expr_where(positive, p->y, expr_num(p->y, 1));
  return sub(mul(p->y, math_log(safe)), mul(p->y, p->x));
}

static const struct {
  const char *name;
  struct expr (*build)(const struct pair *p);
} rows[] = {[DB_LOSS_MSE] = {"mse_loss", loss_mse},
            [DB_LOSS_L1] = {"l1_loss", loss_l1},
            [DB_LOSS_HUBER] = {"huber_loss", loss_huber},
            [DB_LOSS_SMOOTH_L1] = {"smooth_l1_loss", loss_smooth_l1},
            [DB_LOSS_BCE] = {"binary_cross_entropy", loss_bce},
            [DB_LOSS_BCE_LOGITS] = {"binary_cross_entropy_with_logits", loss_bce_logits},
            [DB_LOSS_KL] = {"kl_div", loss_kl}};

static bool reduction_known(struct call *c, enum db_reduction r) {
  if (!r) return true;
  if (r >= DB_REDUCTION_MEAN && r <= DB_REDUCTION_NONE) return true;
  return call_fail(c, "unknown reduction %d", (int)r), false;
}

static struct expr reduce_loss(struct expr loss, enum db_reduction r) {
  double n = (double)dims_numel(loss.rank, loss.dim), batch = loss.rank ? (double)loss.dim[0] : 1;
  if (r == DB_REDUCTION_NONE) return loss;
  struct expr sum = sum_all(loss);
  return r == DB_REDUCTION_SUM ? sum : mul_num(sum, 1 / (r == DB_REDUCTION_BATCH_MEAN ? batch : n));
}

static bool same_shape(const db_tensor *a, const db_tensor *b) {
  return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

static bool weight_fits(struct call *c, const char *what, const db_tensor *w, const db_tensor *x) {
  if (!w || (w->rank <= x->rank && !memcmp(w->dim, x->dim + x->rank - w->rank, w->rank * sizeof *x->dim))) return true;
  return call_fail(c, "the %s is %s; it must have the last axes of %s", what, SHAPE(*w), SHAPE(*x)), false;
}

db_tensor *db_loss_at(DB_AT, enum db_loss_kind kind, db_tensor *x, db_tensor *target, struct db_loss o) {
  struct call c;
  db_tensor *in[4] = {x, target, o.weight ? o.weight : o.positive, o.positive};
  bool known = (unsigned)kind < sizeof rows / sizeof *rows;
  unsigned nin = 2 + !!o.weight + !!o.positive;
  if (!call_begin(&c, known ? rows[kind].name : "loss", file, line, nin, in)) return c.result;
  if (!known) return call_fail(&c, "unknown loss %d", (int)kind);
  if (!reduction_known(&c, o.reduction)) return c.result;
  if (!dtype_is_float(x->dtype)) return call_fail(&c, "the input is %s; cast it to a float", dtype_info[x->dtype].name);
  if (!same_shape(x, target)) return call_fail(&c, "the input is %s, but the target is %s", SHAPE(*x), SHAPE(*target));
  if (!weight_fits(&c, "weight", o.weight, x) || !weight_fits(&c, "positive weight", o.positive, x)) return c.result;
  if (!(o.delta >= 0)) return call_fail(&c, "a delta of %g", o.delta);
  enum dtype t = dtype_is_narrow_float(x->dtype) ? DT_F32 : x->dtype;
  struct pair p = {.x = expr_cast(expr_of(x), t), .y = expr_cast(expr_of(target), t), .o = &o};
  if (o.positive) p.positive = expr_broadcast(expr_cast(expr_of(o.positive), t), x->rank, x->dim);
  struct expr loss = rows[kind].build(&p);
  if (o.weight) loss = mul(loss, expr_broadcast(expr_cast(expr_of(o.weight), t), x->rank, x->dim));
  return call_end(&c, reduce_loss(loss, o.reduction));
}

/* ---- losses by class ---- */

struct classes {
  struct expr logp;   /* log probability of every class */
  struct expr weight; /* weight of every class, in logp's shape; u is NULL for 1 */
  unsigned axis;
  int64_t n;
  const struct db_cross_entropy *o;
};

static struct expr add_classes(const struct classes *k, struct expr x) {
  return expr_drop_axes(expr_reduce(OP_ADD, x, 1u << k->axis), 1u << k->axis);
}

/* A target of indices: minus the log probability of the target's class; 0 for ignored targets, NaN for an index that is
 * not a class. */
static struct expr by_index(const struct classes *k, struct expr target, enum db_reduction reduction) {
  int64_t dim[MAX_RANK], ignored = k->o->ignore.n ? k->o->ignore.v[0] : -100;
  memcpy(dim, k->logp.dim, sizeof dim);
  dim[k->axis] = 1;
  if (dtype_info[target.dtype].size < 4)
    target = expr_cast(target, DT_I32); /* so that it can represent the number of classes */
  struct expr at = expr_reshape(target, k->logp.rank, dim), none = expr_num(k->logp, 0);
  struct expr low = less(at, expr_const(at.dtype, 0, 0)), high = less(at, expr_const(at.dtype, 0, k->n));
  struct expr good = expr_binary(OP_AND, expr_not(low), high);
  bool fits = number_fits(&(db_operand){.kind = DB_OPERAND_INT, .i = ignored}, target.dtype);
  struct expr counts = expr_full(expr_const(DT_BOOL, 0, 1), k->logp.rank, dim);
  if (fits) counts = expr_binary(OP_CMPNE, at, expr_const(at.dtype, 0, ignored));
  struct expr weight = expr_full(expr_num(k->logp, 1), k->logp.rank, dim);
  if (k->weight.u) weight = expr_gather(k->weight, k->axis, at);
  struct expr loss = math_neg(mul(expr_gather(k->logp, k->axis, at), weight));
  if (k->o->label_smoothing > 0) {
    struct expr smooth = k->weight.u ? mul(k->logp, k->weight) : k->logp;
    smooth = mul_num(expr_reduce(OP_ADD, smooth, 1u << k->axis), -k->o->label_smoothing / (double)k->n);
    loss = add(mul_num(loss, 1 - k->o->label_smoothing), smooth);
  }
  loss = expr_where(counts, expr_where(good, loss, expr_num(loss, NAN)), none);
  weight = expr_where(counts, weight, none);
  loss = expr_drop_axes(loss, 1u << k->axis);
  return !reduction || reduction == DB_REDUCTION_MEAN ? expr_binary(OP_FDIV, sum_all(loss), sum_all(weight))
                                                      : reduce_loss(loss, reduction);
}

static struct expr by_probability(const struct classes *k, struct expr target, enum db_reduction reduction) {
  double smooth = k->o->label_smoothing;
  if (smooth > 0) target = add_num(mul_num(target, 1 - smooth), smooth / (double)k->n);
  struct expr loss = mul(k->logp, target);
  return reduce_loss(math_neg(add_classes(k, k->weight.u ? mul(loss, k->weight) : loss)), reduction);
}

static bool target_fits(struct call *c, const db_tensor *x, const db_tensor *target, unsigned axis) {
  bool fits = target->rank + 1 == x->rank;
  for (unsigned i = 0; fits && i < target->rank; i++) fits = target->dim[i] == x->dim[i + (i >= axis)];
  if (fits) return true;
  return call_fail(c, "the input is %s and the target %s, but the classes are axis %u", SHAPE(*x), SHAPE(*target),
                   axis),
         false;
}

db_tensor *db_cross_entropy_at(DB_AT, bool logits, db_tensor *x, db_tensor *target, struct db_cross_entropy o) {
  struct call c;
  db_tensor *in[3] = {x, target, o.weight};
  if (!call_begin(&c, logits ? "cross_entropy" : "nll_loss", file, line, o.weight ? 3 : 2, in)) return c.result;
  if (!reduction_known(&c, o.reduction) || !list_ok(&c, o.ignore)) return c.result;
  if (!x->rank) return call_fail(&c, "the input is %s; it must have an axis of classes", SHAPE(*x));
  if (!dtype_is_float(x->dtype)) return call_fail(&c, "the input is %s; cast it to a float", dtype_info[x->dtype].name);
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    return call_fail(&c, "the label smoothing is %g; it must be from 0 to 1", o.label_smoothing);
  if (o.ignore.n > 1) return call_fail(&c, "not supported: %u targets to ignore", o.ignore.n);
  enum dtype t = dtype_is_narrow_float(x->dtype) ? DT_F32 : x->dtype;
  struct classes k = {.axis = x->rank > 1, .o = &o};
  k.n = x->dim[k.axis];
  if (o.weight && (o.weight->rank != 1 || o.weight->dim[0] != k.n))
    return call_fail(&c, "the weight is %s for %lld classes", SHAPE(*o.weight), (long long)k.n);
  bool index = dtype_is_int(target->dtype);
  if (!index && (!dtype_is_float(target->dtype) || !logits))
    return call_fail(&c, "the target is %s; %s", dtype_info[target->dtype].name,
                     logits ? "indices of classes or probabilities are needed" : "indices of classes are needed");
  if (!index && !same_shape(x, target) && target->rank + 1 == x->rank)
    return call_fail(&c,
                     "the input is %s and the target %s of %s; probabilities must have the shape of the input, and "
                     "indices of classes must be integers: cast the target",
                     SHAPE(*x), SHAPE(*target), dtype_info[target->dtype].name);
  if (!index && !same_shape(x, target))
    return call_fail(&c, "the input is %s, but the target is %s", SHAPE(*x), SHAPE(*target));
  if (!index && o.ignore.n) return call_fail(&c, "an index to ignore does not apply to probabilities");
  if (index && !target_fits(&c, x, target, k.axis)) return c.result;
  k.logp = expr_cast(expr_of(x), t);
  if (logits) k.logp = math_log_softmax(k.logp, 1u << k.axis);
  if (o.weight) {
    int64_t ones[MAX_RANK];
    for (unsigned i = 0; i < x->rank; i++) ones[i] = i == k.axis ? k.n : 1;
    k.weight = expr_expand(expr_reshape(expr_cast(expr_of(o.weight), t), x->rank, ones), x->dim);
  }
  struct expr r = index ? by_index(&k, expr_of(target), o.reduction)
                        : by_probability(&k, expr_cast(expr_of(target), t), o.reduction);
  return call_end(&c, r);
}
