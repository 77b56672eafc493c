/* Runs one kernel through the stages and caches the result. */
#define _GNU_SOURCE /* asprintf */
#include "internal.h"
#include "plan/internal.h"
#include "../graph/rewrite_log.h"
#include "ptxas.h"
#include <inttypes.h>
#include <llvm-c/Core.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct entry {
  struct kernel kernel; /* must be first: callers hold its address */
  struct entry *next;   /* in its bucket */
  uint64_t hash;
  size_t key_size;
  void *key;
  struct kernel_param *params;
  char *names;
  struct ptxas_job *job; /* makes its image */
  char *text, *recipe;   /* the key of its image on disk */
  uint64_t job_start;
  bool returned; /* was returned to a caller */
};

enum { BUCKETS = 1024 };
struct compiler {
  struct compiler_options options;
  char *cache_dir, *plan;
  char *choice;     /* text of everything that decides plans besides ast and target */
  unsigned kernels; /* number of kernels started so far */
  bool swept;       /* cache_dir was swept */
  char no_disk[512];
  struct assembler *assembler;
  struct ptxas *ptxas;
  struct entry *bucket[BUCKETS];
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct compiler *compiler_new(const struct compiler_options *options) {
  struct compiler *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->options = *options;
  c->cache_dir = options->cache_dir ? strdup(options->cache_dir) : NULL;
  const char *plan = options->plan ? options->plan : "";
  if (asprintf(&c->choice, "%d %d %s", options->noopt, options->tf32, plan) < 0) c->choice = NULL;
  c->options.plan = c->plan = options->plan ? strdup(options->plan) : NULL;
  c->ptxas = ptxas_new(options->ptxas, 0, 0);
  if (!c->ptxas || !c->choice || (options->cache_dir && !c->cache_dir) || (options->plan && !c->plan)) {
    compiler_free(c);
    return NULL;
  }
  return c;
}

static void entry_free(struct entry *e) {
  if (!e) return;
  free((void *)e->kernel.image);
  free((void *)e->kernel.c_text);
  free((void *)e->kernel.graph_text);
  free((void *)e->kernel.linear_text);
  free((void *)e->kernel.disassembly);
  free((void *)e->kernel.rewrites);
  free((void *)e->kernel.axes);
  free((void *)e->kernel.plan);
  free((void *)e->kernel.plan_refused);
  free((void *)e->kernel.best_refused);
  free(e->params);
  free(e->names);
  free(e->key);
  LLVMDisposeMessage(e->text);
  free(e->recipe);
  free(e);
}

void compiler_free(struct compiler *c) {
  if (!c) return;
  for (unsigned i = 0; i < BUCKETS; i++)
    for (struct entry *e = c->bucket[i], *next; e; e = next) next = e->next, entry_free(e);
  ptxas_free(c->ptxas);
  assembler_free(c->assembler);
  free(c->cache_dir);
  free(c->plan);
  free(c->choice);
  free(c);
}

/* ---- accounting ------------------------------------------------------------------------------------------------ */
static double iteration_count(const struct codegen *k, uint64_t mask) {
  double n = 1;
  for (uint64_t m = mask; m; m &= m - 1) n *= (double)k->axes[__builtin_ctzll(m)].size;
  return n;
}

/* Counts the operations on values (not addresses), each once per point of the axes on which it depends, and the memory
 * that each argument's accesses reach, counted once. Must run before axes are split. */
static bool count_work(struct codegen *k, struct kernel *out) {
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  uint64_t *mask = axis_masks(k, false);
  double reached[MAX_PARAMS] = {0};
  bool ok = order && mask;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    if (op_info[u->op].cls == OPCLASS_ALU && u->dtype != DT_INDEX && u->op != OP_CAST && u->op != OP_BITCAST &&
        u->src[0]->dtype != DT_INDEX)
      out->flops += iteration_count(k, mask[u->id]) * (u->op == OP_MULACC ? 2 : 1);
    if (u->op == OP_REDUCE) {
      uint64_t own = mask[u->id];
      for (unsigned s = 1; s < u->nsrc; s++) own |= mask[u->src[s]->id];
      out->flops += iteration_count(k, own);
    }
    if (u->op == OP_INDEX && u->src[0]->op == OP_PARAM) {
      double n = iteration_count(k, mask[u->src[1]->id]), all = (double)uop_max(u->src[0]->src[0]);
      double bytes = (n < all ? n : all) * dtype_info[u->dtype].size, *r = &reached[u->src[0]->arg.i];
      if (bytes > *r) *r = bytes;
    }
  }
  double bytes = 0;
  for (unsigned i = 0; i < k->nparams; i++) bytes += reached[i];
  out->bytes += (uint64_t)bytes;
  free(order);
  free(mask);
  return ok || codegen_fail(k, "out of memory");
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */
static char *graph_text(struct uop *ast) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f) return NULL;
  uop_print(f, &ast, 1);
  fclose(f);
  return text;
}

/* One operation per line, numbered in order and indented by loop. */
static char *linear_text(const struct codegen *k) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  uint32_t *number = calloc(graph_node_count(k->g), sizeof *number);
  if (!f || !number) {
    if (f) fclose(f);
    free(number);
    return text;
  }
  int depth = 0;
  for (size_t i = 0; i < k->nlinear; i++) {
    const struct uop *u = k->linear[i];
    number[u->id] = (uint32_t)i;
    if (u->op == OP_END || u->op == OP_ENDIF) depth--;
    fprintf(f, "%4zu %*s%-9s", i, depth * 2, "", op_info[u->op].name);
    if (u->dtype != DT_VOID) fprintf(f, " %s", dtype_info[u->dtype].name);
    if (u->lanes > 1) fprintf(f, "x%u", u->lanes);
    if (u->op == OP_CONST && dtype_is_float(u->dtype))
      fprintf(f, " %.9g", u->arg.f);
    else if (u->op == OP_VAR)
      fprintf(f, " %s", u->arg.s);
    else if (u->op == OP_SPECIAL)
      fprintf(f, " %s %" PRId64, u->aux ? "work-item" : "workgroup", u->arg.i);
    else if (u->op == OP_CONST || u->op == OP_PARAM || u->op == OP_LOCAL || u->op == OP_REG || u->op == OP_GEP)
      fprintf(f, " %" PRId64, u->arg.i);
    else if (u->op == OP_LOAD && u->arg.i)
      fprintf(f, " prefetching at %+" PRId64, u->arg.i);
    for (unsigned s = 0; s < u->nsrc && u->op != OP_VAR; s++)
      fprintf(f, "%s%%%u", s ? ", " : "  ", number[u->src[s]->id]);
    fprintf(f, "\n");
    if (u->op == OP_RANGE || u->op == OP_IF) depth++;
  }
  free(number);
  fclose(f);
  return text;
}

/* Returns what `print` prints for a kernel, or for each of its parts; for phases first for the axes around them. The
 * caller frees it. */
static char *text_of(const struct codegen *k, void (*print)(FILE *f, const struct codegen *part)) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f) return NULL;
  bool around = !k->nparts || uop_is_phased(k->ast);
  if (around) print(f, k);
  for (unsigned i = 0; i < k->nparts; i++) {
    if (i || around) fputs(" | ", f);
    print(f, &k->parts[i]);
  }
  if (!fclose(f)) return text;
  free(text);
  return NULL;
}

/* Prints the plan that the kernel was built by. */
static void print_plan(FILE *f, const struct codegen *k) { plan_print(f, &k->plan); }

static void print_axes(FILE *f, const struct codegen *k) {
  bool any = false;
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if (!x->name.letter) continue;
    if (!any || x->kind != x[-1].kind) fprintf(f, "%s%s", any ? ", " : "", axis_kind_name(x->kind));
    fprintf(f, " %c:%" PRId64 "%s", x->name.letter, x->size, x->range->src[0]->op == OP_CONST ? "" : " at most");
    any = true;
  }
}

/* ---- one kernel ------------------------------------------------------------------------------------------------ */
static bool verify_linear(struct codegen *k) {
  char why[256];
  if (!k->spec || !uop_verify(k->linear, (unsigned)k->nlinear, STAGE_LINEAR, why, sizeof why)) return true;
  return codegen_fail(k, "%s", why);
}

static bool fill_params(struct codegen *k, struct entry *e) {
  struct kernel *out = &e->kernel;
  size_t text = 16 * (size_t)k->nparams + 1;
  for (unsigned i = 0; i < k->nparams; i++)
    if (!k->params[i].is_buffer) text += strlen(k->params[i].uop->arg.s);
  e->params = calloc(k->nparams ? k->nparams : 1, sizeof *e->params);
  e->names = malloc(text);
  if (!e->params || !e->names) return codegen_fail(k, "out of memory");
  char *at = e->names;
  uint32_t offset = 0;
  for (unsigned i = 0; i < k->nparams; i++) {
    struct kernel_param *p = &e->params[i];
    p->is_buffer = k->params[i].is_buffer;
    p->size = p->is_buffer ? 8 : 4;
    p->offset = offset = (offset + p->size - 1) & ~(p->size - 1);
    p->name = at;
    at += (p->is_buffer ? sprintf(at, "data%u", i) : sprintf(at, "%s", k->params[i].uop->arg.s)) + 1;
    offset += p->size;
  }
  out->params = e->params, out->nparams = k->nparams;
  return true;
}

/* Returns the recipe of k's image. The caller frees it. */
static char *recipe_of(struct compiler *c, struct codegen *k) {
  char why[1024] = "", tool[192] = "";
  if (k->target->kind == TARGET_NVPTX) {
    const char *version = ptxas_version(c->ptxas, why, sizeof why);
    if (!version) return codegen_fail(k, "%s", why), NULL;
    snprintf(tool, sizeof tool, "ptxas %s, no options, text of ptx.c 2", version);
  }
  char *plan = text_of(k, print_plan),
       *recipe = plan ? code_recipe(k->target, code_options_of(k->target), tool, plan) : NULL;
  free(plan);
  if (!recipe) codegen_fail(k, "out of memory");
  return recipe;
}

static void keep_on_disk(struct compiler *c, const struct entry *e, const void *image, size_t size) {
  if (!c->swept) disk_cache_sweep(c->cache_dir);
  c->swept = true;
  int err = disk_cache_put(c->cache_dir, e->recipe, e->text, image, size);
  if (err) snprintf(c->no_disk, sizeof c->no_disk, "%.400s: %s", c->cache_dir, strerror(-err));
}

const char *compiler_no_disk(const struct compiler *c) { return *c->no_disk ? c->no_disk : NULL; }

/* Makes the image. For NVIDIA, starts ptxas on it. */
static bool make_image(struct compiler *c, struct codegen *k, struct entry *e) {
  struct kernel *out = &e->kernel;
  /* The first kernel initializes LLVM: programs that only replay captured programs do not need it. */
  if (!c->assembler && !(c->assembler = assembler_new())) return codegen_fail(k, "out of memory");
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef m = assembler_module(c->assembler, k, context);
  bool nvidia = k->target->kind == TARGET_NVPTX, debug = c->options.debug >= 7;
  void *image = NULL, *ptx = NULL;
  size_t size = 0;
  bool ok = m && render_llvm(k, m);
  if (ok && !(e->recipe = recipe_of(c, k))) ok = false;
  if (ok && c->cache_dir) {
    e->text = LLVMPrintModuleToString(m);
    out->from_disk = disk_cache_get(c->cache_dir, e->recipe, e->text, &image, &out->image_size);
  }
  if (ok && (!out->from_disk || (nvidia && debug))) {
    uint64_t start = now_ns();
    ok = assemble(c->assembler, k, m, nvidia ? &ptx : &image, nvidia ? &size : &out->image_size);
    if (!out->from_disk) out->assemble_ns = now_ns() - start;
  }
  if (ok && nvidia && debug && !(out->disassembly = strndup(ptx, size))) ok = codegen_fail(k, "out of memory");
  if (ok && nvidia && !out->from_disk) {
    e->job_start = now_ns();
    e->job = ptxas_start(c->ptxas, uses_groups(k) ? k->target->group_cpu : k->target->arch, ptx, size, NULL);
    if (!e->job) ok = codegen_fail(k, "out of memory");
  } else if (ok && !out->from_disk && c->cache_dir)
    keep_on_disk(c, e, image, out->image_size);
  out->image = image;
  free(ptx);
  if (!e->job) {
    LLVMDisposeMessage(e->text);
    e->text = NULL;
  }
  if (m) LLVMDisposeModule(m);
  LLVMContextDispose(context);
  return ok;
}

/* Waits for the kernel's job, if it has one. */
static bool code_finish(struct compiler *c, struct entry *e, char *err, size_t errcap) {
  struct kernel *out = &e->kernel;
  char why[3600];
  void *image = NULL;
  if (!e->job) return true;
  bool ok = ptxas_finish(e->job, &image, &out->image_size, why, sizeof why);
  e->job = NULL;
  out->image = image;
  out->assemble_ns += now_ns() - e->job_start;
  if (!ok)
    snprintf(err, errcap, "%s: assemble: %s", out->name, why);
  else if (c->cache_dir)
    keep_on_disk(c, e, image, out->image_size);
  LLVMDisposeMessage(e->text);
  e->text = NULL;
  return ok;
}

/* Counts the work of the kernel or of its parts, whose axes were just collected. */
static bool count_all_work(struct codegen *k, struct kernel *out) {
  out->flops = 0, out->bytes = 0;
  for (unsigned i = 0; i < k->nparts; i++)
    if (!count_work(&k->parts[i], out)) return false;
  return k->nparts || count_work(k, out);
}

/* Plans and lowers k, with fewer steps after each failure. Uses `plan`, or the plan given for the kernel by hand, if
 * there is one. If a plan that does not name the kernel fails, the optimizer chooses. */
static bool lower_with_fewer_steps(const struct compiler_options *o, struct codegen *k, struct kernel *out,
                                   const char *plan) {
  const struct codegen fresh = *k;
  const char *given = NULL;
  char ignored[256], why[256], refused[256] = "";
  bool named = false;
  const enum steps best = o->noopt ? STEPS_PLAIN : STEPS_ALL;
  for (enum steps steps = plan || o->plan ? STEPS_GIVEN : best, first = steps;;
       steps = steps < best ? best : steps + 1) {
    k->steps = steps;
    if (steps == STEPS_GIVEN)
      k->err = why, k->errcap = sizeof why;
    else if (steps > best)
      k->err = ignored, k->errcap = sizeof ignored; /* keep the first message */
    bool collected = kernel_collect(k) && count_all_work(k, out);
    if (collected && steps == first) {
      memcpy(out->shape, k->name, sizeof out->shape);
      free((void *)out->axes);
      out->axes = text_of(k, print_axes);
      if (!out->axes) {
        k->err = fresh.err, k->errcap = fresh.errcap;
        return codegen_fail(k, "out of memory");
      }
      if (plan)
        given = plan, named = true;
      else if (o->plan)
        given = plan_line(o->plan, out->shape, out->number, &named);
      if (o->plan && o->plan_marks) plan_mark_lines(o->plan, out->shape, out->number, o->plan_marks);
      if (steps == STEPS_GIVEN && !given) k->steps = steps = best, k->err = fresh.err, k->errcap = fresh.errcap;
    }
    if (collected && kernel_plan(k, steps == STEPS_GIVEN ? given : NULL) && lower(k)) {
      k->err = fresh.err, k->errcap = fresh.errcap;
      if (steps > best && !(out->best_refused = strdup(refused))) return codegen_fail(k, "out of memory");
      out->plan = text_of(k, print_plan);
      return out->plan || codegen_fail(k, "out of memory");
    }
    bool steps_failed = strcmp(k->stage, "collect") != 0 && !graph_error(k->g);
    free(k->parts);
    free(k->linear);
    *k = fresh;
    if (steps == STEPS_GIVEN) {
      if (named || !steps_failed) {
        snprintf(k->err, k->errcap, "%s", why);
        return false;
      }
      free((void *)out->plan_refused);
      out->plan_refused = strdup(why);
      if (!out->plan_refused) return codegen_fail(k, "out of memory");
    } else if (!steps_failed || steps == STEPS_NONE)
      return false;
    else if (steps == best)
      snprintf(refused, sizeof refused, "%s", fresh.err);
  }
}

static bool compile(struct compiler *c, struct codegen *k, struct entry *e, const char *plan) {
  struct kernel *out = &e->kernel;
  const struct compiler_options *o = &c->options;
  uint64_t start = now_ns();
  if (o->debug >= 5) out->graph_text = graph_text(k->ast);
  struct rewrite_log log = {0};
  if (o->rewrites) rewrite_log_begin(&log, &k->stage);
  bool lowered = lower_with_fewer_steps(o, k, out, plan);
  out->rewrites = rewrite_log_end(&log);
  if (!lowered) return false;
  if (!verify_linear(k)) return false;
  out->lower_ns = now_ns() - start;
  memcpy(out->name, k->name, sizeof out->name);
  memcpy(out->grid, k->grid, sizeof out->grid);
  memcpy(out->block, k->block, sizeof out->block);
  memcpy(out->extent, k->extent, sizeof out->extent);
  if (o->debug >= 4) out->c_text = render_c(k);
  if (o->debug >= 6) out->linear_text = linear_text(k);
  if (!fill_params(k, e)) return false;
  if (o->lower_only) return true;
  if (!make_image(c, k, e)) return false;
  if (o->debug >= 7 && k->target->kind != TARGET_NVPTX)
    out->disassembly = disassemble(c->assembler, k->target, out->image, out->image_size);
  return true;
}

/* Returns the target restricted to what the available assembler supports. */
static const struct target *supported_target(struct compiler *c, const struct target *t) {
  char why[256];
  const char *version = t->release && c->options.ptxas ? ptxas_version(c->ptxas, why, sizeof why) : NULL;
  unsigned major, minor = 0;
  return version && sscanf(version, "release %u.%u", &major, &minor) ? target_for_release(t, major * 100 + minor) : t;
}

/* Finds or makes the ast's entry. Its job may still run. On failure returns NULL and writes err. */
static struct entry *find_or_begin(struct compiler *c, const struct target *t, struct uop *ast, const char *plan,
                                   char *err, size_t errcap) {
  t = supported_target(c, t);
  struct codegen k = {
      .target = t, .spec = c->options.spec, .tf32 = c->options.tf32, .stage = "import", .err = err, .errcap = errcap};
  struct entry *e = NULL;
  uint64_t hash = 0;
  size_t key_size = 0;
  char *choice = NULL;
  if (plan && asprintf(&choice, "%s\nby %s", c->choice, plan) < 0) choice = NULL;
  void *key = plan && !choice ? NULL : ast_key(ast, t, plan ? choice : c->choice, &key_size, &hash);
  free(choice);
  if (!key) {
    codegen_fail(&k, "out of memory");
    return NULL;
  }
  for (e = c->bucket[hash % BUCKETS]; e; e = e->next)
    if (e->hash == hash && e->key_size == key_size && !memcmp(e->key, key, key_size)) {
      free(key);
      return e;
    }
  bool ok = false;
  k.g = graph_new();
  e = calloc(1, sizeof *e);
  if (k.g && e) {
    e->kernel.number = c->kernels++;
    k.ast = uop_import(k.g, ast);
    ok = graph_error(k.g) ? codegen_fail(&k, "%s", graph_error(k.g)) : move_bits(&k) && compile(c, &k, e, plan);
    if (ok && graph_error(k.g)) ok = codegen_fail(&k, "%s", graph_error(k.g));
  } else
    codegen_fail(&k, "out of memory");
  graph_free(k.g);
  free(k.parts);
  free(k.linear);
  if (!ok) {
    free(key);
    entry_free(e);
    return NULL;
  }
  e->key = key, e->key_size = key_size, e->hash = hash;
  e->next = c->bucket[hash % BUCKETS];
  c->bucket[hash % BUCKETS] = e;
  return e;
}

void compiler_prepare_by(struct compiler *c, const struct target *t, struct uop *ast, const char *plan) {
  char ignored[256];
  find_or_begin(c, t, ast, plan, ignored, sizeof ignored);
}
void compiler_prepare(struct compiler *c, const struct target *t, struct uop *ast) {
  compiler_prepare_by(c, t, ast, NULL);
}

const struct kernel *compiler_compile(struct compiler *c, const struct target *t, struct uop *ast, char *err,
                                      size_t errcap) {
  return compiler_compile_by(c, t, ast, NULL, err, errcap);
}

const struct kernel *compiler_compile_by(struct compiler *c, const struct target *t, struct uop *ast, const char *plan,
                                         char *err, size_t errcap) {
  char ignored[256];
  if (!err || !errcap) err = ignored, errcap = sizeof ignored;
  err[0] = 0;
  struct entry *e = find_or_begin(c, t, ast, plan, err, errcap);
  if (!e) return NULL;
  if (!code_finish(c, e, err, errcap)) {
    struct entry **at = &c->bucket[e->hash % BUCKETS];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    entry_free(e);
    return NULL;
  }
  e->kernel.from_memory = e->returned;
  e->returned = true;
  return &e->kernel;
}

void compiler_found_again(const struct kernel *k) { ((struct kernel *)(uintptr_t)k)->from_memory = true; }
