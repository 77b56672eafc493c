/* Cases with the values that PyTorch computed (tests/data/nn/make.py): reading them, running them in batches on a device, comparing. */
#ifndef TESTS_FRONTEND_CASES_H
#define TESTS_FRONTEND_CASES_H
#include "support.h"
#include "../../graph/dtype.h"

enum { CASE_INPUTS = 6, CASE_KEYS = 16, CASE_BATCH = 16 };

struct case_tensor {
  db_dtype dtype;
  unsigned rank;
  int64_t dim[16], count;
  double *value;
};
struct nn_case {
  char *line, *op, *key[CASE_KEYS], *value[CASE_KEYS];
  struct case_tensor in[CASE_INPUTS], out, grad[CASE_INPUTS];
  unsigned number, nkeys, nin, ngrad;
  db_tensor *x[CASE_INPUTS], *y, *g[CASE_INPUTS];
  int64_t lists[CASE_KEYS][8];
  unsigned nlists;
};

/* ---- keys ---- */

static inline const char *case_key(const struct nn_case *c, const char *key) {
  for (unsigned i = 0; i < c->nkeys; i++)
    if (!strcmp(c->key[i], key)) return c->value[i];
  return NULL;
}
static inline double case_number(const struct nn_case *c, const char *key, double otherwise) {
  const char *v = case_key(c, key);
  return v ? atof(v) : otherwise;
}
static inline bool case_is(const struct nn_case *c, const char *op) { return !strcmp(c->op, op); }
/* The numbers of a key as a list that lives as long as the case; empty without the key. */
static inline db_list case_list(struct nn_case *c, const char *key) {
  const char *v = case_key(c, key);
  int64_t *to = c->lists[c->nlists++];
  db_list l = {0, to};
  while (v && *v) {
    char *end;
    to[l.n++] = strtoll(v, &end, 10);
    v = *end == ',' ? end + 1 : end;
  }
  return l;
}

/* ---- reading ---- */

static inline char *case_read_tensor(char *s, struct case_tensor *d) {
  size_t n = strcspn(s, "[");
  for (d->dtype = DB_BOOL; strncmp(db_dtype_name(d->dtype), s, n) || strlen(db_dtype_name(d->dtype)) != n; d->dtype++)
    if (!db_dtype_size(d->dtype)) fail_msg("no type %.*s", (int)n, s);
  d->count = 1;
  for (s += n + 1; *s != ']'; s += *s == ',') d->count *= d->dim[d->rank++] = strtoll(s, &s, 10);
  d->value = malloc((size_t)d->count * sizeof *d->value + 1);
  s++;
  for (int64_t i = 0; i < d->count; i++) d->value[i] = strtod(s, &s);
  while (*s == ' ' || *s == '\n') s++;
  return s;
}

static inline void case_read(struct nn_case *c, char *line, unsigned number) {
  *c = (struct nn_case){.line = line, .number = number};
  char *s = strstr(line, " : "), *save;
  assert_non_null(s);
  *s = 0;
  s += 3;
  c->op = strtok_r(line, " ", &save);
  for (char *word; (word = strtok_r(NULL, " ", &save)); c->nkeys++) {
    char *equals = strchr(word, '=');
    assert_true(equals && c->nkeys < CASE_KEYS);
    *equals = 0;
    c->key[c->nkeys] = word, c->value[c->nkeys] = equals + 1;
  }
  for (;; s += 2) {
    assert_true(c->nin < CASE_INPUTS);
    s = case_read_tensor(s, &c->in[c->nin++]);
    if (*s != ';') break;
  }
  assert_memory_equal(s, "-> ", 3);
  s = case_read_tensor(s + 3, &c->out);
  for (char sep = '~'; *s == sep; sep = ';') s = case_read_tensor(s + 2, &c->grad[c->ngrad++]);
}

static inline void case_free(struct nn_case *c) {
  for (unsigned i = 0; i < CASE_INPUTS; i++) free(c->in[i].value), free(c->grad[i].value);
  free(c->out.value);
  free(c->line);
}

/* ---- elements ---- */

static inline void *case_pack(const struct case_tensor *d) {
  size_t size = db_dtype_size(d->dtype);
  char *p = calloc((size_t)d->count + 1, size);
  for (int64_t i = 0; i < d->count; i++) {
    double v = d->value[i];
    float single = (float)v;
    int64_t integer = dtype_is_float((enum dtype)d->dtype) ? 0 : (int64_t)v;
    uint16_t half = d->dtype == DB_F16 ? f32_to_f16(single) : f32_to_bf16(single);
    const void *from = d->dtype == DB_F64                     ? (const void *)&v
                       : d->dtype == DB_F32                   ? (const void *)&single
                       : dtype_is_float((enum dtype)d->dtype) ? (const void *)&half
                                                              : (const void *)&integer;
    memcpy(p + (size_t)i * size, from, size);
  }
  return p;
}
static inline db_tensor *case_tensor(const struct case_tensor *d, db_device *dev) {
  void *data = case_pack(d);
  db_tensor *t = db_from_at(DB_HERE, data, d->dtype, dev, (db_list){d->rank, d->dim});
  free(data);
  return t;
}
static inline double case_element(db_dtype t, const void *data, int64_t i) {
  switch (t) {
  case DB_BOOL:
  case DB_U8: return ((const uint8_t *)data)[i];
  case DB_I32: return ((const int32_t *)data)[i];
  case DB_I64: return (double)((const int64_t *)data)[i];
  case DB_F16: return (double)f16_to_f32(((const uint16_t *)data)[i]);
  case DB_BF16: return (double)bf16_to_f32(((const uint16_t *)data)[i]);
  case DB_F32: return (double)((const float *)data)[i];
  case DB_F64: return ((const double *)data)[i];
  default: fail_msg("no elements of %s", db_dtype_name(t)); return 0;
  }
}

/* Whether y is what is wanted, up to tol; says where not. */
static inline bool case_check(db_tensor *y, const struct case_tensor *want, double tol, const char *where) {
  if (db_poison(y)) return print_error("%s: %s\n", where, db_poison(y)), false;
  bool same = db_dtype_of(y) == want->dtype && db_rank(y) == want->rank;
  for (unsigned i = 0; same && i < want->rank; i++) same = db_dim(y, (int)i) == want->dim[i];
  if (!same) {
    print_error("%s: %s of rank %u [", where, db_dtype_name(db_dtype_of(y)), db_rank(y));
    for (unsigned i = 0; i < db_rank(y); i++) print_error(" %lld", (long long)db_dim(y, (int)i));
    print_error(" ], %s of rank %u [", db_dtype_name(want->dtype), want->rank);
    for (unsigned i = 0; i < want->rank; i++) print_error(" %lld", (long long)want->dim[i]);
    return print_error(" ] is expected\n"), false;
  }
  size_t bytes = (size_t)want->count * db_dtype_size(want->dtype);
  void *got = malloc(bytes + 1);
  bool good = !db_read(y, got, bytes);
  if (!good) print_error("%s: %s\n", where, db_error());
  for (int64_t i = 0; good && i < want->count; i++) {
    double g = case_element(want->dtype, got, i), w = want->value[i];
    good = g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= tol * fmax(fabs(w), 1);
    if (!good) print_error("%s: element %lld is %.9g, PyTorch has %.9g\n", where, (long long)i, g, w);
  }
  free(got);
  return good;
}

/* ---- running ---- */

/* The derivatives of the result's elements, weighted as make.py says, with respect to the first operands of type f32. */
static inline void case_gradients(struct nn_case *c, db_device *dev) {
  int64_t n = c->out.count;
  float *weight = malloc((size_t)n * sizeof *weight + 1);
  db_tensor *x[CASE_INPUTS];
  unsigned k = 0;
  for (int64_t i = 0; i < n; i++) weight[i] = (float)(i * 7 % 11 - 5) / 4;
  db_tensor *w = db_from_at(DB_HERE, weight, DB_F32, dev, (db_list){c->out.rank, c->out.dim});
  for (unsigned i = 0; i < c->nin && k < c->ngrad; i++)
    if (c->in[i].dtype == DB_F32) x[k++] = c->x[i];
  assert_int_equal(k, c->ngrad);
  db_grad_all(c->y, w, x, k, c->g);
  free(weight);
}

typedef db_tensor *(*case_fn)(struct nn_case *c, db_tensor *const *in);

static inline unsigned case_run_batch(struct nn_case *batch, unsigned n, db_device *dev, const char *device,
                                      case_fn apply) {
  unsigned failed = 0;
  DB_SCOPE {
    db_tensor *all[CASE_BATCH * (CASE_INPUTS + 1)];
    unsigned count = 0;
    for (unsigned k = 0; k < n; k++) {
      struct nn_case *c = &batch[k];
      for (unsigned i = 0; i < c->nin; i++) c->x[i] = case_tensor(&c->in[i], dev);
      c->y = apply(c, c->x);
      if (db_poison(c->y)) continue;
      all[count++] = c->y;
      if (strcmp(device, "CPU") && c->number % 4) c->ngrad = 0; /* gradients of every fourth case will do there */
      if (c->ngrad) case_gradients(c, dev);
      for (unsigned i = 0; i < c->ngrad; i++)
        if (!db_poison(c->g[i])) all[count++] = c->g[i];
    }
    db_realize_all(all, count); /* a failure comes again, with its case, when the result is read */
    for (unsigned k = 0; k < n; k++) {
      char where[256];
      snprintf(where, sizeof where, "%s: line %u: %s", device, batch[k].number, batch[k].op);
      double tol = case_number(&batch[k], "tol", 0);
      failed += !case_check(batch[k].y, &batch[k].out, tol, where);
      for (unsigned i = 0; i < batch[k].ngrad && !db_poison(batch[k].y); i++) {
        snprintf(where, sizeof where, "%s: line %u: %s, gradient %u", device, batch[k].number, batch[k].op, i);
        failed += !case_check(batch[k].g[i], &batch[k].grad[i], 5 * tol, where);
      }
    }
  }
  for (unsigned k = 0; k < n; k++) case_free(&batch[k]);
  return failed;
}

/* Runs every case of a file of tests/data/nn on a device; CASE=number runs that line alone. */
static inline void run_cases(const char *device, const char *file, unsigned least, case_fn apply) {
  db_device *dev = open_device(device);
  FILE *f = fopen(file, "r");
  static struct nn_case batch[CASE_BATCH];
  const char *only = getenv("CASE");
  unsigned number = 0, failed = 0, n = 0;
  char *line = NULL;
  size_t capacity = 0;
  assert_non_null(f);
  while (getline(&line, &capacity, f) > 0) {
    if (only && ++number != (unsigned)atoi(only)) continue;
    case_read(&batch[n++], strdup(line), only ? number : ++number);
    if (n == CASE_BATCH) failed += case_run_batch(batch, n, dev, device, apply), n = 0;
  }
  failed += case_run_batch(batch, n, dev, device, apply);
  free(line);
  fclose(f);
  db_close(dev);
  assert_true(only || number >= least);
  if (failed) fail_msg("%u results of %u cases differ", failed, number);
}

#define CASE_TESTS(name, file, least, apply)                                                                           \
  static void name##_cpu(void **state) { run_cases("CPU", DATA_DIR "/nn/" file, least, apply); }                       \
  static void name##_emulated(void **state) { run_cases(EMULATED, DATA_DIR "/nn/" file, least, apply); }               \
  static void name##_nvidia(void **state) {                                                                            \
    if (!has_ptxas()) skip();                                                                                          \
    run_cases(EMULATED_NVIDIA, DATA_DIR "/nn/" file, least, apply);                                                    \
  }
#define CASE_UNIT_TESTS(name)                                                                                          \
  cmocka_unit_test(name##_cpu), cmocka_unit_test(name##_emulated), cmocka_unit_test(name##_nvidia)
#endif
