/* Mixed precision: layers multiply in a half type, and the optimizer scales the losses of f16. */
#include "optim.h"
#include "params.h"
#include <errno.h>

/* Makes the factor of o, or drops it if scale is 0. */
static int set_scale(db_optim *o, double scale, int64_t interval) {
  db_release(o->scale), o->scale = NULL;
  db_release(o->good), o->good = NULL;
  if (scale == 0 || !o->n) return 0;
  db_device *dev = db_device_of(o->params[0].tensor);
  int err = 0;
  db_scope_begin();
  optim_replace_tensor(&o->scale, db_from(((float[]){(float)scale}), DB_F32, dev));
  optim_replace_tensor(&o->good, db_from(((float[]){0}), DB_F32, dev));
  const char *why = db_poison(o->scale) ? db_poison(o->scale) : db_poison(o->good);
  if (why) err = db_fail(-ENOMEM, "mixed_precision: %s", why);
  db_scope_end();
  o->interval = interval;
  return err;
}

int db_mixed_precision_with(db_params *p, db_optim *o, db_dtype dtype, struct db_mixed options) {
  if (!p) return db_fail_argument("mixed_precision", "tree of parameters");
  if (dtype != DB_F32 && dtype != DB_F16 && dtype != DB_BF16)
    return db_fail(-EINVAL,
                   "mixed_precision: not supported: products in %s; use f16 or bf16, or f32 to end mixed precision",
                   db_dtype_name(dtype));
  double scale = options.scale != 0 ? options.scale : 65536;
  if (!(scale > 0 && scale <= 0x1p120) || options.interval < 0)
    return db_fail(-EINVAL, "mixed_precision: a scale of %g with an interval of %lld steps", scale,
                   (long long)options.interval);
  int err = params_set_compute(p, dtype == DB_F32 ? DB_NONE : dtype);
  return err || !o ? err : set_scale(o, dtype == DB_F16 ? scale : 0, options.interval ? options.interval : 2000);
}

int db_optim_loss_scale(const db_optim *o, double *scale) {
  if (!o || !scale) return db_fail_argument("optim_loss_scale", o ? "pointer for the factor" : "optimizer");
  *scale = 1;
  return o->scale ? db_item(o->scale, scale) : 0;
}
