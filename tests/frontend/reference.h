/* Runs the cases of tests/data/cases on a device. core.py there describes the format of a line; calls.def defines how
 * an op is called. */
#ifndef TESTS_FRONTEND_REFERENCE_H
#define TESTS_FRONTEND_REFERENCE_H
#include "support.h"
#include "../../graph/dtype.h"
#include <ctype.h>

enum { CASE_INPUTS = 8, CASE_KEYS = 12, CASE_NUMBERS = 64, GRADIENT_SEED = 1 };

struct args {
  db_tensor *base[CASE_INPUTS], *in[CASE_INPUTS]; /* base: drawn input; in: the argument made from it */
  unsigned nin, nkeys;
  struct {
    const char *name, *text;
  } key[CASE_KEYS];
  int64_t list[8][CASE_NUMBERS];
  unsigned nlists;
  db_subscript subscript[CASE_INPUTS];
  db_device *dev;
};
/* One expected result. */
struct want {
  unsigned number; /* number of the case */
  int input;       /* the input whose gradient it is, or -1 */
  db_dtype dtype;
  unsigned rank;
  int64_t dim[16];
  double tol, floor;
  char *numbers;
  db_tensor *got;
};

/* ---- types and elements ---- */

static db_dtype case_dtype(const char *s) {
  size_t n = strcspn(s, "[");
  for (int t = DB_BOOL; t <= DB_F8E5M2; t++) {
    const char *name = db_dtype_name((db_dtype)t);
    if (strlen(name) == n && !strncmp(name, s, n)) return (db_dtype)t;
  }
  fail_msg("no type %s", s);
  return DB_NONE;
}
static bool case_is_float(db_dtype t) { return t >= DB_F16; }
static bool case_is_unsigned(db_dtype t) { return t == DB_U8 || t == DB_U16 || t == DB_U32 || t == DB_U64; }

static double float_element(db_dtype t, const void *data, int64_t i) {
  uint64_t bits = 0;
  size_t size = db_dtype_size(t);
  memcpy(&bits, (const char *)data + (size_t)i * size, size);
  return float_from_bits((enum dtype)t, bits);
}

static void put_float(db_dtype t, void *data, int64_t i, double v) {
  uint64_t bits = float_to_bits((enum dtype)t, v);
  size_t size = db_dtype_size(t);
  memcpy((char *)data + (size_t)i * size, &bits, size);
}

/* Reads elements such as "1,2" or "1 2". */
static void *read_elements(db_dtype t, const char *s, int64_t count) {
  size_t size = db_dtype_size(t);
  char *data = calloc((size_t)count + 1, size), *end;
  for (int64_t i = 0; i < count; i++, s = end) {
    s += strspn(s, ", ");
    if (case_is_float(t)) {
      put_float(t, data, i, strtod(s, &end));
    } else {
      uint64_t v = *s == '-' ? (uint64_t)strtoll(s, &end, 10) : strtoull(s, &end, 10);
      memcpy(data + (size_t)i * size, &v, size);
    }
    if (end == s) fail_msg("element %lld is missing at \"%.40s\"", (long long)i, s);
  }
  return data;
}

/* splitmix64 */
static uint32_t draw(uint32_t seed, int64_t i) {
  uint64_t z = ((uint64_t)seed << 32 | (uint64_t)i) + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ z >> 31) >> 32);
}

/* Draws elements from [low, high), integers from low to high; distinct: evenly spaced and shuffled. */
static void *draw_elements(db_dtype t, int64_t count, uint32_t seed, double low, double high, bool distinct) {
  size_t size = db_dtype_size(t);
  char *data = calloc((size_t)count + 1, size);
  int64_t *order = calloc((size_t)count + 1, sizeof *order);
  for (int64_t i = 0; i < count; i++) order[i] = i;
  for (int64_t i = count - 1; distinct && i > 0; i--) {
    int64_t j = draw(seed, i) % (i + 1), held = order[i];
    order[i] = order[j], order[j] = held;
  }
  for (int64_t i = 0; i < count; i++) {
    if (case_is_float(t)) {
      double part = distinct ? (double)order[i] / (double)count : (double)(draw(seed, i) & 4095) / 4096;
      put_float(t, data, i, low + (high - low) * part);
    } else {
      int64_t l = (int64_t)low, h = (int64_t)high,
              v = distinct ? l + order[i] * (h - l) / count : l + draw(seed, i) % (h - l + 1);
      memcpy(data + (size_t)i * size, &v, size);
    }
  }
  free(order);
  return data;
}

/* ---- reading ---- */

/* "1,2)" */
static db_list read_list(const char *s, int64_t *v) {
  db_list l = {0, v};
  while (*s && *s != ')') {
    char *end;
    if (l.n == CASE_NUMBERS) fail_msg("a list too long");
    v[l.n++] = strtoll(s, &end, 10);
    if (end == s) fail_msg("no number at %s", s);
    s = *end == ',' ? end + 1 : end;
  }
  return l;
}

/* Reads a shape such as "f32[2,3]". Returns the text after it. */
static char *read_shape(char *s, db_dtype *t, unsigned *rank, int64_t *dim, int64_t *count) {
  *t = case_dtype(s);
  *rank = 0, *count = 1;
  for (s = strchr(s, '[') + 1; *s != ']'; s += *s == ',') *count *= dim[(*rank)++] = strtoll(s, &s, 10);
  return s + 1;
}

static db_tensor *view(db_tensor *x, const char *op, db_list l) {
  if (!strncmp(op, "permute", 7)) return db_permute_at(DB_HERE, x, l);
  if (!strncmp(op, "flip", 4)) return db_flip_at(DB_HERE, x, l);
  if (!strncmp(op, "shrink", 6)) return db_shrink_at(DB_HERE, x, l);
  if (!strncmp(op, "expand", 6)) return db_expand_at(DB_HERE, x, l);
  if (!strncmp(op, "reshape", 7)) return db_reshape_at(DB_HERE, x, l);
  if (!strncmp(op, "pad", 3)) return db_pad_at(DB_HERE, x, db_operand_int(0), l);
  fail_msg("no view %s", op);
  return NULL;
}

static void read_input(char *s, struct args *a) {
  db_dtype t;
  unsigned rank;
  int64_t dim[16], count, v[CASE_NUMBERS];
  s = read_shape(s, &t, &rank, dim, &count);
  void *data;
  char kind = *s++;
  if (kind == '=') {
    data = read_elements(t, s, count);
    while (*s && !(*s == '.' && isalpha((unsigned char)s[1]))) s++; /* a view begins here */
  } else {
    double low = case_is_float(t) ? -2 : case_is_unsigned(t) || t == DB_BOOL ? 0 : -5;
    double high = case_is_float(t) ? 2 : t == DB_BOOL ? 1 : case_is_unsigned(t) ? 11 : 9;
    uint32_t seed = (uint32_t)strtoul(s, &s, 16);
    if (*s == '(') low = strtod(s + 1, &s), high = strtod(s + 1, &s), s++;
    data = draw_elements(t, count, seed, low, high, kind == '!');
  }
  if (a->nin == CASE_INPUTS) fail_msg("too many inputs");
  db_tensor *x = db_from_at(DB_HERE, data, t, a->dev, (db_list){rank, dim});
  free(data);
  a->base[a->nin] = x;
  for (; *s == '.'; s = strchr(s, ')') + 1) x = view(x, s + 1, read_list(strchr(s, '(') + 1, v));
  if (*s) fail_msg("what is %s?", s);
  a->in[a->nin++] = x;
}

/* Reads "tol floor number..." up to " | " or the end. Returns the text after it, or NULL on an error. */
static char *read_numbers(char *s, struct want *w) {
  w->tol = strtod(s, &s);
  w->floor = strtod(s, &s);
  w->numbers = s;
  char *bar = strstr(s, " | ");
  if (!bar) return NULL;
  *bar = 0;
  return bar + 3;
}

/* ---- calling ---- */

static const char *key(const struct args *a, const char *name) {
  for (unsigned i = 0; i < a->nkeys; i++)
    if (!strcmp(a->key[i].name, name)) return a->key[i].text;
  return NULL;
}
static const char *must_key(const struct args *a, const char *name) {
  const char *s = key(a, name);
  if (!s) fail_msg("no key %s", name);
  return s;
}
static db_list key_list(struct args *a, const char *name) {
  const char *s = key(a, name);
  return s ? read_list(s, a->list[a->nlists++ % 8]) : (db_list){0, NULL};
}
static db_operand key_operand(const struct args *a) {
  const char *i = key(a, "int"), *f = key(a, "num");
  return i ? db_operand_int(atoll(i)) : f ? db_operand_float(atof(f)) : db_operand_tensor(a->in[1]);
}

/* The gradient of the call that key f names with respect to its first input. */
static db_tensor *gradient_of(struct args *a);

#define S(name)   must_key(a, name)
#define I(name)   ((int)atoll(S(name)))
#define F(name)   atof(S(name))
#define L(name)   key_list(a, name)
#define HAS(name) (key(a, name) != NULL)
#define OTHER     key_operand(a)
#define DEVICE    (a->dev)
#define BINARY(op)                                                                                                     \
  db_binary_at(DB_HERE, op, HAS("first") ? OTHER : db_operand_tensor(x), HAS("first") ? db_operand_tensor(x) : OTHER)
#define REDUCE(op) db_reduce_at(DB_HERE, op, x, L("axes"), HAS("keep"))
/* The input that `letter` in the key refers to. The inputs of keys come after those that every call has. */
static db_tensor *key_input(const struct args *a, char letter, unsigned first) {
  const char *has = key(a, "has"), *at = has ? strchr(has, letter) : NULL;
  return at ? a->in[first + (unsigned)(at - has)] : NULL;
}
static int key_choice(const struct args *a, const char *name, const char *const *choices) {
  const char *s = key(a, name);
  for (int i = 0; s && choices[i]; i++)
    if (!strcmp(s, choices[i])) return i;
  if (s) fail_msg("no %s %s", name, s);
  return 0;
}
static const char *const reductions[] = {"mean", "sum", "batchmean", "none", NULL};
static const char *const interpolations[] = {"nearest", "nearest-exact", "linear", NULL};
/* A key as an operand: an integer or a float. */
static db_operand key_number(const struct args *a, const char *name) {
  const char *s = must_key(a, name);
  return strpbrk(s, ".ena") ? db_operand_float(atof(s)) : db_operand_int(atoll(s));
}
static const char *const pad_modes[] = {"reflect", "replicate", "circular", NULL};
#define PAD_MODE (enum db_pad_mode)(DB_PAD_REFLECT + key_choice(a, "mode", pad_modes))
#define PICK(call)                                                                                                     \
  ({                                                                                                                   \
    db_tensor *out[CASE_INPUTS] = {0};                                                                                 \
    call;                                                                                                              \
    out[I("pick")];                                                                                                    \
  })
/* Reads subscripts such as "1;2:5;::-1;:;n;r;t1": a number, two slices, all, a new axis, the rest, an input. */
static unsigned key_subscripts(const struct args *a, db_subscript *to) {
  unsigned n = 0;
  for (const char *s = must_key(a, "at"); *s; s += *s == ';') {
    db_subscript *k = &to[n++];
    if (n > CASE_INPUTS) fail_msg("too many subscripts");
    size_t length = strcspn(s, ";");
    const char *colon = memchr(s, ':', length);
    if (*s == 'n' || *s == 'r' || *s == 't') {
      *k = *s == 'n' ? DB_NEW_AXIS : *s == 'r' ? DB_REST : DB_BY(a->in[atoi(s + 1)]);
    } else if (length == 1 && colon) {
      *k = DB_WHOLE;
    } else if (colon) {
      const char *second = memchr(colon + 1, ':', length - (size_t)(colon + 1 - s)), *end = s + length;
      *k = DB_SLICE(colon == s ? DB_OPEN : atoll(s), colon + 1 == end || colon[1] == ':' ? DB_OPEN : atoll(colon + 1),
                    second && second + 1 != end ? atoll(second + 1) : 1);
    } else {
      *k = DB_PICK(atoll(s));
    }
    s += length;
  }
  return n;
}
#define SUBSCRIPTS (a->subscript), key_subscripts(a, a->subscript)
static const char *const scatter_modes[] = {"replace", "sum", "prod", "max", "min", "mean", NULL};
#define SCATTER_MODE (enum db_scatter)(DB_SCATTER_REPLACE + key_choice(a, "mode", scatter_modes))
#define SCATTERED    (z ? db_operand_tensor(z) : key_operand(a))
#define TOPK                                                                                                           \
  ({                                                                                                                   \
    db_tensor *places, *best = db_topk(x, I("k"), I("axis"), I("largest"), &places);                                   \
    I("pick") ? places : best;                                                                                         \
  })
#define TERNARY(op)                                                                                                    \
  (a->nin == 3 ? db_ternary_at(DB_HERE, op, db_operand_tensor(x), db_operand_tensor(y), db_operand_tensor(z))          \
               : db_ternary_at(DB_HERE, op, db_operand_tensor(x), key_number(a, "low"), key_number(a, "high")))
#define WITH(letter) key_input(a, letter, 1)
#define REDUCTION    (enum db_reduction)(DB_REDUCTION_MEAN + key_choice(a, "reduction", reductions))
#define CONV                                                                                                           \
  ((struct db_conv){.stride = L("stride"),                                                                             \
                    .padding = L("padding"),                                                                           \
                    .dilation = L("dilation"),                                                                         \
                    .output_padding = L("output_padding"),                                                             \
                    .groups = HAS("groups") ? I("groups") : 0,                                                         \
                    .same = HAS("same")})
#define POOL                                                                                                           \
  ((struct db_pool){.stride = L("stride"),                                                                             \
                    .padding = L("padding"),                                                                           \
                    .dilation = L("dilation"),                                                                         \
                    .ceil_mode = HAS("ceil_mode"),                                                                     \
                    .exclude_padding = HAS("exclude")})
#define INTERPOLATE                                                                                                    \
  ((struct db_interpolate){                                                                                            \
      .mode = (enum db_interpolation)(DB_INTERPOLATE_NEAREST + key_choice(a, "mode", interpolations)),                 \
      .align_corners = HAS("align"),                                                                                   \
      .scale = {HAS("scale") ? F("scale") : 0}})
#define LOSS(kind)                                                                                                     \
  db_loss_at(DB_HERE, kind, x, y,                                                                                      \
             (struct db_loss){.reduction = REDUCTION,                                                                  \
                              .weight = key_input(a, 'w', 2),                                                          \
                              .positive = key_input(a, 'p', 2),                                                        \
                              .delta = HAS("delta") ? F("delta") : 0,                                                  \
                              .log_target = HAS("log_target")})
#define CROSS_ENTROPY                                                                                                  \
  ((struct db_cross_entropy){.reduction = REDUCTION,                                                                   \
                             .weight = key_input(a, 'w', 2),                                                           \
                             .ignore = L("ignore"),                                                                    \
                             .label_smoothing = HAS("smooth") ? F("smooth") : 0})
#define CALL(name, expression)                                                                                         \
  static db_tensor *call_##name(struct args *a) {                                                                      \
    db_tensor *x = a->in[0], *y = a->in[1], *z = a->in[2];                                                             \
    (void)x, (void)y, (void)z;                                                                                         \
    return expression;                                                                                                 \
  }
#include "calls.def"
#undef CALL
static const struct {
  const char *name;
  db_tensor *(*call)(struct args *a);
} calls[] = {
#define CALL(name, expression) {#name, call_##name},
#include "calls.def"
#undef CALL
};

static db_tensor *call_named(const char *op, struct args *a) {
  for (unsigned k = 0; k < sizeof calls / sizeof *calls; k++)
    if (!strcmp(calls[k].name, op)) return calls[k].call(a);
  fail_msg("no operation %s", op);
  return NULL;
}

/* The output gradient, the same for every case. */
static db_tensor *output_gradient(const struct args *a, db_dtype t, db_list shape) {
  int64_t count = 1;
  for (unsigned i = 0; i < shape.n; i++) count *= shape.v[i];
  void *data = draw_elements(t, count, GRADIENT_SEED, -1, 1, false);
  db_tensor *dy = db_from_at(DB_HERE, data, t, a->dev, shape);
  free(data);
  return dy;
}

static db_tensor *gradient_of(struct args *a) {
  db_tensor *y = call_named(S("f"), a);
  int64_t dim[16];
  for (unsigned i = 0; i < db_rank(y); i++) dim[i] = db_dim(y, (int)i);
  return db_poison(y) ? y : db_grad_from(y, output_gradient(a, db_dtype_of(y), (db_list){db_rank(y), dim}), a->in[0]);
}

/* ---- one case ---- */

/* Reads a line, which it modifies, runs the case and adds its expected results to w. Returns their number. */
static unsigned read_case(char *line, unsigned number, db_device *dev, struct want *w) {
  struct args a = {.dev = dev};
  char *save, *op = strtok_r(line, " ", &save), *word;
  while (strcmp(word = strtok_r(NULL, " ", &save), ":")) {
    char *equals = strchr(word, '=');
    if (!equals || a.nkeys == CASE_KEYS) fail_msg("%s: the key %s", op, word);
    *equals = 0;
    a.key[a.nkeys].name = word, a.key[a.nkeys++].text = equals + 1;
  }
  while (strcmp(word = strtok_r(NULL, " ", &save), "->")) read_input(word, &a);
  unsigned n = 1;
  int64_t count;
  db_tensor *y = call_named(op, &a), *x[CASE_INPUTS], *dx[CASE_INPUTS];
  *w = (struct want){.number = number, .input = -1, .got = y};
  char *s = read_numbers(read_shape(save, &w->dtype, &w->rank, w->dim, &count), w);
  if (!s) return 1;
  for (; s; n++) {
    w[n] = (struct want){.number = number, .input = (int)strtol(s, &s, 10)};
    db_tensor *base = x[n - 1] = a.base[w[n].input];
    w[n].dtype = db_dtype_of(base), w[n].rank = db_rank(base);
    for (unsigned i = 0; i < w[n].rank; i++) w[n].dim[i] = db_dim(base, (int)i);
    s = read_numbers(s, &w[n]);
  }
  db_grad_all(y, output_gradient(&a, w->dtype, (db_list){w->rank, w->dim}), x, n - 1, dx);
  for (unsigned i = 1; i < n; i++) w[i].got = dx[i - 1];
  return n;
}

static bool close_enough(const struct want *w, const void *got, const void *wanted, int64_t i) {
  if (!case_is_float(w->dtype)) {
    size_t size = db_dtype_size(w->dtype);
    return !memcmp((const char *)got + (size_t)i * size, (const char *)wanted + (size_t)i * size, size);
  }
  double g = float_element(w->dtype, got, i), v = float_element(w->dtype, wanted, i);
  if (isnan(v)) return isnan(g);
  if (g == v) return v != 0 || w->floor > 0 || signbit(g) == signbit(v);
  return fabs(g - v) <= w->tol * fmax(fabs(v), w->floor);
}

static bool check(const struct want *w, const char *where) {
  char what[32] = "result";
  if (w->input >= 0) snprintf(what, sizeof what, "gradient %d", w->input);
  if (db_poison(w->got)) return print_error("%s: %s: %s\n", where, what, db_poison(w->got)), false;
  bool same = db_dtype_of(w->got) == w->dtype && db_rank(w->got) == w->rank;
  int64_t count = 1;
  for (unsigned i = 0; i < w->rank; i++) {
    count *= w->dim[i];
    same = same && db_dim(w->got, (int)i) == w->dim[i];
  }
  if (!same) {
    print_error("%s: %s is %s[", where, what, db_dtype_name(db_dtype_of(w->got)));
    for (unsigned i = 0; i < db_rank(w->got); i++)
      print_error("%s%lld", i ? "," : "", (long long)db_dim(w->got, (int)i));
    return print_error("]\n"), false;
  }
  size_t bytes = (size_t)count * db_dtype_size(w->dtype);
  void *got = calloc(bytes + 1, 1), *wanted = read_elements(w->dtype, w->numbers, count);
  bool good = !db_read(w->got, got, bytes);
  if (!good) print_error("%s: %s: %s\n", where, what, db_error());
  for (int64_t i = 0; good && i < count; i++) {
    good = close_enough(w, got, wanted, i);
    if (good) continue;
    const char *s = w->numbers + strspn(w->numbers, " ");
    for (int64_t k = 0; k < i; k++) s += strcspn(s, " ") + 1;
    if (case_is_float(w->dtype)) {
      print_error("%s: %s: element %lld is %.9g, not %.*s\n", where, what, (long long)i,
                  float_element(w->dtype, got, i), (int)strcspn(s, " "), s);
    } else {
      int64_t v = 0;
      memcpy(&v, (char *)got + (size_t)i * db_dtype_size(w->dtype), db_dtype_size(w->dtype));
      print_error("%s: %s: element %lld is %#llx, not %.*s\n", where, what, (long long)i, (unsigned long long)v,
                  (int)strcspn(s, " "), s);
    }
  }
  free(got);
  free(wanted);
  return good;
}

/* ---- all cases of a family ---- */

/* Number of cases realized at once: their kernels are assembled in parallel. */
enum { BATCH = 64, LINE = 1 << 16 };

struct batch {
  db_device *dev;
  char line[BATCH][LINE], where[BATCH][160];
  unsigned number[BATCH], n;
};

static unsigned run_batch(struct batch *b) {
  unsigned failed = 0;
  {
    DB_SCOPED;
    static struct want want[BATCH * (1 + CASE_INPUTS)];
    static db_tensor *good[BATCH * (1 + CASE_INPUTS)];
    unsigned n = 0, ngood = 0;
    for (unsigned i = 0; i < b->n; i++) n += read_case(b->line[i], i, b->dev, &want[n]);
    for (unsigned i = 0; i < n; i++)
      if (!db_poison(want[i].got)) good[ngood++] = want[i].got;
    db_realize_all(good, ngood); /* a failure is reported with its case when the result is read */
    for (unsigned i = 0, bad = BATCH; i < n; i++)
      if (!check(&want[i], b->where[want[i].number]) && bad != want[i].number) bad = want[i].number, failed++;
  }
  b->n = 0;
  return failed;
}

/* The families, and the minimum number of cases of each. */
static const struct {
  const char *name;
  unsigned least;
} families[] = {{"unary", 713},    {"binary", 983}, {"math", 612}, {"create", 274},   {"shape", 226}, {"index", 247},
                {"movement", 281}, {"reduce", 466}, {"scan", 332}, {"sort", 209},     {"matmul", 98}, {"conv", 74},
                {"pool", 128},     {"norm", 83},    {"loss", 157}, {"attention", 22}, {"second", 80}};

/* Runs every step-th case of a family, or only the line that CASE in the environment selects. Returns the number of
 * cases that differ. */
static unsigned run_family(const char *device, const char *family, unsigned step, unsigned least) {
  static struct batch b;
  char path[512];
  snprintf(path, sizeof path, "%s/cases/%s.txt", DATA_DIR, family);
  FILE *f = fopen(path, "r");
  if (!f) fail_msg("cannot open %s", path);
  const char *only = getenv("CASE");
  unsigned number = 0, failed = 0;
  b.dev = open_device(device);
  while (fgets(b.line[b.n], LINE, f)) {
    char *end = strchr(b.line[b.n], '\n');
    if (!end) fail_msg("%s: line %u is longer than %d", path, number + 1, LINE);
    *end = 0;
    number++;
    if (only ? number != (unsigned)atoi(only) : number % step) continue;
    char head[81] = "";
    strncat(head, b.line[b.n], 80);
    snprintf(b.where[b.n], sizeof b.where[b.n], "%s: %s.txt:%u: %s", device, family, number, head);
    if (++b.n == BATCH) failed += run_batch(&b);
  }
  failed += run_batch(&b);
  fclose(f);
  db_close(b.dev);
  assert_true(number >= least);
  return failed;
}

/* Runs all families. Prints the cases that differ and returns their number. */
static unsigned run_cases(const char *device, unsigned step) {
  unsigned failed = 0;
  for (unsigned i = 0; i < sizeof families / sizeof *families; i++)
    failed += run_family(device, families[i].name, step, families[i].least);
  return failed;
}
#endif
