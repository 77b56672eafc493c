/* Every tensor operation on the CPU and on the emulated GPUs against the values that NumPy computed (tests/data/ops/make.py). */
#include "support.h"
#include "../../graph/dtype.h"

struct data {
  db_dtype dtype;
  unsigned rank;
  int64_t dim[16], count;
  double *value;
};
struct test_case {
  char op[24], tol[24], floor[24], axes[64], shape[64], pairs[64], axis[16], integer[24], number[24], to[8], value[24],
      keep[4];
  struct data in[3], out;
  unsigned nin;
};

/* ---- reading a line ---- */

static db_dtype dtype_named(const char *s, size_t n) {
  for (db_dtype t = DB_BOOL; t <= DB_F64; t++)
    if (strlen(db_dtype_name(t)) == n && !strncmp(db_dtype_name(t), s, n)) return t;
  fail_msg("no type %.*s", (int)n, s);
  return 0;
}

static char *read_tensor(char *s, struct data *d) {
  size_t n = strcspn(s, "[");
  d->dtype = dtype_named(s, n);
  d->rank = 0;
  d->count = 1;
  for (s += n + 1; *s != ']'; s += *s == ',') d->count *= d->dim[d->rank++] = strtoll(s, &s, 10);
  d->value = malloc((size_t)d->count * sizeof *d->value);
  s++;
  for (int64_t i = 0; i < d->count; i++) d->value[i] = strtod(s, &s);
  while (*s == ' ' || *s == '\n') s++;
  return s;
}

static void read_key(struct test_case *c, const char *word) {
  const struct {
    const char *name;
    char *to;
    size_t cap;
  } keys[] = {{"tol=", c->tol, sizeof c->tol},
              {"floor=", c->floor, sizeof c->floor},
              {"axes=", c->axes, sizeof c->axes},
              {"shape=", c->shape, sizeof c->shape},
              {"pairs=", c->pairs, sizeof c->pairs},
              {"axis=", c->axis, sizeof c->axis},
              {"int=", c->integer, sizeof c->integer},
              {"num=", c->number, sizeof c->number},
              {"to=", c->to, sizeof c->to},
              {"value=", c->value, sizeof c->value},
              {"keep=", c->keep, sizeof c->keep}};
  for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++) {
    size_t n = strlen(keys[i].name);
    if (strncmp(word, keys[i].name, n)) continue;
    snprintf(keys[i].to, keys[i].cap, "%s", word + n);
    return;
  }
  fail_msg("unknown key %s", word);
}

static void read_case(char *line, struct test_case *c) {
  memset(c, 0, sizeof *c);
  char *colon = strstr(line, " : ");
  assert_non_null(colon);
  *colon = 0;
  char *save, *word = strtok_r(line, " ", &save);
  snprintf(c->op, sizeof c->op, "%s", word);
  while ((word = strtok_r(NULL, " ", &save))) read_key(c, word);
  char *s = colon + 3;
  for (;;) {
    s = read_tensor(s, &c->in[c->nin++]);
    if (*s != ';') break;
    s += 2;
  }
  assert_memory_equal(s, "-> ", 3);
  read_tensor(s + 3, &c->out);
}

static db_list list_of(const char *text, int64_t *v) {
  db_list l = {0, v};
  while (*text) {
    char *end;
    v[l.n++] = strtoll(text, &end, 10);
    text = *end == ',' ? end + 1 : end;
  }
  return l;
}

/* ---- elements ---- */

static void *pack(const struct data *d) {
  size_t size = db_dtype_size(d->dtype);
  char *p = calloc((size_t)d->count, size);
  for (int64_t i = 0; i < d->count; i++) {
    double v = d->value[i];
    uint64_t bits = 0;
    uint16_t half = d->dtype == DB_F16 ? f32_to_f16((float)v) : f32_to_bf16((float)v);
    float single = (float)v;
    int64_t integer = d->dtype < DB_F16 ? (int64_t)v : 0;
    if (d->dtype == DB_F64)
      memcpy(&bits, &v, 8);
    else if (d->dtype == DB_F32)
      memcpy(&bits, &single, 4);
    else if (d->dtype >= DB_F16)
      bits = half;
    else
      bits = (uint64_t)integer;
    memcpy(p + (size_t)i * size, &bits, size);
  }
  return p;
}

static double element(db_dtype t, const void *data, int64_t i) {
  switch (t) {
  case DB_BOOL:
  case DB_U8: return ((const uint8_t *)data)[i];
  case DB_I8: return ((const int8_t *)data)[i];
  case DB_I16: return ((const int16_t *)data)[i];
  case DB_U16: return ((const uint16_t *)data)[i];
  case DB_I32: return ((const int32_t *)data)[i];
  case DB_U32: return ((const uint32_t *)data)[i];
  case DB_I64: return (double)((const int64_t *)data)[i];
  case DB_U64: return (double)((const uint64_t *)data)[i];
  case DB_F16: return (double)f16_to_f32(((const uint16_t *)data)[i]);
  case DB_BF16: return (double)bf16_to_f32(((const uint16_t *)data)[i]);
  case DB_F32: return (double)((const float *)data)[i];
  default: return ((const double *)data)[i];
  }
}

/* ---- operations by name ---- */

static const struct {
  const char *name;
  enum db_unary_op op;
} unary[] = {{"neg", DB_NEG},         {"not", DB_NOT},
             {"abs", DB_ABS},         {"sign", DB_SIGN},
             {"floor", DB_FLOOR},     {"ceil", DB_CEIL},
             {"trunc", DB_TRUNC},     {"square", DB_SQUARE},
             {"relu", DB_RELU},       {"reciprocal", DB_RECIPROCAL},
             {"sqrt", DB_SQRT},       {"rsqrt", DB_RSQRT},
             {"exp2", DB_EXP2},       {"exp", DB_EXP},
             {"log2", DB_LOG2},       {"log", DB_LOG},
             {"sin", DB_SIN},         {"cos", DB_COS},
             {"sigmoid", DB_SIGMOID}, {"tanh", DB_TANH}};
static const struct {
  const char *name;
  enum db_binary_op op;
} binary[] = {{"add", DB_ADD}, {"sub", DB_SUB},     {"mul", DB_MUL},    {"div", DB_DIV}, {"idiv", DB_IDIV},
              {"mod", DB_MOD}, {"pow", DB_POW},     {"and", DB_AND},    {"or", DB_OR},   {"xor", DB_XOR},
              {"eq", DB_EQ},   {"ne", DB_NE},       {"lt", DB_LT},      {"le", DB_LE},   {"gt", DB_GT},
              {"ge", DB_GE},   {"maximum", DB_MAX}, {"minimum", DB_MIN}};
static const struct {
  const char *name;
  enum db_reduce_op op;
} reduction[] = {{"sum", DB_SUM},   {"prod", DB_PROD}, {"max", DB_MAXIMUM}, {"min", DB_MINIMUM},
                 {"mean", DB_MEAN}, {"var", DB_VAR},   {"std", DB_STD}};
#define FIND(table, wanted)                                                                                            \
  for (unsigned i_ = 0; i_ < sizeof table / sizeof *table; i_++)                                                       \
    if (!strcmp(table[i_].name, wanted))

static bool is(const struct test_case *c, const char *name) { return !strcmp(c->op, name); }

static db_tensor *apply(const struct test_case *c, db_tensor *const *in) {
  int64_t v[32];
  FIND(unary, c->op) return db_unary_at(DB_HERE, unary[i_].op, in[0]);
  FIND(binary, c->op) {
    db_operand b = *c->integer  ? db_operand_int(atoll(c->integer))
                   : *c->number ? db_operand_float(atof(c->number))
                                : db_operand_tensor(in[1]);
    return db_binary_at(DB_HERE, binary[i_].op, db_operand_tensor(in[0]), b);
  }
  FIND(reduction, c->op) return db_reduce_at(DB_HERE, reduction[i_].op, in[0], list_of(c->axes, v), *c->keep == '1');
  if (is(c, "where")) return db_where(in[0], in[1], in[2]);
  if (is(c, "cast")) return db_cast(in[0], dtype_named(c->to, strlen(c->to)));
  if (is(c, "reshape")) return db_reshape_at(DB_HERE, in[0], list_of(c->shape, v));
  if (is(c, "expand")) return db_expand_at(DB_HERE, in[0], list_of(c->shape, v));
  if (is(c, "permute")) return db_permute_at(DB_HERE, in[0], list_of(c->axes, v));
  if (is(c, "transpose")) return list_of(c->axes, v), db_transpose(in[0], (int)v[0], (int)v[1]);
  if (is(c, "flip")) return db_flip_at(DB_HERE, in[0], list_of(c->axes, v));
  if (is(c, "shrink")) return db_shrink_at(DB_HERE, in[0], list_of(c->pairs, v));
  if (is(c, "pad"))
    return db_pad_at(DB_HERE, in[0],
                     *c->value == '-' ? db_operand_float(atof(c->value)) : db_operand_int(atoll(c->value)),
                     list_of(c->pairs, v));
  if (is(c, "contiguous")) return db_contiguous(in[0]);
  if (is(c, "softmax")) return db_softmax(in[0], atoi(c->axis));
  if (is(c, "log_softmax")) return db_log_softmax(in[0], atoi(c->axis));
  if (is(c, "matmul")) return db_matmul(in[0], in[1]);
  fail_msg("no operation %s", c->op);
  return NULL;
}

/* ---- one case ---- */

static bool check(const struct test_case *c, db_tensor *y, const char *where) {
  const struct data *want = &c->out;
  if (db_poison(y)) return print_error("%s: %s\n", where, db_poison(y)), false;
  bool same = db_dtype_of(y) == want->dtype && db_rank(y) == want->rank;
  for (unsigned i = 0; same && i < want->rank; i++) same = db_dim(y, (int)i) == want->dim[i];
  if (!same)
    return print_error("%s: %s of rank %u, %s of rank %u is expected\n", where, db_dtype_name(db_dtype_of(y)),
                       db_rank(y), db_dtype_name(want->dtype), want->rank),
           false;
  size_t bytes = (size_t)want->count * db_dtype_size(want->dtype);
  void *got = malloc(bytes);
  double tol = atof(c->tol), floor_ = *c->floor ? atof(c->floor) : 1;
  void *rounded = pack(want); /* the text is decimal */
  bool good = !db_read(y, got, bytes);
  if (!good) print_error("%s: %s\n", where, db_error());
  for (int64_t i = 0; good && i < want->count; i++) {
    double g = element(want->dtype, got, i), w = element(want->dtype, rounded, i);
    good = g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= tol * fmax(fabs(w), floor_);
    if (!good) print_error("%s: element %lld is %.9g, NumPy has %.9g\n", where, (long long)i, g, w);
  }
  free(got);
  free(rounded);
  return good;
}

/* Cases realized at once: their kernels are assembled side by side. */
enum { BATCH = 64 };
static struct test_case batch[BATCH];
static char where[BATCH][160];

static unsigned run_batch(db_device *dev, unsigned n) {
  unsigned failed = 0;
  DB_SCOPE {
    db_tensor *y[BATCH], *good[BATCH];
    unsigned ngood = 0;
    for (unsigned k = 0; k < n; k++) {
      struct test_case *c = &batch[k];
      db_tensor *in[3];
      for (unsigned i = 0; i < c->nin; i++) {
        void *data = pack(&c->in[i]);
        in[i] = db_from_at(DB_HERE, data, c->in[i].dtype, dev, (db_list){c->in[i].rank, c->in[i].dim});
        free(data);
      }
      y[k] = apply(c, in);
      if (!db_poison(y[k])) good[ngood++] = y[k];
    }
    db_realize_all(good, ngood); /* a failure comes again, with its case, when the result is read */
    for (unsigned k = 0; k < n; k++) failed += !check(&batch[k], y[k], where[k]);
  }
  for (unsigned k = 0; k < n; k++) {
    for (unsigned i = 0; i < batch[k].nin; i++) free(batch[k].in[i].value);
    free(batch[k].out.value);
  }
  return failed;
}

static void all_cases(const char *device) {
  db_device *dev = open_device(device);
  FILE *f = fopen(DATA_DIR "/ops/ops.txt", "r");
  assert_non_null(f);
  static char line[1 << 16], copy[1 << 16];
  const char *only = getenv("CASE");
  unsigned number = 0, failed = 0, n = 0;
  while (fgets(line, sizeof line, f)) {
    memcpy(copy, line, sizeof line);
    copy[strcspn(copy, "\n")] = 0;
    snprintf(where[n], sizeof where[n], "%s: line %u: %.100s", device, ++number, copy);
    if (only && number != (unsigned)atoi(only)) continue;
    read_case(line, &batch[n]);
    if (++n == BATCH) failed += run_batch(dev, n), n = 0;
  }
  failed += run_batch(dev, n);
  fclose(f);
  db_close(dev);
  assert_true(only || number > 600);
  if (failed) fail_msg("%u of %u cases differ", failed, number);
}

static void ops_cpu(void **state) { all_cases("CPU"); }
static void ops_emulated(void **state) { all_cases(EMULATED); }
static void ops_nvidia(void **state) {
  if (!has_ptxas()) skip();
  all_cases(EMULATED_NVIDIA);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ops_cpu), cmocka_unit_test(ops_emulated),
                                     cmocka_unit_test(ops_nvidia)};
  has_ptxas(); /* chooses the cache before anything is compiled */
  return cmocka_run_group_tests_name("ops", tests, NULL, finish);
}
