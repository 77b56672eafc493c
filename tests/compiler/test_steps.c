/* Plans as text, and single steps: a recorded plan rebuilds its kernel, a wrong one is rejected with a reason. */
#include "kernels.h"
#include "compiler/plan/plan.h"

static struct compiler *chosen;

static int setup(void **state) {
  G = graph_new();
  make_cases();
  chosen = compiler_new(&(struct compiler_options){.debug = 6, .spec = true, .lower_only = true});
  return !chosen;
}
static int teardown(void **state) {
  compiler_free(chosen);
  graph_free(G);
  return 0;
}

static struct compiler *with_plan(const char *plan) {
  char err[256];
  if (!plan_check(plan, err, sizeof err)) fail_msg("%s", err);
  return compiler_new(&(struct compiler_options){.debug = 6, .spec = true, .lower_only = true, .plan = plan});
}

/* The optimizer's plan of every kernel, read back from text, gives the same linear list. */
static void recorded_plans_rebuild_their_kernels(void **state) {
  static const char *const arches[] = {"gfx1100", "sm_90", HOST_ARCH};
  unsigned steps = 0;
  for (unsigned t = 0; t < 3; t++)
    for (unsigned i = 0; i < ncases; i++) {
      char named[4096];
      const struct kernel *k = must_compile(chosen, arches[t], cases[i].ast), *again;
      snprintf(named, sizeof named, "# what was chosen\nr_0 = upcast a:2\n %s = %s\n", k->shape, k->plan);
      struct compiler *c = with_plan(named);
      again = must_compile(c, arches[t], cases[i].ast);
      assert_string_equal(again->plan, k->plan);
      assert_string_equal(again->linear_text, k->linear_text);
      assert_string_equal(again->name, k->name);
      assert_memory_equal(again->grid, k->grid, sizeof k->grid);
      assert_memory_equal(again->block, k->block, sizeof k->block);
      assert_null(again->plan_refused);
      compiler_free(c);
      for (const char *p = k->plan; *p; p++) steps += *p == ':';
    }
  assert_in_range(steps, 300, 3000);
}

static void printed_plans_are_parsed(void **state) {
  static const char text[] =
      "merge a b; pad c:7; vector c:8; upcast a:4; unroll d12:3; local a:32; group d:64; serial A:5; "
      "thread V255:1000000000000";
  struct plan p;
  char err[256], *out = NULL;
  size_t n;
  const char *end = plan_parse(&p, text, err, sizeof err);
  assert_ptr_equal(end, text + strlen(text));
  assert_int_equal(p.n, 9);
  FILE *f = open_memstream(&out, &n);
  plan_print(f, &p);
  fclose(f);
  assert_string_equal(out, text);
  free(out);
  end = plan_parse(&p, " ; upcast  a:2 ;;vector b:4;\nrest", err, sizeof err);
  assert_string_equal(end, "\nrest");
  assert_int_equal(p.n, 2);
  assert_int_equal(p.step[1].column, 18);
  assert_string_equal(plan_parse(&p, "upcast a:2 | x", err, sizeof err), "| x");
}

static void syntax_errors_name_the_word(void **state) {
  static const char *const wrong[][2] = {
      {"upcat a:2", "line 1, column 1 of the plan, at 'upcat': not a step; steps are merge, join, pad,"},
      {"vector a:4; upcast 3:2", "column 20 of the plan, at '3:2': an axis is expected"},
      {"\nr_1 = upcast a", "line 2, column 9 of the plan, at '': ':' and an amount are expected"},
      {"upcast a:", "column 10 of the plan, at '': a number is expected"},
      {"upcast a:99999999999999999999", "the number is more than"},
      {"upcast a:2 vector b:2", "column 12 of the plan, at 'vector': ';' is expected between steps"},
      {"merge a", "an axis is expected"},
      {"upcast ab:2", "an axis is a letter, or a letter and a number"},
      {"upcast a256:2", "the number is more than 255"},
      {"=", "line 1, at '=': the name or number of a kernel is expected before it"},
      {"\n = upcast a:2", "line 2, at '=': the name or number of a kernel is expected before it"},
      {"|", "line 1, at '|': a plan for every kernel has at least one step"},
      {"upcast a:2\n ; |\n", "line 2, at ';': a plan for every kernel has at least one step"},
  };
  char err[256];
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_false(plan_check(wrong[i][0], err, sizeof err));
    if (!strstr(err, wrong[i][1])) fail_msg("'%s': %s", wrong[i][0], err);
  }
  char many[2048] = "";
  for (unsigned i = 0; i <= MAX_STEPS; i++) strcat(many, "upcast a:2;");
  assert_false(plan_check(many, err, sizeof err));
  assert_non_null(strstr(err, "more than 128 steps"));
}

static void empty_plans_are_plans_of_named_kernels(void **state) {
  static const char *const right[] = {"", "\n# nothing\n\n", "r_1 =", "r_1 = | |\n2 = ;", "| upcast a:2"};
  char err[256];
  for (unsigned i = 0; i < sizeof right / sizeof *right; i++)
    if (!plan_check(right[i], err, sizeof err)) fail_msg("'%s': %s", right[i], err);
}

/* Lines that name no kernel, by name or number, are printed; others are not. */
static void plans_of_no_kernel_are_found(void **state) {
  char lines[512], *out = NULL;
  bool marks[7] = {false};
  size_t n;
  const struct kernel *k = must_compile(chosen, HOST_ARCH, cases[0].ast);
  snprintf(lines, sizeof lines, "# r_0 = comment\n\n  nosuch  = upcast a:2\n%s = \n0 = \n1 =\nloop a:2", k->shape);
  assert_int_equal(plan_count_lines(lines), 7);
  struct compiler *c =
      compiler_new(&(struct compiler_options){.debug = 6, .lower_only = true, .plan = lines, .plan_marks = marks});
  must_compile(c, HOST_ARCH, cases[0].ast);
  compiler_free(c);
  FILE *f = open_memstream(&out, &n);
  assert_non_null(f);
  plan_print_unmarked(f, lines, marks);
  fclose(f);
  assert_string_equal(out, "PLAN: line 3, 'nosuch': no kernel with this name was compiled; DEBUG=3 prints the kernels\n"
                           "PLAN: line 6, '1': no kernel with this number was compiled; DEBUG=3 prints the kernels\n");
  free(out);
}

/* A plan that names its kernel but cannot be applied is an error that says which step is wrong and why. A plan for all
 * kernels is ignored where it cannot be applied. wrong: architecture, plan, part of the message. */
static void is_refused(struct uop *ast, const char *const wrong[3]) {
  const struct kernel *plain = must_compile(chosen, wrong[0], ast);
  char err[256], line[256];
  snprintf(line, sizeof line, "%s = %s", plain->shape, wrong[1]);
  struct compiler *c = with_plan(line);
  assert_null(compiler_compile(c, target_find(wrong[0]), ast, err, sizeof err));
  if (!strstr(err, wrong[2]) || strncmp(err, "kernel ", 7)) fail_msg("'%s': %s", wrong[1], err);
  compiler_free(c);
  c = with_plan(wrong[1]);
  const struct kernel *k = must_compile(c, wrong[0], ast);
  assert_non_null(strstr(k->plan_refused, wrong[2]));
  assert_string_equal(k->plan, plain->plan);
  assert_null(k->best_refused);
  compiler_free(c);
}

static void impossible_plans_are_refused(void **state) {
  static const char *const wrong[][3] = {
      {"gfx1100", "upcast a:4; upcast d:2",
       "step 2 at column 13 of the plan, 'upcast d:2': the kernel has no such axis"},
      {"gfx1100", "upcast a:5", "its size 12 is not a multiple of 5: pad it first"},
      {"gfx1100", "upcast a:1", "the amount must be at least 2"},
      {"gfx1100", "upcast c:2", "a reduce axis cannot have this step"},
      {"gfx1100", "unroll a:2", "a loop axis cannot have this step"},
      {"gfx1100", "upcast a:12; upcast a1:2", "a upcast axis cannot have this step"},
      {"gfx1100", "upcast a:12; upcast a:2", "no such axis"},
      {"gfx1100", "vector b:5", "must be a power of two"},
      {"gfx1100", "pad b:128; vector b:128", "the amount must be at most 64"},
      {"gfx1100", "merge a b", "not used as one everywhere"},
      {"gfx1100", "join a c", "not loops of one kind"},
      {"gfx1100", "upcast a:2; upcast a:2; join a1 a2", "a upcast axis is not a loop"},
      {"gfx1100", "local a:5; join a b", "work-items are idle in an axis"},
      {"gfx1100", "pad a:6", "its size 12 is a multiple of 6 already"},
      {"gfx1100", "pad a:2000000", "the amount must be at most 1048576"},
      {"gfx1100", "local a:2000", "1024 work-items"},
      {"gfx1100", "pad a:512; local a:512; local b:20", "1024 work-items, and 512 already"},
      {"gfx1100", "local a:8; upcast a:2", "leaves work-items idle"},
      {"gfx1100", "local a:8; group c:4", "a group cannot be partly idle"},
      {"gfx1100", "group c:4; local a:8", "pad the axis first"},
      {"gfx1100", "group c:4; group c:3", "power of two"},
      {"gfx1100", "group c:2; group c:2", "depends on it and on another axis that a group shares"},
      {"gfx1100", "persist a:12", "the axis has only 12 positions"},
      {"gfx1100", "persist c:4", "a reduce axis cannot have this step"},
      {"gfx1100", "local a:5; persist a:2", "leaves work-items idle"},
      {HOST_ARCH, "local a:4", "the host has no work-items"},
      {HOST_ARCH, "thread c:4", "a reduce axis cannot have this step"},
      {HOST_ARCH, "pack 0 b c", "exactly one sum of products must have a factor 0 along these axes"},
      {HOST_ARCH, "pack 0 a c; pack 0 a", "it contains a reduction or another copy"},
      {HOST_ARCH, "upcast a:4; pack 0 c", "the copy must be along all upcast axes"},
      {"gfx1100", "serial c:4; order c a", "the step applies to the host only"},
      {HOST_ARCH, "order a b", "no reduce axis is listed"},
      {HOST_ARCH, "order c c a", "an axis is listed twice"},
      {HOST_ARCH, "unroll c:4; order c1 b", "a unroll axis is neither a loop of a reduction nor one of its results"},
      {HOST_ARCH, "serial c:4; upcast a:4; order c a", "all upcast axes must be listed"},
      {HOST_ARCH, "serial c:4; order c a; unroll c:3", "no such axis at this point"},
      {"gfx1100", "skip c", "the step applies to the host only"},
      {"sm_90", "prefetch a 1", "the step applies to the host only"},
      {HOST_ARCH, "prefetch a 0", "no address in argument 0 is a multiple of the axis"},
      {HOST_ARCH, "prefetch b 7", "no address in argument 7 is a multiple of the axis"},
      {HOST_ARCH, "vector b:4; prefetch b1 2", "a upcast axis is not a loop"},
      {"gfx1100", "keep c b", "the step applies to the host only"},
      {HOST_ARCH, "keep c", "a reduce axis and another one must be listed"},
      {HOST_ARCH, "keep b c", "a loop axis is not a loop of a reduction"},
      {HOST_ARCH, "vector b:4; keep c b1", "a upcast axis is not a loop over results"},
      {HOST_ARCH, "keep c b", "the axes have different sizes"},
      {HOST_ARCH, "align c:8", "no row is stored along a reduce axis"},
      {HOST_ARCH, "align a:8", "the stores along the axis are not of one row"},
      {HOST_ARCH, "align b:4", "all rows begin at a multiple of 4 elements"},
      {HOST_ARCH, "upcast b:2; align b:8", "the stores along the axis are not of one row"},
      {HOST_ARCH, "pack 1 c; align b:8", "a staged value changes along the axis"},
      {HOST_ARCH, "skip a", "a loop axis is not a loop of a reduction"},
      {HOST_ARCH, "skip c", "no factor of a summed product is 0 in whole rounds of it"},
      {HOST_ARCH, "upcast a:4 | upcast a:4", "the plan has more than 1 sections"},
  };
  static const char *const of_symbolic[][3] = {
      {HOST_ARCH, "upcast a:4", "its symbolic size may be no multiple of 4: pad it first"},
      {HOST_ARCH, "pad a:8; pad a:4", "its symbolic size is a multiple of 4 already"},
      {HOST_ARCH, "pad a:8; pad a:16", "the axis, of symbolic size, is padded already"},
      {"gfx1100", "pad a:8; upcast a:16", "its symbolic size is padded to a multiple of 8 only, not of 16"},
  };
  static const char *const of_softmax[][3] = {
      {HOST_ARCH, "keep c b; keep c b", "it contains another copy"},
      {HOST_ARCH, "pad c:64; pad b:64; keep c b", "no single value is reduced along the first axis"},
      {HOST_ARCH, "keep c b; vector c:2; upcast a:3", "a staged value changes along the axis"},
      {HOST_ARCH, "upcast a:3; keep c b", "the copy must be along all upcast axes"},
  };
  struct uop *matmul = case_named("matmul 12x20x36")->ast, *symbolic = case_named("symbolic size")->ast;
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) is_refused(matmul, wrong[i]);
  for (unsigned i = 0; i < sizeof of_symbolic / sizeof *of_symbolic; i++) is_refused(symbolic, of_symbolic[i]);
  struct uop *softmax = case_named("softmax 3x100")->ast;
  for (unsigned i = 0; i < sizeof of_softmax / sizeof *of_softmax; i++) is_refused(softmax, of_softmax[i]);
}

static void plans_by_number_and_for_every_kernel(void **state) {
  struct compiler *c = with_plan("1 = pad a:64; vector a:4\nlocal a:64\nE_1024=\n");
  assert_string_equal(must_compile(c, "gfx1100", cases[0].ast)->plan, "local a:64");
  const struct kernel *second = must_compile(c, "gfx1100", case_named("elementwise of a prime")->ast);
  assert_string_equal(second->plan, "pad a:64; vector a:4");
  assert_int_equal(second->number, 1);
  assert_string_equal(second->shape, "E_1009");
  assert_string_equal(second->axes, "loop a:1009");
  assert_string_equal(must_compile(c, "gfx1100", cases[2].ast)->plan, "");
  compiler_free(c);
}

/* Every way to split, on the axes of one kernel: the outer part keeps the name, inner parts are numbered. */
static void parts_are_named_in_order(void **state) {
  unsigned at = 0;
  while (strcmp(cases[at].name, "matmul 12x20x36")) at++;
  struct compiler *c =
      with_plan("r_12_20_36 = vector b:4; upcast a:3; upcast a:2; serial c:12; unroll c1:4; local b:5");
  const struct kernel *k = must_compile(c, "gfx1100", cases[at].ast);
  assert_string_equal(k->axes, "loop a:12 b:20, reduce c:36");
  assert_string_equal(k->name, "r_2_5_3_3_4_3_2_4");
  assert_int_equal(k->grid[0], 2);
  assert_int_equal(k->block[0], 5);
  compiler_free(c);
}

/* Five workgroups compute twelve positions in turns: the first two have three turns each, the others two. */
static void workgroups_take_turns(void **state) {
  static const char *const arches[] = {"gfx1100", HOST_ARCH};
  for (unsigned t = 0; t < 2; t++) {
    struct compiler *c = with_plan("r_12_20_36 = persist a:5; thread b:20");
    const struct kernel *k = must_compile(c, arches[t], case_named("matmul 12x20x36")->ast);
    assert_string_equal(k->name, "r_20_5_3_36");
    assert_int_equal(k->grid[0] * k->grid[1] * k->grid[2], 5 * 20);
    compiler_free(c);
  }
}

/* The plan without its PADs, and without the amounts of steps that adapt to the size. On a host also without the steps
 * that divide the work among workgroups, copy operands and read ahead: they depend on sizes and on padding. */
static void outline(const char *plan, bool host, char *out, size_t cap) {
  struct plan p;
  char err[128], *at = out;
  assert_non_null(plan_parse(&p, plan, err, sizeof err));
  *out = 0;
  for (unsigned i = 0; i < p.n; i++) {
    const struct step *s = &p.step[i];
    bool spreads = s->kind == STEP_THREAD || s->kind == STEP_LOCAL || s->kind == STEP_UPCAST;
    bool of_size = s->kind == STEP_THREAD || s->kind == STEP_PACK || s->kind == STEP_INNER || s->kind == STEP_PREFETCH;
    bool shares = host && of_size;
    if (s->kind != STEP_PAD && !shares)
      at += snprintf(at, cap - (size_t)(at - out), "%s %c %ld; ", step_word(s->kind), s->axis.letter,
                     spreads ? 0 : (long)s->amount);
  }
}

/* A kernel of any size has the vectors and steps of the next round size. Its tiles may differ, because unaligned rows
 * are copied by elements. */
static void odd_sizes_have_the_steps_of_round_ones(void **state) {
  static const char *const arches[] = {"gfx1100", "sm_90", HOST_ARCH};
  ncases = 0;
  case_elementwise("round", DT_F32, 1000000);
  case_elementwise("prime", DT_F32, 1000003);
  case_matmul("round", DT_F32, 1024, 1024, 1024);
  case_matmul("odd", DT_F32, 1023, 1023, 1024);
  case_matmul("round", DT_F32, 1024, 50304, 768);
  case_matmul("logits", DT_F32, 1024, 50257, 768);
  case_matmul("round", DT_BF16, 512, 768, 256);
  case_matmul("odd", DT_BF16, 509, 769, 256);
  case_softmax("round", 1024, 1024);
  case_softmax("prime", 1021, 1024);
  case_reduce("round", OP_MAX, DT_F32, 4096, 64, false);
  case_reduce("odd", OP_MAX, DT_F32, 4100, 64, false);
  for (unsigned i = 0; i < ncases; i += 2)
    for (unsigned a = 0; a < 3; a++) {
      char text[2][1024];
      const struct kernel *k[2];
      for (unsigned n = 0; n < 2; n++) {
        k[n] = must_compile(chosen, arches[a], cases[i + n].ast);
        outline(k[n]->plan, !strcmp(arches[a], HOST_ARCH), text[n], sizeof text[n]);
        assert_null(k[n]->best_refused);
      }
      /* On a host, the columns of a matrix whose number is no multiple of a vector are added up in tiles or in narrower
       * vectors. */
      bool adds_columns = !strcmp(arches[a], HOST_ARCH) && strstr(k[0]->plan, "order b") &&
                          (strstr(k[1]->plan, "upcast a") || strstr(k[1]->plan, "order b"));
      if (!adds_columns && strcmp(text[0], text[1]))
        fail_msg("%s, %s and %s: '%s' and '%s'", arches[a], k[0]->axes, k[1]->axes, k[0]->plan, k[1]->plan);
      uint64_t items[2];
      for (unsigned n = 0; n < 2; n++) items[n] = (uint64_t)k[n]->block[0] * k[n]->block[1] * k[n]->block[2];
      if (items[1] * 2 < items[0] || items[1] > items[0] * 2)
        fail_msg("%s, %s and %s: '%s' and '%s'", arches[a], k[0]->axes, k[1]->axes, k[0]->plan, k[1]->plan);
    }
  ncases = 0;
  make_cases();
}

/* The work-items of a group share the sums of a vector times a matrix, and adjacent ones load adjacent columns of the
 * matrix. Those of a matrix times a vector load along its rows. */
static void groups_read_a_matrix_by_rows(void **state) {
  static const char *const targets[] = {"sm_90", "gfx1100"};
  const unsigned first = ncases;
  case_matmul("vector times large matrix", DT_F32, 1, 4096, 4096);
  case_matmul("large matrix times vector", DT_F32, 4096, 1, 4096);
  case_matmul("two vectors times large matrix", DT_F32, 2, 4096, 4096);
  case_matmul("three vectors times large matrix", DT_F32, 3, 4096, 4096);
  static const char *const want[] = {
      "vector b:4; local b:8; group c:", "vector c:4; group c:256",
      "upcast a:2; vector b:4; local b:8; group c:", "upcast a:3; vector b:4; local b:8; group c:"};
  for (unsigned t = 0; t < 2; t++)
    for (unsigned i = 0; i < 4; i++) {
      const struct kernel *k = must_compile(chosen, targets[t], cases[first + i].ast);
      if (strncmp(k->plan, want[i], strlen(want[i])) != 0) fail_msg("%s: %s", targets[t], k->plan);
    }
  ncases = first;
}

/* Each workgroup of a host stores its rows in the order of memory. In a transposition it loads whole rows, for as many
 * columns of the result as a vector has lanes. If elements below each other are in the same set of a cache, squares are
 * copied first. */
static void rows_are_computed_in_order(void **state) {
  enum { N = 4096, ODD = 4099 };
  struct uop *i = range(N, 0, AXIS_LOOP), *j = range(N, 1, AXIS_LOOP), *x = param(1, DT_F32, N * N);
  struct uop *to = at(param(0, DT_F32, N * N), add(mul(i, ix(N)), j)), *row = load(at(param(2, DT_F32, N), j));
  struct uop *columns = load(at(x, add(mul(j, ix(N)), i)));
  struct uop *odd = load(at(param(1, DT_F32, N * ODD), add(mul(j, ix(ODD)), i)));
  const struct {
    struct uop *value;
    const char *has, *lacks;
  } of[] = {
      {add(load(at(x, add(mul(i, ix(N)), j))), row), "inner b", "stage"},
      {columns, "stage 1 a2 b1", "inner b"},
      {add(columns, row), "stage 1 a2 b1", "inner b"},
      {odd, "inner a1", "stage"},
  };
  for (unsigned c = 0; c < sizeof of / sizeof *of; c++) {
    const struct kernel *k = must_compile(chosen, HOST_ARCH, sink1(store(to, of[c].value)));
    if (!strstr(k->plan, of[c].has) || strstr(k->plan, of[c].lacks)) fail_msg("%u: %s", c, k->plan);
  }
}

/* A running sum in blocks: all outputs of a block add up elements of the same block. They are the lanes of vectors,
 * whose sums need not be added up. The outputs of longer sums are computed one by one, from vectors of elements. */
static void short_sums_are_lanes(void **state) {
  for (int64_t n = 16; n <= 256; n *= 16) {
    struct uop *i = range(4096, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP), *k = range(n, 2, AXIS_REDUCE);
    struct uop *x = load(at(param(1, DT_F32, 4096 * n), add(mul(i, ix(n)), k)));
    struct uop *before = uop_where(G, uop_binary(G, OP_CMPLT, j, k), uop_const_float(G, DT_F32, 0), x);
    struct uop *to = at(param(0, DT_F32, 4096 * n), add(mul(i, ix(n)), j));
    const struct kernel *made = must_compile(chosen, HOST_ARCH, sink1(store(to, reduce(OP_ADD, before, &k, 1))));
    bool outputs = strstr(made->plan, "vector b:"), elements = strstr(made->plan, "vector c:");
    if (outputs != (n == 16) || elements != (n == 256)) fail_msg("%ld: %s", (long)n, made->plan);
  }
}

/* A padded reduction, which has two versions of its rounds, inside the two versions of padded outputs. */
static void versions_are_nested(void **state) {
  struct uop *i = range(37, 0, AXIS_LOOP), *k = range(8, 1, AXIS_REDUCE);
  struct uop *x = load(at(param(2, DT_F32, 296), add(mul(i, ix(8)), k))), *w = load(at(param(3, DT_F32, 8), k));
  struct uop *sum = reduce(OP_ADD, mul(x, w), &k, 1), *bytes = load(at(param(4, DT_U8, 1), ix(0)));
  struct uop *stores[] = {store(at(param(0, DT_F32, 37), i), sum),
                          store(at(param(1, DT_U8, 37), i), reduce(OP_ADD, bytes, &k, 1))};
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 6, .plan = "pad b:16; pad a:5; vector b:4"});
  const struct kernel *made =
      must_compile(c, HOST_ARCH, uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, 2));
  assert_null(made->plan_refused);
  compiler_free(c);
}

/* Rows of 64 elements, of which the sums of 63 columns are stored, as in the gradient of a convolution's weights: no
 * load checks its column. Other rows have no padding, or the memory ends before that of the last one. */
static void padded_rows_are_loaded_without_conditions(void **state) {
  static const struct {
    int64_t row, elements;
    bool checks;
  } rows[] = {{64, 640, false}, {64, 639, true}, {63, 640, true}, {128, 1280, false}};
  for (unsigned n = 0; n < sizeof rows / sizeof *rows; n++) {
    struct uop *i = range(63, 0, AXIS_LOOP), *k = range(10, 1, AXIS_REDUCE);
    struct uop *x = load(at(param(1, DT_F32, rows[n].elements), add(mul(k, ix(rows[n].row)), i)));
    struct uop *ast = sink1(store(at(param(0, DT_F32, 63), i), reduce(OP_ADD, x, &k, 1)));
    struct compiler *c = compiler_new(&(struct compiler_options){.debug = 6, .plan = "pad a:64; local a:64"});
    const struct kernel *made = must_compile(c, "gfx1100", ast);
    assert_null(made->plan_refused);
    /* a LOAD with a condition has another value, too */
    const char *found = strstr(made->linear_text, "WHERE");
    if (!found != !rows[n].checks) fail_msg("case %u:\n%s", n, made->linear_text);
    compiler_free(c);
  }
}

/* Odd rows, columns and sums of a product whose columns are copied. Rounds check nothing: the last row is loaded for
 * rows past the end, and the elements past the end of a sum belong to its last round, which follows the loop. */
static void rounds_of_odd_products_check_nothing(void **state) {
  static const char *const plan[] = {
      "pad b:64; vector b:8; upcast b:2; pad a:64; upcast a:4; pack 1 c b2 b1; inner a",
      "pad b:64; vector b:8; pad a:64; upcast a:4; pad c:64; unroll c:4; pack 1 c c1 b1; inner a"};
  for (unsigned i = 0; i < 2; i++) {
    struct compiler *c = with_plan(plan[i]);
    struct uop *a = range(61, 0, AXIS_LOOP), *b = range(61, 1, AXIS_LOOP), *k = range(61, 2, AXIS_REDUCE);
    struct uop *x = load(at(param(1, DT_F32, 61 * 61), add(mul(a, ix(61)), k)));
    struct uop *y = load(at(param(2, DT_F32, 61 * 61), add(mul(k, ix(61)), b)));
    struct uop *ast =
        sink1(store(at(param(0, DT_F32, 61 * 61), add(mul(a, ix(61)), b)), reduce(OP_ADD, mul(x, y), &k, 1)));
    const struct kernel *made = must_compile(c, HOST_ARCH, ast);
    if (made->plan_refused) fail_msg("%s", made->plan_refused);
    const char *sum = strstr(made->linear_text, "  MULACC"), *loop = sum;
    while (loop > made->linear_text && strncmp(loop, " RANGE", 6) != 0) loop--;
    char *body = strndup(loop, (size_t)(strstr(sum, "  END ") - loop));
    if (strstr(body, " CMP") || strstr(body, " WHERE") || strstr(body, " IF")) fail_msg("%s", made->linear_text);
    free(body);
    compiler_free(c);
  }
}

static unsigned occurrences(const char *text, const char *of) {
  unsigned n = 0;
  for (const char *at = text; (at = strstr(at, of)); at += strlen(of)) n++;
  return n;
}

/* Long rows of an output that is stored past the caches: whole lines are stored without conditions. The sum of the row
 * is computed once for both versions. */
static void odd_rows_are_stored_in_lines(void **state) {
  const struct target *t = target_find(HOST_ARCH);
  const unsigned first = ncases;
  if (!t->stream_bytes) skip();
  int64_t rows = t->stream_bytes / 4099 / (int64_t)sizeof(float) + 1;
  case_softmax("odd", rows, 4099);
  case_softmax("round", rows, 4096);
  case_softmax("small", 3, 4099);
  const struct kernel *odd = must_compile(chosen, HOST_ARCH, cases[first].ast);
  assert_non_null(strstr(odd->plan, "align b:16"));
  assert_int_equal(occurrences(odd->linear_text, "  EXP2") + occurrences(odd->linear_text, "  SHL"), 2);
  for (unsigned i = 1; i < 3; i++)
    assert_null(strstr(must_compile(chosen, HOST_ARCH, cases[first + i].ast)->plan, "align"));
  ncases = first;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recorded_plans_rebuild_their_kernels),
      cmocka_unit_test(padded_rows_are_loaded_without_conditions),
      cmocka_unit_test(printed_plans_are_parsed),
      cmocka_unit_test(syntax_errors_name_the_word),
      cmocka_unit_test(empty_plans_are_plans_of_named_kernels),
      cmocka_unit_test(plans_of_no_kernel_are_found),
      cmocka_unit_test(impossible_plans_are_refused),
      cmocka_unit_test(plans_by_number_and_for_every_kernel),
      cmocka_unit_test(parts_are_named_in_order),
      cmocka_unit_test(workgroups_take_turns),
      cmocka_unit_test(odd_sizes_have_the_steps_of_round_ones),
      cmocka_unit_test(groups_read_a_matrix_by_rows),
      cmocka_unit_test(rows_are_computed_in_order),
      cmocka_unit_test(short_sums_are_lanes),
      cmocka_unit_test(versions_are_nested),
      cmocka_unit_test(rounds_of_odd_products_check_nothing),
      cmocka_unit_test(odd_rows_are_stored_in_lines),
  };
  return cmocka_run_group_tests_name("compiler/steps", tests, setup, teardown);
}
