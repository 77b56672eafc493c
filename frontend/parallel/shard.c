/* Tensors on several devices: split along an axis or replicated. run/shard_values.c realizes them. */
#include "../ops/ops.h"
#include <string.h>

db_tensor *db_shard_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis) {
  struct call c;
  if (!call_begin_sized(&c, "shard", file, line, 1, &x)) return c.result;
  int a = axis == DB_REPLICATE ? SHARD_REPLICATED : axis_of(axis, x->rank);
  if (axis != DB_REPLICATE && a < 0) return call_fail(&c, "there is no axis %d in %s", axis, SHAPE(*x));
  if (a >= 0 && dim_is_symbolic(x->dim[a]))
    return call_fail(&c, "not supported: axis %d of %s has a symbolic size", axis, SHAPE(*x));
  int slot = slot_of_devices(devices, n);
  if (slot < 0) return call_fail(&c, "%s", db_error());
  c.slot = (unsigned)slot;
  c.holds_slot = true;
  struct expr e = expr_of(x);
  e.u = uop_new(rt.graph, OP_SHARD, e.dtype, 1, (union uop_arg){.i = a}, c.slot, &e.u, 1);
  return call_end(&c, e);
}

int db_reshard(db_tensor *t, db_device *const *devices, unsigned n, int axis) {
  int err = 0;
  {
    DB_SCOPED;
    db_tensor *now = db_shard(t, devices, n, axis);
    if (!(err = db_realize(now))) {
      pthread_mutex_lock(&rt.lock);
      value_retain(now->value);
      tensor_set_value(t, now->value);
      value_release(t->grad); /* the gradient of its old value */
      t->grad = NULL;
      pthread_mutex_unlock(&rt.lock);
    }
  }
  return err;
}

unsigned db_sharding(db_tensor *t, int *axis) {
  unsigned n = 0;
  int a = SHARD_REPLICATED;
  pthread_mutex_lock(&rt.lock);
  if (t && t->value && !value_sharding(t->value, &a, NULL)) n = value_count(t->value);
  pthread_mutex_unlock(&rt.lock);
  if (axis) *axis = a < 0 ? DB_REPLICATE : a;
  return n;
}

db_tensor *db_part_at(DB_AT, db_tensor *t, unsigned i) {
  struct call c;
  if (!call_begin_sized(&c, "part", file, line, 1, &t)) return c.result;
  unsigned n = value_count(t->value);
  if (i >= n) return call_fail(&c, "part %u does not exist: the tensor is on %u devices", i, n);
  if (!slot_group(t->value->slot)) return call_end(&c, expr_of(t));
  if (realize_values(&t->value, 1, false)) return call_fail(&c, "%s", db_error());
  const struct value *part = t->value->part[i];
  int64_t dim[MAX_RANK];
  memcpy(dim, t->dim, t->rank * sizeof *dim);
  int axis = (int)t->value->real->arg.i;
  if (axis >= 0) dim[axis] = part->real->shape->dim[axis]->arg.i;
  struct value *v = value_over(part->real, part->slot, NULL, 0);
  if (!v) return call_fail(&c, "out of memory");
  part->storage->refs++;
  value_becomes(v, part->real, part->storage);
  return call_end_value(&c, v, t->dtype, t->rank, dim);
}
