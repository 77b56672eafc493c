/* Selection by a mask. The size of the result depends on values, so these operations realize and read the mask when
 * called. */
#include "ops.h"
#include <errno.h>
#include <stdlib.h>

/* Computes x and returns the row-major positions of its nonzero elements, *count of them. The caller frees the array.
 * Returns NULL after db_fail. */
static int64_t *places(db_tensor *x, int64_t *count) {
  int64_t n = db_numel(x), *at = NULL;
  bool *data = malloc((size_t)n + 1);
  *count = 0;
  db_scope_begin();
  db_tensor *is_set = db_cast(x, DB_BOOL);
  if (!data)
    db_fail(-ENOMEM, "out of memory for %lld elements", (long long)n);
  else if (!db_read(is_set, data, (size_t)n) && (at = malloc((size_t)n * sizeof *at + 1)))
    for (int64_t i = 0; i < n; i++)
      if (data[i]) at[(*count)++] = i;
  db_scope_end();
  free(data);
  return at;
}

db_tensor *db_nonzero_at(DB_AT, db_tensor *x) {
  struct call c;
  if (!call_begin(&c, "nonzero", file, line, 1, &x)) return c.result;
  call_leave(&c);
  int64_t count, *at = places(x, &count), rank = x->rank;
  int64_t *coordinates = at ? malloc((size_t)(count * rank) * sizeof *at + 1) : NULL;
  db_tensor *r;
  if (!coordinates) {
    r = call_begin(&c, "nonzero", file, line, 0, NULL) ? call_fail(&c, "the input is %s: %s", SHAPE(*x), db_error())
                                                       : c.result;
  } else {
    for (int64_t i = 0; i < count; i++)
      for (int64_t a = rank, left = at[i]; a-- > 0; left /= x->dim[a]) coordinates[i * rank + a] = left % x->dim[a];
    r = db_from_at(file, line, coordinates, DB_I64, db_device_of(x), DB_LIST(count, rank));
  }
  free(coordinates);
  free(at);
  return r;
}

db_tensor *db_masked_select_at(DB_AT, db_tensor *x, db_tensor *mask) {
  struct call c;
  unsigned rank = 0;
  int64_t dim[MAX_RANK], count;
  if (!call_begin(&c, "masked_select", file, line, 2, (db_tensor *[]){x, mask})) return c.result;
  if (mask->dtype != DT_BOOL) return call_fail(&c, "the mask is %s, not bool", dtype_info[mask->dtype].name);
  if (!broadcast_shape(x, &rank, dim) || !broadcast_shape(mask, &rank, dim)) {
    struct shape_text have = shape_text(x->rank, x->dim);
    return call_fail(&c, "shapes %s and %s do not broadcast", have.s, SHAPE(*mask));
  }
  call_leave(&c);
  db_scope_begin();
  db_list shape = {rank, dim};
  int64_t *at = places(db_expand_at(file, line, mask, shape), &count);
  db_tensor *r;
  if (at)
    r = db_take_at(file, line, db_expand_at(file, line, x, shape),
                   db_from_at(file, line, at, DB_I64, db_device_of(x), DB_LIST(count)));
  else
    r = call_begin(&c, "masked_select", file, line, 0, NULL)
            ? call_fail(&c, "the input is %s: %s", SHAPE(*x), db_error())
            : c.result;
  db_keep(r);
  db_scope_end();
  free(at);
  return r;
}
