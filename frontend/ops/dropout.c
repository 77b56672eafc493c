/* Dropout: sets random elements to zero and scales the others so that the mean is preserved. */
#include "../tensor/call.h"

db_tensor *db_dropout_at(DB_AT, db_tensor *x, double p, bool training) {
  struct call c;
  db_tensor *kept = NULL;
  if (!call_begin(&c, "dropout", file, line, 1, &x)) return c.result;
  if (!(p >= 0 && p <= 1)) return call_fail(&c, "the probability is %g; it must be from 0 to 1", p);
  if (!dtype_is_float(x->dtype)) return call_fail(&c, "the input is %s; cast it to a float", dtype_info[x->dtype].name);
  db_tensor *same = call_end(&c, expr_of(x));
  if (!training || p == 0) return same;
  {
    DB_SCOPED;
    db_device *dev = db_device_of(x);
    db_tensor *at = db_random_at(file, line, DB_RANDOM_UNIFORM, 0, 1, DB_F32, dev, (db_list){x->rank, x->dim});
    db_operand scaled = db_operand_tensor(db_mul(x, p < 1 ? 1 / (1 - p) : 0));
    kept = db_keep(db_where_at(file, line, db_ge(at, p), scaled, db_operand_int(0)));
  }
  return kept;
}
