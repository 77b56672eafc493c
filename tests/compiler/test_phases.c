/* Kernels of several phases: contractions and row reductions for each block of rows, which pass on the block in local
 * memory, of all columns or in rounds. Runs random kernels with random plans and compares the host's machine code and
 * the C text for the host, gfx1100 and sm_80 with the interpreter of their asts. PHASES_SEED=n runs only the kernel
 * with that number, PHASES_FROM and PHASES_COUNT run others. */
#include "c_text.h"
#include "random_plans.h"
#include "compiler/search/beam.h"

#ifndef COUNT
#define COUNT 48
#endif

static int setup(void **state) { return !(G = graph_new()); }
static int teardown(void **state) {
  graph_free(G);
  return 0;
}

/* ---- random phases ---------------------------------------------------------------------------------------------- */

/* `heads` matrices of `rows` rows, in blocks of `block` rows; the last block begins early enough to be a full one. */
struct blocks {
  int64_t heads, rows, block;
  struct uop *head, *at, *in; /* ranges: head and at (the block) are around the phases, `in` is inside each of them */
  struct uop *first, *row;    /* numbers of the block's first row and of the row in their head */
  struct uop *around[2];
  unsigned naround;
};

static struct blocks blocks_of(int64_t heads, int64_t rows, int64_t block, int *axis) {
  struct blocks b = {.heads = heads, .rows = rows, .block = block};
  int64_t n = (rows + block - 1) / block;
  b.head = heads > 1 ? b.around[b.naround++] = range(heads, (*axis)++, AXIS_LOOP) : ix(0);
  b.at = n > 1 ? b.around[b.naround++] = range(n, (*axis)++, AXIS_LOOP) : ix(0);
  b.in = block > 1 ? range(block, (*axis)++, AXIS_LOOP) : ix(0);
  struct uop *first = mul(b.at, ix(block));
  if (rows % block) { /* min(at * block, rows - block) */
    struct uop *back = uop_binary(G, OP_MAX, uop_unary(G, OP_NEG, first), ix(block - rows));
    first = uop_unary(G, OP_NEG, back);
  }
  b.first = first, b.row = add(first, b.in);
  return b;
}

/* The columns of a phase. If chunk is not 0, only chunks that reach below the block's last row are needed. */
struct columns {
  struct uop *at, *range[2], *needed; /* needed: NULL if all are */
  unsigned n;
};

static struct columns columns_of(const struct blocks *b, int64_t n, int64_t chunk, int *axis, enum axis_kind kind) {
  struct columns c = {.n = 1};
  if (!chunk) {
    c.at = c.range[0] = range(n, (*axis)++, kind);
    return c;
  }
  c.n = 2;
  for (unsigned i = 0; i < 2; i++) c.range[i] = range(i ? chunk : n / chunk, (*axis)++, kind);
  struct uop *begin = mul(c.range[0], ix(chunk));
  c.at = add(begin, c.range[1]);
  c.needed = uop_binary(G, OP_CMPLT, begin, add(b->first, ix(b->block)));
  return c;
}

static struct uop *at_needed(struct uop *p, struct uop *index, const struct columns *c) {
  return c->needed ? at_if(p, index, c->needed) : at(p, index);
}

/* x where the columns are needed, otherwise the identity element of op. */
static struct uop *if_needed(const struct columns *c, enum op op, struct uop *x) {
  return c->needed ? uop_where(G, c->needed, x, uop_identity(G, op, x->dtype)) : x;
}

static struct uop *local(const struct blocks *b, int number, enum dtype t, int64_t n) {
  struct uop *src[3] = {ix(n)};
  memcpy(src + 1, b->around, b->naround * sizeof *src);
  return uop_new(G, OP_LOCAL, t, 1, (union uop_arg){.i = number}, 0, src, 1 + b->naround);
}

/* Element (i, j) of a head's matrix of n columns, stored by rows or by columns. */
static struct uop *element(struct random_maker *m, const struct blocks *b, enum dtype t, struct uop *i, int64_t rows,
                           struct uop *j, int64_t n) {
  struct uop *p = random_param(m, t, b->heads * rows * n, 0), *head = mul(b->head, ix(rows * n));
  return load(at(p, chance(50) ? add(head, add(mul(i, ix(n)), j)) : add(head, add(mul(j, ix(rows)), i))));
}

/* out = f(a b) c, or a chain with row reductions and elementwise phases in between. */
static struct random_kernel random_phases(uint64_t number) {
  struct random_kernel k = {.seed = number, .nouts = 1};
  struct random_maker m = {.k = &k};
  random_state = number * UINT64_C(0x9fb21c651e98df25) + 7;
  static const enum dtype types[] = {DT_F32, DT_F32, DT_F32, DT_BF16, DT_F16, DT_I32};
  enum dtype t = types[below(sizeof types / sizeof *types)], sum = dtype_is_float(t) ? DT_F32 : t;
  int64_t rows = random_size(48), keys = random_size(48), depth = random_size(16), width = random_size(24);
  int64_t block = 1 + below((unsigned)(rows < 20 ? rows : 20)), pad = below(9);
  int64_t chunk = chance(35) ? 1 + below(8) : 0;
  int axis = 0;
  if (chunk) keys = (keys + chunk - 1) / chunk * chunk;
  struct blocks b = blocks_of(chance(40) ? 2 + below(2) : 1, rows, block, &axis);
  struct uop *out = random_param(&m, sum, b.heads * rows * width, 0), *phase[4 + 2]; /* then the ranges around them */
  unsigned n = 0;

  struct columns all = columns_of(&b, keys, chunk, &axis, AXIS_LOOP);
  struct uop *j = all.at, *d = range(depth, axis++, AXIS_REDUCE), *over[1] = {d};
  struct uop *x = element(&m, &b, t, b.row, rows, d, depth), *y = element(&m, &b, t, d, depth, j, keys);
  struct uop *v = reduce(OP_ADD, mul(uop_cast(G, x, sum), uop_cast(G, y, sum)), over, 1);
  if (chance(40)) /* masked */
    v = uop_where(G, uop_binary(G, OP_CMPLT, b.row, j), uop_const_int(G, sum, -3), v);
  if (chance(40)) v = uop_binary(G, OP_MAX, v, element(&m, &b, sum, b.row, rows, j, keys));
  int64_t stride = keys + pad;
  struct uop *now = local(&b, 0, sum, block * stride);
  phase[n++] = sink1(store(at_needed(now, add(mul(b.in, ix(stride)), j), &all), v));

  for (unsigned more = below(3); more; more--) {
    struct columns own = columns_of(&b, keys, chunk, &axis, AXIS_SERIAL);
    struct columns other = columns_of(&b, keys, chunk, &axis, AXIS_REDUCE);
    struct uop *row = mul(b.in, ix(stride)), *whole = load(at(now, add(row, other.at))), *s = own.at;
    enum op op = chance(50) ? OP_MAX : OP_ADD;
    struct uop *most = reduce(op, if_needed(&other, op, whole), other.range, other.n),
               *to = local(&b, (int)n, t, block * keys);
    v = uop_binary(G, OP_CMPLT, load(at(now, add(row, s))), most);
    v = uop_where(G, v, uop_const_int(G, sum, 1), uop_const_int(G, sum, 2));
    if (chance(50)) v = add(v, load(at(now, add(row, s))));
    if (chance(30)) v = uop_where(G, uop_binary(G, OP_CMPLT, s, b.row), v, uop_const_int(G, sum, 0));
    phase[n++] = sink1(store(at_needed(to, add(mul(b.in, ix(keys)), s), &own), uop_cast(G, v, t)));
    now = to, stride = keys;
    if (t != sum) break;
  }

  struct uop *c = range(width, axis++, AXIS_LOOP);
  struct columns e = columns_of(&b, keys, chunk, &axis, AXIS_REDUCE);
  x = load(at_needed(now, add(mul(b.in, ix(stride)), e.at), &e));
  v = mul(uop_cast(G, x, sum), uop_cast(G, element(&m, &b, t, e.at, keys, c, width), sum));
  v = reduce(OP_ADD, v, e.range, e.n);
  if (chance(30)) v = add(v, element(&m, &b, sum, b.row, rows, c, width));
  phase[n++] = sink1(store(at(out, add(mul(add(mul(b.head, ix(rows)), b.row), ix(width)), c)), v));
  memcpy(phase + n, b.around, b.naround * sizeof *phase);
  k.ast = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 1, phase, n + b.naround);
  return k;
}

/* A memory that is carried from round to round if op is not 0. */
static struct uop *shared_local(const struct blocks *b, int number, enum dtype t, int64_t n, struct uop *round,
                                unsigned op) {
  struct uop *src[4] = {ix(n)};
  unsigned nsrc = 1;
  for (unsigned i = 0; i < b->naround; i++) src[nsrc++] = b->around[i];
  if (!op) src[nsrc++] = round;
  return uop_new(G, OP_LOCAL, t, 1, (union uop_arg){.i = number}, op, src, nsrc);
}

/* out = (f(a b) c) + maximum of each row + sum of each row, by rounds over the columns of f(a b). */
static struct random_kernel random_rounds(uint64_t number) {
  struct random_kernel k = {.seed = number, .nouts = 1};
  struct random_maker m = {.k = &k};
  random_state = number * UINT64_C(0x9fb21c651e98df25) + 11;
  static const enum dtype types[] = {DT_F32, DT_F32, DT_BF16, DT_F16, DT_F16, DT_I32};
  enum dtype t = types[below(sizeof types / sizeof *types)], sum = dtype_is_float(t) ? DT_F32 : t;
  int64_t rows = random_size(48), keys = random_size(80), depth = random_size(20), width = random_size(40);
  int64_t block = 1 + below((unsigned)(rows < 40 ? rows : 40)), columns = 1 + below(36), pad = below(9);
  int64_t stride = columns + pad, all = (keys + columns - 1) / columns;
  int axis = 0;
  struct blocks b = blocks_of(chance(40) ? 2 + below(2) : 1, rows, block, &axis);
  struct uop *out = random_param(&m, sum, b.heads * rows * width, 0), *phase[4 + 3], *bound = ix(all);
  if (chance(30)) { /* only the first columns: min(all, (first row + columns) / columns) */
    bound = uop_binary(G, OP_IDIV, add(b.first, ix(columns)), ix(columns));
    bound = uop_unary(G, OP_NEG, uop_binary(G, OP_MAX, uop_unary(G, OP_NEG, bound), ix(-all)));
  }
  struct uop *round = uop_range(G, bound, axis++, AXIS_ORDERED), *first = mul(round, ix(columns));
  struct uop *wide = shared_local(&b, 0, t, block * stride, round, 0);
  struct uop *most = shared_local(&b, 1, sum, block, round, OP_MAX),
             *total = shared_local(&b, 2, sum, block, round, OP_ADD);
  struct uop *products = shared_local(&b, 3, sum, block * (width + pad), round, OP_ADD);
  unsigned n = 0;

  struct uop *j = range(columns, axis++, AXIS_LOOP), *d = range(depth, axis++, AXIS_REDUCE), *over[1] = {d};
  struct uop *x = element(&m, &b, t, b.row, rows, d, depth),
             *y = element(&m, &b, t, d, depth, add(first, j), all * columns);
  struct uop *v = reduce(OP_ADD, mul(uop_cast(G, x, sum), uop_cast(G, y, sum)), over, 1);
  v = uop_where(G, uop_binary(G, OP_CMPLT, add(first, j), ix(keys)), v, uop_const_int(G, sum, 0));
  phase[n++] = sink1(store(at(wide, add(mul(b.in, ix(stride)), j)), uop_cast(G, v, t)));

  if (chance(40)) { /* at least a value of each column, which its rows share */
    struct uop *i = range(columns, axis++, AXIS_LOOP), *least = random_param(&m, t, b.heads * all * columns, 0);
    least = load(at(least, add(mul(b.head, ix(all * columns)), add(first, i))));
    v = uop_binary(G, OP_MAX, load(at(wide, add(mul(b.in, ix(stride)), i))), least);
    wide = shared_local(&b, 4, t, block * stride, round, 0);
    phase[n++] = sink1(store(at(wide, add(mul(b.in, ix(stride)), i)), v));
  }

  struct uop *r = range(columns, axis++, AXIS_REDUCE);
  v = uop_cast(G, load(at(wide, add(mul(b.in, ix(stride)), r))), sum), over[0] = r;
  struct uop *to[2] = {at(most, b.in), at(total, b.in)};
  struct uop *rest[2] = {store(to[0], uop_binary(G, OP_MAX, load(to[0]), reduce(OP_MAX, v, over, 1))),
                         store(to[1], add(load(to[1]), reduce(OP_ADD, v, over, 1)))};
  phase[n++] = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, rest, 2);

  struct uop *c = range(width, axis++, AXIS_LOOP), *e = range(columns, axis++, AXIS_REDUCE);
  x = load(at(wide, add(mul(b.in, ix(stride)), e))), over[0] = e;
  y = element(&m, &b, t, add(first, e), all * columns, c, width);
  v = reduce(OP_ADD, mul(uop_cast(G, x, sum), uop_cast(G, y, sum)), over, 1);
  struct uop *sums = at(products, add(mul(b.in, ix(width + pad)), c)), *share = load(to[chance(50)]);
  v = add(chance(50) ? mul(load(sums), uop_const_int(G, sum, 2)) : load(sums), v);
  struct uop *index = at(out, add(mul(add(mul(b.head, ix(rows)), b.row), ix(width)), c));
  struct uop *last[2] = {store(index, add(load(sums), share)), store(sums, v)};
  phase[n++] = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, last, 2);
  memcpy(phase + n, b.around, b.naround * sizeof *phase);
  phase[n + b.naround] = round;
  k.ast = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 1, phase, n + b.naround + 1);
  return k;
}

/* ---- random plans ----------------------------------------------------------------------------------------------- */

static void collect_or_fail(bool ok, const struct codegen *k, uint64_t number) {
  if (!ok) fail_msg("seed %lu: %s", (unsigned long)number, k->err);
}

/* A plan for the ranges around the phases, and one for each phase. The caller frees it. */
static char *random_plans(const struct random_kernel *r, const struct target *t) {
  char err[256] = "", *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  struct codegen *k = calloc(2, sizeof *k), *p = k + 1;
  *k = (struct codegen){.g = graph_new(), .target = t, .stage = "collect", .err = err, .errcap = sizeof err};
  k->ast = uop_import(k->g, r->ast);
  random_state = r->seed * UINT64_C(0xa0761d6478bd642f) + 5;
  collect_or_fail(axes_collect_shared(k), k, r->seed);
  random_steps(k, r);
  plan_print(f, &k->plan);
  for (unsigned i = 0; k->ast->src[i]->op == OP_SINK; i++) {
    *p = (struct codegen){
        .g = k->g, .target = t, .ast = k->ast->src[i], .is_phase = true, .stage = "collect", .err = err, .errcap = 256};
    collect_or_fail(axes_collect_phase(p, k), p, r->seed);
    random_steps(p, r);
    fputs(" | ", f);
    plan_print(f, &p->plan);
    if (i + 1 == k->ast->nsrc) break;
  }
  fclose(f);
  graph_free(k->g);
  free(k);
  return text;
}

enum { BATCH = 60, TARGETS = 3 };

struct made {
  struct random_kernel k;
  struct random_memories want;
  struct compiler *c[TARGETS];
  const struct kernel *kernel[TARGETS]; /* NULL: the plan is not possible */
  char *plan[TARGETS];
};

/* Whether a plan fails only because of what several phases have in common. */
static bool is_too_much(const char *why) {
  return strstr(why, "partly idle cannot share a copy") || strstr(why, "more local memory than");
}

static void compile_random(struct made *m, unsigned i, unsigned target, struct c_library *l) {
  static const char *const arch[TARGETS] = {HOST_ARCH, "gfx1100", "sm_80"};
  const struct target *t = target_find(arch[target]);
  char err[512], id[32];
  m->plan[target] = random_plans(&m->k, t);
  m->c[target] = compiler_new(&(struct compiler_options){.debug = 4, .spec = true, .lower_only = target > 0});
  const struct kernel *k = compiler_compile_by(m->c[target], t, m->k.ast, m->plan[target], err, sizeof err);
  m->kernel[target] = k;
  if (!k && target && is_too_much(err)) return;
  if (!k) fail_msg("seed %lu on %s: %s\nplan: %s", (unsigned long)m->k.seed, arch[target], err, m->plan[target]);
  assert_string_equal(k->plan, m->plan[target]);
  snprintf(id, sizeof id, "%u_%u", i, target);
  c_library_add(l, k, id);
}

static unsigned batch(unsigned from, unsigned count) {
  unsigned failures = 0;
  struct c_library l;
  struct made *made = calloc(BATCH, sizeof *made);
  char err[512], id[32];
  assert_true(c_library_begin(&l, "test_phases"));
  for (unsigned i = 0; i < count; i++) {
    struct made *m = &made[i];
    m->k = (from + i) % 2 ? random_phases(from + i) : random_rounds(from + i), m->want = random_memories(&m->k);
    reference(m->k.ast, m->want.p, 0);
    for (unsigned t = 0; t < TARGETS; t++) compile_random(m, i, t, &l);
  }
  assert_true(c_library_end(&l, "-O0"));
  for (unsigned i = 0; i < count; i++) {
    struct made *m = &made[i];
    for (unsigned way = 0; way < 1 + TARGETS; way++) { /* the host's image, then the C texts */
      struct random_memories got = random_memories(&m->k);
      unsigned t = way ? way - 1 : 0;
      snprintf(id, sizeof id, "%u_%u", i, t);
      if (way && m->kernel[t])
        c_run(&l, id, m->kernel[t], got.p, 0);
      else if (m->kernel[t])
        run_host(m->kernel[t], got.p, 0);
      if (m->kernel[t] && !random_equal(&m->k, &got, &m->want, true, err, sizeof err)) {
        fprintf(stderr, "seed %u by its %s: %s\nplan: %s\n", from + i, way ? m->kernel[t]->c_text : "image", err,
                m->plan[t]);
        failures++;
      }
      random_free(&m->k, &got);
    }
    for (unsigned t = 0; t < TARGETS; t++) compiler_free(m->c[t]), free(m->plan[t]);
    random_free(&m->k, &m->want);
  }
  c_library_free(&l);
  free(made);
  return failures;
}

static void random_phases_by_random_plans(void **state) {
  const char *seed_text = getenv("PHASES_SEED"), *from_text = getenv("PHASES_FROM"), *n = getenv("PHASES_COUNT");
  unsigned from = seed_text ? (unsigned)atoi(seed_text) : from_text ? (unsigned)atoi(from_text) : 1, failures = 0;
  unsigned count = seed_text ? 1 : n ? (unsigned)atoi(n) : COUNT;
  for (unsigned i = 0; i < count; i += BATCH) failures += batch(from + i, count - i < BATCH ? count - i : BATCH);
  assert_int_equal(failures, 0);
}

/* The number of rounds is a quotient, which is simpler in the plan of a phase with tile registers. */
static void quotients_of_rounds(void **state) { assert_int_equal(batch(1108, 1) + batch(2044, 1), 0); }

/* ---- searched plans --------------------------------------------------------------------------------------------- */

/* Sets a bit for each section in which plan differs from first. */
static unsigned changed_sections(const char *plan, const char *first) {
  unsigned changed = 0;
  for (unsigned i = 0;; i++) {
    size_t n = strcspn(plan, "|"), m = strcspn(first, "|");
    if (n != m || memcmp(plan, first, n) != 0) changed |= 1u << i;
    if (!plan[n] || !first[m]) return changed;
    plan += n + 1, first += m + 1;
  }
}

/* Searches the plans of a kernel by made up times. Returns changed_sections of all its plans. */
static unsigned search_phases(uint64_t number) {
  struct random_kernel k = random_phases(number);
  struct random_memories want = random_memories(&k);
  struct beam_options o = {.width = 2, .proposals = 12, .rounds = 3};
  char err[512], *first = NULL;
  struct beam *b = beam_new(&(struct compiler_options){.spec = true}, target_find(HOST_ARCH), k.ast, &o, err, 512);
  if (!b) fail_msg("seed %lu: %s", (unsigned long)number, err);
  reference(k.ast, want.p, 0);
  const char *const *plans;
  bool again;
  unsigned changed = 0;
  for (unsigned n; (n = beam_round(b, &plans, &again)) > 0;) {
    const struct kernel *const *kernels = beam_compile(b);
    double seconds[64];
    if (!first) first = strdup(plans[0]);
    for (unsigned i = 0; i < n; i++) {
      struct random_memories got = random_memories(&k);
      if (!kernels[i]) fail_msg("seed %lu: '%s' does not compile", (unsigned long)number, plans[i]);
      assert_string_equal(kernels[i]->plan, plans[i]);
      run_host(kernels[i], got.p, 0);
      if (!random_equal(&k, &got, &want, true, err, sizeof err))
        fail_msg("seed %lu by '%s': %s", (unsigned long)number, plans[i], err);
      random_free(&k, &got);
      changed |= changed_sections(plans[i], first);
      seconds[i] = made_up(plans[i]);
    }
    beam_measured(b, seconds);
  }
  assert_non_null(strchr(beam_best(b, NULL), '|'));
  beam_free(b);
  random_free(&k, &want);
  free(first);
  return changed;
}

/* A search varies the plans of the axes around the phases and of each phase. */
static void searched_plans(void **state) {
  unsigned changed = 0;
  for (uint64_t number = 1; number <= 6; number++) changed |= search_phases(number);
  assert_int_equal(changed & 7, 7);
}

/* ---- errors --------------------------------------------------------------------------------------------------------
 */

static void refused(void **state) {
  static const struct {
    const char *arch, *plan, *says;
  } cases[] = {
      {"gfx1100", " | group b:2", "work-items do not share the reductions of phases"},
      {HOST_ARCH, "serial a:2", "axes around phases can only become workgroups"},
      {HOST_ARCH, " | thread a:2", "a workgroup runs all of a phase"},
      {HOST_ARCH, "", "the plan has 1 of "},
  };
  struct random_kernel k = random_phases(3);
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    char err[512] = "";
    struct compiler *c = compiler_new(&(struct compiler_options){.spec = true});
    const struct target *t = target_find(cases[i].arch);
    const struct kernel *made = cases[i].plan ? compiler_compile_by(c, t, k.ast, cases[i].plan, err, sizeof err)
                                              : compiler_compile(c, t, k.ast, err, sizeof err);
    if (made || !strstr(err, cases[i].says)) fail_msg("'%s', not '%s'", err, cases[i].says);
    compiler_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_phases_by_random_plans),
                                     cmocka_unit_test(quotients_of_rounds), cmocka_unit_test(searched_plans),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests_name("compiler/phases", tests, setup, teardown);
}
