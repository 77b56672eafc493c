/* The rewriting engine with hand-made rule sets, and the rule generator: the errors that it reports, with their
 * positions, and a file with every feature of the notation, compiled and run. */
#include "graph/rewrite_log.h"
#include "graph/rules.h"
#include "tensor.h"
#include "tests/sanitizers.h"
#include <libgen.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the engine ------------------------------------------------------------------------------ */
static unsigned calls;
static struct uop *rule_neg(struct graph *h, void *ctx, struct uop *u) {
  calls++;
  return u->src[0]->op == OP_NEG ? u->src[0]->src[0] : NULL;
}
static struct uop *rule_wrap(struct graph *h, void *ctx,
                             struct uop *u) { /* sin(x) -> sin(x) + 1, which contains sin(x) */
  return uop_binary(h, OP_ADD, u, uop_const_float(h, DT_F32, 1));
}
static struct uop *rule_flip(struct graph *h, void *ctx, struct uop *u) {
  return uop_binary(h, OP_SUB, u->src[1], u->src[0]);
} /* undoes the previous rule */
static struct uop *rule_grow(struct graph *h, void *ctx, struct uop *u) { /* endless: a new constant each time */
  return uop_binary(h, OP_MUL, u->src[0], uop_const_float(h, DT_F32, fval(u->src[1]) + 1));
}
static struct uop *rule_context(struct graph *h, void *ctx, struct uop *u) {
  return uop_const_float(h, DT_F32, *(double *)ctx);
}

static const struct rule hand_rules[] = {{"neg", 1, rule_neg},
                                         {"wrap", 2, rule_wrap},
                                         {"flip", 3, rule_flip},
                                         {"grow", 4, rule_grow},
                                         {"context", 5, rule_context}};
static struct rule_stats hand_stats[5];
static struct uop *hand_apply(struct graph *h, void *ctx, struct uop *u) {
  switch (u->op) {
  case OP_NEG: return rule_neg(h, ctx, u);
  case OP_SIN: return rule_wrap(h, ctx, u);
  case OP_SUB: return rule_flip(h, ctx, u);
  case OP_MUL: return rule_grow(h, ctx, u);
  case OP_SQRT: return rule_context(h, ctx, u);
  default: return NULL;
  }
}
static const struct ruleset hand = {"hand",
                                    "test",
                                    hand_rules,
                                    5,
                                    hand_apply,
                                    {[OP_NEG] = (uint16_t[]){0, UINT16_MAX},
                                     [OP_SIN] = (uint16_t[]){1, UINT16_MAX},
                                     [OP_SUB] = (uint16_t[]){2, UINT16_MAX},
                                     [OP_MUL] = (uint16_t[]){3, UINT16_MAX},
                                     [OP_SQRT] = (uint16_t[]){4, UINT16_MAX}},
                                    hand_stats};
static const struct ruleset *const hand_set[] = {&hand, NULL};

static void test_engine(void **state) {
  start();
  struct uop *x = buffer(DT_F32, 4), *y = x;
  for (int i = 0; i < 100000; i++) y = uop_unary(g, OP_NEG, y);
  calls = 0;
  assert_ptr_equal(graph_rewrite(g, y, hand_set, NULL), x);
  assert_true(calls <= 100000); /* each node once */
  assert_ptr_equal(graph_rewrite(g, uop_unary(g, OP_NEG, y), hand_set, NULL), uop_unary(g, OP_NEG, x));

  y = x;
  for (int i = 0; i < 300; i++) y = add(y, y); /* 2^300 paths */
  y = uop_unary(g, OP_NEG, uop_unary(g, OP_NEG, y));
  assert_ptr_equal(graph_rewrite(g, y, hand_set, NULL), y->src[0]->src[0]);

  struct uop *sin = uop_unary(g, OP_SIN, x);
  assert_ptr_equal(graph_rewrite(g, sin, hand_set, NULL), add(sin, num(1)));
  double seven = 7;
  struct uop *all = graph_rewrite(g, uop_unary(g, OP_SQRT, x), hand_set, &seven); /* a scalar is expanded */
  assert_ptr_equal(all, EXPAND(RESHAPE(num(7), 1), 4));
  assert_ptr_equal(graph_rewrite(g, uop_unary(g, OP_SQRT, num(2)), hand_set, &seven), num(7));
  assert_null(graph_error(g));

  graph_rewrite(g, sub(x, num(1)), hand_set, NULL); /* rules that undo each other terminate */
  assert_null(graph_error(g));
  graph_rewrite(g, mul(x, num(1)), hand_set, NULL);
  assert_non_null(graph_error(g));
  assert_non_null(strstr(graph_error(g), "do not reach a fixed point"));
  forget();
}

static void test_memory(void **state) {
  start();
  struct rewriter *r = rewriter_new(g, hand_set, NULL);
  struct uop *x = buffer(DT_F32, 4), *nn = uop_unary(g, OP_NEG, uop_unary(g, OP_NEG, x));
  assert_ptr_equal(rewriter_run(r, nn), x);
  calls = 0;
  assert_ptr_equal(rewriter_run(r, nn), x);
  assert_ptr_equal(rewriter_run(r, add(nn, nn)), add(x, x));
  assert_int_equal(calls, 0);
  rewriter_free(r);
  forget();
}

static void test_stats(void **state) {
  start();
  struct uop *x = buffer(DT_F32, 4), *nn = uop_unary(g, OP_NEG, uop_unary(g, OP_NEG, x)),
             *r = uop_range(g, uop_index(g, 6), 0, AXIS_LOOP);
  memset(hand_stats, 0, sizeof hand_stats);
  graph_rewrite(g, nn, hand_set, NULL);
  assert_int_equal(hand_stats[0].attempts, 0);
  graph_match_stats(2);
  assert_ptr_equal(graph_rewrite(g, nn, hand_set, NULL), x);
  assert_ptr_equal(graph_rewrite(g, uop_binary(g, OP_MOD, r, uop_index(g, 6)), rules_simplify, NULL), r);
  graph_match_stats(0);
  assert_int_equal(hand_stats[0].attempts, 2);
  assert_int_equal(hand_stats[0].matches, 1);
  assert_true(hand_stats[0].ns > 0);
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  graph_match_stats_print(f);
  fclose(f);
  assert_non_null(strstr(text, "test:1 neg"));
  assert_non_null(strstr(text, "(MOD x #c)"));
  assert_non_null(strstr(text, "all of symbolic"));
  free(text);
  forget();
}

static struct uop *rule_bad_type(struct graph *h, void *ctx, struct uop *u) { return uop_cast(h, u->src[0], DT_I32); }
static struct uop *rule_good_type(struct graph *h, void *ctx, struct uop *u) { return u->src[0]; }

/* With checks on, a rule that changes the type is reported by name; with checks off it is not, and correct rules never
 * are. */
static void test_checked_rewrites(void **state) {
  static const struct rule bad[] = {{"(NEG x) => x", 7, rule_good_type}, {"(SIN x) => (CAST:i32 x)", 8, rule_bad_type}};
  static struct rule_stats stats[2];
  const struct ruleset set = {
      .name = "bad",
      .file = "bad.rules",
      .rule = bad,
      .nrules = 2,
      .stats = stats,
      .by_op = {[OP_NEG] = (uint16_t[]){0, UINT16_MAX}, [OP_SIN] = (uint16_t[]){1, UINT16_MAX}}};
  const struct ruleset *const sets[] = {&set, NULL};
  start();
  graph_check_rewrites(true);
  struct uop *x = buffer(DT_F32, 4);
  graph_rewrite(g, uop_unary(g, OP_NEG, x), sets, NULL);
  assert_null(graph_error(g));
  graph_rewrite(g, uop_unary(g, OP_SIN, x), sets, NULL);
  graph_check_rewrites(false);
  assert_non_null(graph_error(g));
  assert_non_null(strstr(graph_error(g), "bad.rules:8 (SIN x) => (CAST:i32 x)"));
  assert_non_null(strstr(graph_error(g), "of type f32 becomes"));
  forget();
}

/* The log has the rewrites of the thread that asked for it, while it asks. */
static void test_rewrite_log(void **state) {
  static const char *const stage = "here";
  struct rewrite_log log;
  start();
  struct uop *x = buffer(DT_I32, 4), *zero = uop_const_int(g, DT_I32, 0);
  struct uop *sum = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, x, uop_const_int(g, DT_I32, 1)), zero);
  rewrite_log_begin(&log, &stage);
  assert_ptr_equal(graph_rewrite(g, sum, rules_simplify, NULL), x);
  char *text = rewrite_log_end(&log);
  assert_non_null(strstr(text, "here\tgraph/rules/algebra.rules:"));
  assert_non_null(strstr(text, "(MUL:int x #1) => x\t(b1*1)\tb1\n"));
  assert_non_null(strstr(text, "(ADD:int x #0) => x\t(b1+0)\tb1\n"));
  free(text);
  graph_rewrite(g, sum, rules_simplify, NULL);
  assert_null(rewrite_log_end(&(struct rewrite_log){0}));
  forget();
}

/* A vector is never replaced by a scalar: constants are widened, other replacements of another width are ignored. */
static void test_lanes(void **state) {
  start();
  struct uop *lanes = uop_new(g, OP_CONST, DT_F32, 4, (union uop_arg){.f = 3}, 0, NULL, 0);
  struct uop *v = uop_new(g, OP_SQRT, DT_F32, 4, (union uop_arg){0}, 0, &lanes, 1);
  double two = 2;
  struct uop *w = graph_rewrite(g, v, hand_set, &two);
  assert_int_equal(w->op, OP_CONST);
  assert_int_equal(w->lanes, 4);
  struct uop *one = uop_new(g, OP_CONST, DT_I32, 4, (union uop_arg){.i = 0}, 0, NULL, 0), *x = buffer(DT_I32, 1);
  struct uop *sum = add(x, one);
  assert_int_equal(sum->lanes, 4);
  assert_ptr_equal(graph_rewrite(g, sum, rules_simplify, NULL), sum);
  forget();
}

/* ---- the generator --------------------------------------------------------------------------- */
static char build[2048], folder[] = "/tmp/rulesXXXXXX";

static int group_setup(void **state) {
  ssize_t n = readlink("/proc/self/exe", build, sizeof build - 1);
  if (n <= 0 || !mkdtemp(folder)) return -1;
  build[n] = 0;
  for (int i = 0; i < 3; i++) dirname(build); /* BUILD/tests/graph/test_rules */
  return 0;
}
static int group_teardown(void **state) {
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static void write_file(const char *name, const char *text) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
}

static int run(char *said, size_t cap, const char *fmt, ...) {
  char command[8192];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(command, sizeof command, fmt, ap);
  va_end(ap);
  FILE *p = popen(command, "r");
  assert_non_null(p);
  size_t n = fread(said, 1, cap - 1, p);
  said[n] = 0;
  int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_generator_errors(void **state) {
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"set a\n(FOO x) => x\n", ":2: unknown op or set of ops: FOO"},
      {"set a\n\n(ADD x) => x\n", ":3: ADD has 2 sources, not 1"},
      {"set a\n(ADD x y) => z\n", ":2: the pattern does not bind z"},
      {"set a\n(ADD x y => x\n", ": unexpected '='"},
      {"set a\n(ADD x\n", ":2: no closing ')'"},
      {"set a\n(ADD x:i33 y) => x\n", ":2: unknown type or class of types: i33"},
      {"set a\n(ADD x #c) => (ADD x #c)\n", ":2: #c binds a constant; in a replacement write c"},
      {"set a\n(ADD x 3) => x\n", ":2: a constant is written #3"},
      {"set a\n(ADD x #3x) => x\n", ":2: #3x is not a number"},
      {"set a\n(ADD x y) && lo(x) > 0\n", ":2: a condition without =>"},
      {"set a\n(ADD x y) x\n", ":2: expected && or => after the pattern"},
      {"set a\n(ADD x y) => ({ADD SUB} x y)\n", ":2: a replacement needs one op"},
      {"set a\n(CAST x) => (CAST x)\n", ":2: CAST needs a type here"},
      {"set a\n(ADD x y) => (CAST:what x)\n", ":2: what is neither a type nor a name of the pattern"},
      {"set a\n(SINK ... x) => x\n", ":2: ... must be the last source"},
      {"set a\n(ADD x y) => _\n", ":2: _ is not possible in a replacement"},
      {"set a\n(ADD g y) => y\n", ":2: g already has a meaning"},
      {"set a\n(ADD x y) => {foo(\n", ":2: no closing '}'"},
      {"(ADD x y) => x\n", ":1: a rule before `set NAME`"},
      {"set a\nset b\n", ":2: a second `set` in one file"},
      {"set a\n#define X\n", ":2: #define is not a directive"},
      {"set a\nbogus\n", ":2: bogus is neither a rule nor a directive"},
      {"set a\n// nothing\n", ":3: no rules"},
      {"", ":1: `set NAME` is missing"},
      {"set a\nlet X {ADD}\n", ":2: expected let NAME = {OPS}"},
      {"set a\n(ADD x y)[1] => x\n", ":2: expected && or =>"},
      {"set a\n(REDUCE[1] x) => x\n", ":2: [...] belongs in a replacement"},
      {"set a\n$\n", ":2: unexpected '$'"},
      {"set a\n(ADD x y) => x = (NEG y) x\n", ":2: x is bound already"},
      {"set a\n(ADD x y) => z = w (NEG z)\n", ":2: the pattern does not bind w"},
      {"set a\n(ADD x y) => z = (NEG y)\n", "unexpected end of file"},
      {"set a\ngiven x {y}\n", ":2: expected given NAME = {C}"},
      {"set a\ngiven x = y\n", ":2: expected '{' after given x ="},
      {"set a\n(ADD x y) => q: y\n", ":2: the pattern does not bind q"},
      {"set a\n(ADD x y) => x: y, y\n", ":2: expected a name and ':' after ','"},
  };
  char said[2000], path[300];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file("bad.rules", cases[i].text);
    int rc = run(said, sizeof said, "%s/rulegen %s/bad.rules %s/bad.c 2>&1", build, folder, folder);
    if (rc != 1 || !strstr(said, cases[i].says))
      fail_msg("%s: exit %d, said \"%s\", not \"%s\"", cases[i].text, rc, said, cases[i].says);
    snprintf(path, sizeof path, "%s/bad.c", folder);
    assert_int_equal(access(path, F_OK), -1);
  }
  assert_int_equal(run(said, sizeof said, "%s/rulegen 2>&1", build), 2);
  assert_int_equal(run(said, sizeof said, "%s/rulegen %s/absent.rules %s/bad.c 2>&1", build, folder, folder), 1);
  assert_non_null(strstr(said, "absent.rules"));
}

static const char probe_rules[] =
    "// a comment\n#include \"probe.h\"\nset probe\nlet SHIFT = {SHL SHR}\n"
    "(SUB x x) => #0\n"
    "(MUL (ADD x #a) #b) && ival(a) ==\n   ival(b) => (ADD (MUL x b) {helper(g, ctx, a)}) // two lines\n"
    "(SHIFT:i32 x #0) => x\n"
    "({EXP2 LOG2} x) => (CMPLT x #2:x)\n"
    "(WHERE c@(CMPLT a b) t f) && c->op == OP_CMPLT && root->op == OP_WHERE => (WHERE (CMPLT b a) f t)\n"
    "(SINK s ...) && root->nsrc > 1 => (SINK:void s)\n"
    "(REDUCE v:f32|f64 r) => (REDUCE[root->aux] (NEG v) r)\n"
    "(GEP x) => (GEP:x[0, root->arg.i + 1] x)\n"
    "(IDIV _ #-7) => #-1\n"
    "(MAX:float x #-0.0) => #0.5\n"
    "(CAST x:uint) => (CAST:f64 (CAST:i32 x))\n"
    "(BITCAST x:f32) =>\n  u = (BITCAST:i32 x) // named, used twice\n  top = (SHR u #23)\n"
    "  (BITCAST:root (WHERE (CMPLT x #0x1p-2) (ADD top #-0x7) (SUB u #0x7fffffff)))\n";

static const char probe_main[] =
    "#include \"probe.h\"\n#include <stdio.h>\n#include <stdlib.h>\nextern const struct ruleset rules_probe;\n"
    "#define CHECK(x) do { if (!(x)) { printf(\"line %d: %s\\n\", __LINE__, #x); exit(1); } } while (0)\n"
    "struct uop *helper(struct graph *g, void *ctx, struct uop *c) { return uop_const_int(g, c->dtype, ival(c) * "
    "*(int *)ctx); }\n"
    "static struct graph *g; static int ten = 10;\n"
    "static struct uop *try(struct uop *u) { return rules_probe.apply(g, &ten, u); }\n"
    "int main(void) {\n  g = graph_new();\n  struct uop *n = uop_var(g, \"n\", 0, 9), *m = uop_var(g, \"m\", 0, 9), "
    "*three = uop_index(g, 3);\n"
    "  struct uop *x = uop_new(g, OP_VAR, DT_F32, 1, (union uop_arg){.s = \"x\"}, 0, NULL, 0), *i = uop_new(g, "
    "OP_VAR, DT_I32, 1, (union uop_arg){.s = \"i\"}, 0, NULL, 0);\n"
    "  CHECK(try(uop_binary(g, OP_SUB, n, n)) == uop_index(g, 0));\n  CHECK(!try(uop_binary(g, OP_SUB, n, m)));\n"
    "  struct uop *want = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, n, three), uop_index(g, 30));\n"
    "  for (int k = 0; k < 4; k++) { struct uop *a = k & 1 ? uop_binary(g, OP_ADD, three, n) : uop_binary(g, OP_ADD, "
    "n, three);\n"
    "    CHECK(try(k & 2 ? uop_binary(g, OP_MUL, three, a) : uop_binary(g, OP_MUL, a, three)) == want); }\n"
    "  CHECK(!try(uop_binary(g, OP_MUL, uop_binary(g, OP_ADD, n, three), uop_index(g, 4))));\n"
    "  struct uop *zero = uop_const_int(g, DT_I32, 0);\n  CHECK(try(uop_binary(g, OP_SHL, i, zero)) == i && "
    "try(uop_binary(g, OP_SHR, i, zero)) == i);\n"
    "  CHECK(!try(uop_binary(g, OP_SHL, n, uop_index(g, 0))));\n"
    "  CHECK(try(uop_unary(g, OP_LOG2, x)) == uop_binary(g, OP_CMPLT, x, uop_const_float(g, DT_F32, 2)));\n"
    "  CHECK(try(uop_where(g, uop_binary(g, OP_CMPLT, n, m), n, m)) == uop_where(g, uop_binary(g, OP_CMPLT, m, n), "
    "m, n));\n"
    "  struct uop *src[] = {n, m};\n  CHECK(!try(uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, src, 1)));\n"
    "  CHECK(try(uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, src, 2)) == uop_new(g, OP_SINK, DT_VOID, 1, "
    "(union uop_arg){0}, 0, src, 1));\n"
    "  struct uop *r[] = {x, uop_range(g, three, 0, AXIS_REDUCE)}, *nr[] = {uop_unary(g, OP_NEG, x), r[1]};\n"
    "  CHECK(try(uop_new(g, OP_REDUCE, DT_F32, 1, (union uop_arg){0}, OP_MAX, r, 2)) == uop_new(g, OP_REDUCE, "
    "DT_F32, 1, (union uop_arg){0}, OP_MAX, nr, 2));\n"
    "  CHECK(try(uop_new(g, OP_GEP, DT_F32, 1, (union uop_arg){.i = 1}, 0, &x, 1)) == uop_new(g, OP_GEP, DT_F32, 1, "
    "(union uop_arg){.i = 2}, 0, &x, 1));\n"
    "  CHECK(try(uop_binary(g, OP_IDIV, i, uop_const_int(g, DT_I32, -7))) == uop_const_int(g, DT_I32, -1));\n"
    "  CHECK(try(uop_binary(g, OP_MAX, uop_const_float(g, DT_F32, -0.0), x)) == uop_const_float(g, DT_F32, 0.5));\n"
    "  CHECK(!try(uop_binary(g, OP_MAX, x, uop_const_float(g, DT_F32, 0))));\n"
    "  struct uop *b = uop_const_int(g, DT_U8, 3);\n  CHECK(try(uop_cast(g, b, DT_F64)) == uop_cast(g, uop_cast(g, "
    "b, DT_I32), DT_F64));\n"
    "  struct uop *u = uop_new(g, OP_BITCAST, DT_I32, 1, (union uop_arg){0}, 0, &x, 1), *top = uop_binary(g, OP_SHR, "
    "u, uop_const_int(g, DT_I32, 23));\n"
    "  struct uop *low = uop_binary(g, OP_CMPLT, x, uop_const_float(g, DT_F32, 0.25)), *pick = uop_where(g, low, "
    "uop_binary(g, OP_ADD, top, uop_const_int(g, DT_I32, -7)), uop_binary(g, OP_SUB, u, uop_const_int(g, DT_I32, "
    "INT32_MAX)));\n"
    "  CHECK(try(uop_new(g, OP_BITCAST, DT_U32, 1, (union uop_arg){0}, 0, &x, 1)) == uop_new(g, OP_BITCAST, DT_U32, "
    "1, (union uop_arg){0}, 0, &pick, 1));\n"
    "  CHECK(strcmp(rules_probe.rule[11].text, \"(BITCAST x:f32) => u = (BITCAST:i32 x) top = (SHR u #23) "
    "(BITCAST:root (WHERE (CMPLT x #0x1p-2) (ADD top #-0x7) (SUB u #0x7fffffff)))\") == 0);\n"
    "  CHECK(rules_probe.nrules == 12 && rules_probe.rule[1].line == 6);\n  graph_free(g);\n  puts(\"fine\");\n  "
    "return 0;\n}\n";

/* The notation's features, one rule each, in a separate program. */
static void test_generator_features(void **state) {
  write_file("probe.h", "#include \"graph/rules.h\"\nstruct uop *helper(struct graph *g, void *ctx, struct uop *c);\n");
  write_file("probe.rules", probe_rules);
  write_file("main.c", probe_main);
  char said[4000];
  int rc = run(said, sizeof said, "%s/rulegen %s/probe.rules %s/probe.c 2>&1", build, folder, folder);
  if (rc) fail_msg("rulegen: %s", said);
#ifdef ADDRESS_SANITIZER
  const char *sanitize = "-fsanitize=address,undefined";
#elif defined(THREAD_SANITIZER)
  const char *sanitize = "-fsanitize=thread";
#else
  const char *sanitize = "";
#endif
  rc = run(said, sizeof said,
           "%s -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers %s -I%s -I%s/../.. "
           "%s/main.c %s/probe.c %s/libgraph_part.a -lm -pthread -o %s/probe 2>&1",
           TEST_CC, sanitize, folder, DATA_DIR, folder, folder, build, folder);
  if (rc || *said) fail_msg("%s", said);
  rc = run(said, sizeof said, "%s/probe 2>&1", folder);
  assert_string_equal(said, "fine\n");
  assert_int_equal(rc, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_engine),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_stats),
      cmocka_unit_test(test_checked_rewrites),
      cmocka_unit_test(test_rewrite_log),
      cmocka_unit_test(test_lanes),
      cmocka_unit_test(test_generator_errors),
      cmocka_unit_test(test_generator_features),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
