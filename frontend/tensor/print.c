/* Tensors as text. */
#include "call.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDGE = 3, MOST = 1000 }; /* tensors with more elements show only the edges of axes */

const char *db_shape_text(const db_tensor *t) {
  static _Thread_local char text[sizeof(struct shape_text) + 16];
  if (db_poison(t)) return "poisoned";
  pthread_mutex_lock(&rt.lock);
  snprintf(text, sizeof text, "%s %s", dtype_info[t->dtype].name, SHAPE(*t));
  pthread_mutex_unlock(&rt.lock);
  return text;
}

int db_read_as(db_tensor *t, db_dtype dtype, void *dst, size_t bytes) {
  if (db_poison(t)) return db_fail(-EINVAL, "read_as: %s", db_poison(t));
  DB_SCOPED;
  db_tensor *x = db_cast(t, dtype);
  return db_poison(x) ? db_fail(-EINVAL, "%s", db_poison(x)) : db_read(x, dst, bytes);
}

struct printer {
  FILE *f;
  const db_tensor *t;
  const void *elements; /* i64, u64 or f64 */
  int width;
  bool edges;
};

/* Writes an element to text and returns its length. */
static int element_text(const struct printer *p, int64_t i, char text[32]) {
  char cls = dtype_info[p->t->dtype].cls;
  if (cls == 'f') return snprintf(text, 32, p->t->dtype == DT_F64 ? "%.8g" : "%.5g", ((const double *)p->elements)[i]);
  if (cls == 'b') return snprintf(text, 32, "%s", ((const int64_t *)p->elements)[i] ? "true" : "false");
  if (cls == 'u') return snprintf(text, 32, "%llu", (unsigned long long)((const uint64_t *)p->elements)[i]);
  return snprintf(text, 32, "%lld", (long long)((const int64_t *)p->elements)[i]);
}

/* Visits the elements that are shown along an axis: all, or those at the edges. */
static int64_t next_shown(const struct printer *p, int64_t i, int64_t n) {
  return p->edges && n > 2 * EDGE && i == EDGE - 1 ? n - EDGE : i + 1;
}

/* Prints the part of the tensor that begins at element `first`, from an axis on, or finds the width of its elements. */
static void print_axis(struct printer *p, unsigned axis, int64_t first, bool measure) {
  char text[32];
  if (axis == p->t->rank) {
    int n = element_text(p, first, text);
    if (measure)
      p->width = n > p->width ? n : p->width;
    else
      fprintf(p->f, "%*s", p->width, text);
    return;
  }
  int64_t n = db_dim(p->t, (int)axis), step = 1;
  bool last = axis + 1 == p->t->rank;
  for (unsigned i = axis + 1; i < p->t->rank; i++) step *= db_dim(p->t, (int)i);
  if (!measure) fputc('[', p->f);
  for (int64_t i = 0, next; i < n; i = next) {
    print_axis(p, axis + 1, first + i * step, measure);
    next = next_shown(p, i, n);
    if (measure || next >= n) continue;
    fputs(last ? ", " : ",\n", p->f);
    if (!last) fprintf(p->f, "%*s", (int)axis + 1, "");
    if (next == i + 1) continue;
    fputs(last ? "..., " : "...,\n", p->f);
    if (!last) fprintf(p->f, "%*s", (int)axis + 1, "");
  }
  if (!measure) fputc(']', p->f);
}

char *db_text(db_tensor *t) {
  if (db_poison(t)) return db_fail_null(-EINVAL, "text: %s", db_poison(t));
  size_t n = (size_t)db_numel(t), size = 0;
  char cls = dtype_info[t->dtype].cls, *text = NULL;
  void *elements = malloc(n * sizeof(double) + 1);
  if (!elements) return db_fail_null(-ENOMEM, "text: out of memory for %zu elements", n);
  db_dtype wide = cls == 'f' ? DB_F64 : cls == 'u' ? DB_U64 : DB_I64;
  FILE *f = db_read_as(t, wide, elements, n * sizeof(double)) ? NULL : open_memstream(&text, &size);
  if (f) {
    struct printer p = {f, t, elements, 0, n > MOST};
    if (n) print_axis(&p, 0, 0, true);
    print_axis(&p, 0, 0, false);
    bool good = !ferror(f) && (n || t->rank);
    if (fclose(f) || !good) free(text), text = NULL, db_fail(-ENOMEM, "text: out of memory");
  }
  free(elements);
  return text;
}

int db_print(db_tensor *t) {
  char *text = db_text(t);
  if (!text) return -EINVAL;
  printf("%s on %s\n%s\n", db_shape_text(t), db_device_name(db_device_of(t)), text);
  free(text);
  return 0;
}
