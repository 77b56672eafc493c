/* Executables: compiled, loaded and planned schedules, cached by the structure of their graph.
 *
 * An executable does not refer to memory. Its buffers are numbered: first those that the graph names (inputs), then
 * outputs, for which every run allocates memory, and temporaries, which the plan places in one arena per device.
 * Barriers are part of the executable: a batch begins with one, and within a batch there is one only before a kernel
 * that touches what another kernel has touched since the last barrier. */
#include "beam.h"
#include "custom.h"
#include "exchange.h"
#include "launch.h"
#include "record.h"
#include "report.h"
#include "../../graph/custom.h"
#include "../../graph/schedule/plan.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256, MOST = 256, MOST_KEY_WORDS = 16 << 20, TEMPORARY_ALIGNMENT = 256 };

static struct cache {
  struct executable *bucket[BUCKETS], *newest, *oldest;
  size_t n, words;
} cache;
static struct db_cache_counters counters;

/* ---- the cache ---- */

static void unlink_used(struct executable *e) {
  *(e->newer ? &e->newer->older : &cache.newest) = e->older;
  *(e->older ? &e->older->newer : &cache.oldest) = e->newer;
  e->newer = e->older = NULL;
}
static void link_newest(struct executable *e) {
  e->older = cache.newest;
  *(cache.newest ? &cache.newest->newer : &cache.oldest) = e;
  cache.newest = e;
}

static void executable_free(struct executable *e) {
  if (!e) return;
  free(e->key);
  free(e->buffers);
  for (size_t i = 0; e->commands && i < e->ncommands; i++) kernel_release(e->commands[i].kernel);
  free(e->commands);
  free(e->exchanges);
  free(e->args);
  free(e->offsets);
  free(e->outputs);
  free(e->arenas);
  free(e);
}

void executable_release(struct executable *e) {
  if (e && --e->refs == 0) executable_free(e);
}

static void cache_remove(struct executable *e) {
  struct executable **at = &cache.bucket[e->hash % BUCKETS];
  while (*at != e) at = &(*at)->next;
  *at = e->next;
  unlink_used(e);
  cache.n--;
  cache.words -= e->nkey;
  executable_release(e);
}

void executables_drop(uint64_t slots) {
  for (struct executable *e = cache.newest, *older; e; e = older) {
    older = e->older;
    if (e->slots & slots) cache_remove(e);
  }
}

static struct executable *cache_find(const struct binding *b) {
  for (struct executable *e = cache.bucket[b->hash % BUCKETS]; e; e = e->next)
    if (e->hash == b->hash && e->nkey == b->nkey && e->noutputs == b->nroots &&
        !memcmp(e->key, b->key, b->nkey * sizeof *b->key))
      return e;
  return NULL;
}

static void cache_insert(struct executable *e) {
  while (cache.oldest && (cache.n >= MOST || cache.words + e->nkey > MOST_KEY_WORDS)) {
    cache_remove(cache.oldest); // NOLINT(clang-analyzer-unix.Malloc): cache_remove removes it from the list
    counters.evicted++;
  }
  e->next = cache.bucket[e->hash % BUCKETS];
  cache.bucket[e->hash % BUCKETS] = e;
  link_newest(e);
  cache.n++;
  cache.words += e->nkey;
}

void db_cache_counters(struct db_cache_counters *out) {
  if (!out) return;
  pthread_mutex_lock(&rt.lock);
  *out = counters;
  out->schedules = cache.n;
  out->no_disk = runtime_no_disk();
  pthread_mutex_unlock(&rt.lock);
}

/* ---- making one ---- */

struct making {
  const struct env *env;
  const struct binding *binding;
  struct executable *e;
  struct schedule sched;
  struct memory_plan plan;
  const char **plans; /* the plan for each item's kernel; NULL: the optimizer's */
  size_t nargs;
};

static size_t buffer_bytes(const struct uop *b) { return (size_t)b->src[0]->arg.i * dtype_info[b->dtype].size; }

/* The memory that an output fills from its start. An output of symbolic size fills a part of it. */
static struct uop *memory_of(struct uop *u) {
  while (u->op == OP_RESHAPE) u = u->src[0];
  bool part = u->op == OP_SHRINK && u->src[0]->op == OP_BUFFER && uop_is_const(u->src[1]) && !u->src[1]->arg.i;
  return part ? u->src[0] : u;
}

/* Makes the exchanges, in the order in which they start. Each gets a pinned buffer after the other buffers. */
static bool make_exchanges(struct making *m, int64_t nbuffers) {
  struct executable *e = m->e;
  e->exchanges = calloc(m->sched.nitems + 1, sizeof *e->exchanges);
  for (size_t i = 0; e->exchanges && i < m->sched.nitems; i++) {
    const struct schedule_item *item = &m->sched.items[i];
    if (item->kind != SCHEDULE_SEND) continue;
    size_t size = dtype_info[item->exchange->dtype].size;
    int64_t received = shape_numel(item->exchange->shape);
    e->exchanges[e->nexchanges++] = exchange_of(item->exchange, buffer_bytes(item->bufs[0]), (size_t)received * size);
  }
  e->nbuffers = (unsigned)nbuffers + e->nexchanges;
  return e->exchanges != NULL;
}

static uint32_t exchange_at(const struct executable *e, const struct schedule_item *item) {
  uint32_t i = 0;
  while (e->exchanges[i].number != exchange_number(item->exchange)) i++;
  return i;
}

static bool make_buffers(struct making *m, int64_t nbuffers) {
  struct executable *e = m->e;
  if (!make_exchanges(m, nbuffers)) return false;
  e->ninputs = m->binding->nbuffers;
  e->buffers = calloc(e->nbuffers + 1, sizeof *e->buffers);
  if (!e->buffers) return false;
  for (unsigned i = 0; i < e->nbuffers; i++) e->buffers[i].kind = i < e->ninputs ? BUFFER_INPUT : BUFFER_UNUSED;
  for (size_t i = 0; i < m->sched.nitems; i++)
    for (unsigned k = 0; k < m->sched.items[i].nbufs; k++) {
      const struct uop *b = m->sched.items[i].bufs[k];
      struct exec_buffer *x = &e->buffers[b->arg.i];
      if (x->kind == BUFFER_UNUSED) x->kind = BUFFER_OUTPUT;
      x->slot = b->aux, x->bytes = buffer_bytes(b);
    }
  for (size_t i = 0; i < m->sched.ntemporaries; i++) {
    const struct plan_buffer *p = &m->plan.buffers[i];
    struct exec_buffer *x = &e->buffers[m->sched.temporaries[i]->arg.i];
    if (p->first == PLAN_NEVER) continue;
    x->kind = BUFFER_TEMPORARY, x->arena = p->arena, x->offset = p->offset, x->free_since = p->free_since;
    x->first = p->first;
  }
  for (size_t i = 0; i < m->sched.nitems; i++) {
    const struct schedule_item *item = &m->sched.items[i];
    if (item->kind != SCHEDULE_SEND) continue;
    uint32_t x = exchange_at(e, item);
    e->buffers[nbuffers + x] = (struct exec_buffer){
        .kind = BUFFER_PINNED, .slot = item->bufs[0]->aux, .bytes = exchange_bytes(&e->exchanges[x])};
  }
  e->narenas = m->plan.narenas;
  e->arenas = calloc(e->narenas + 1, sizeof *e->arenas);
  for (unsigned i = 0; e->arenas && i < e->narenas; i++)
    e->arenas[i] = (struct exec_arena){(uint8_t)m->plan.arenas[i].device, m->plan.arenas[i].bytes};
  return e->arenas != NULL;
}

static int make_outputs(struct making *m) {
  struct executable *e = m->e;
  e->noutputs = m->binding->nroots;
  e->outputs = calloc(e->noutputs + 1, sizeof *e->outputs);
  if (!e->outputs) return db_fail(-ENOMEM, "realize: out of memory");
  for (unsigned i = 0; i < e->noutputs; i++) {
    struct uop *b = memory_of(m->sched.outputs[i]);
    if (b->op != OP_BUFFER) return db_fail(-EPROTO, "scheduling: output %u is not in memory", i);
    struct exec_buffer *x = &e->buffers[b->arg.i];
    e->outputs[i] = (uint32_t)b->arg.i;
    e->slots |= UINT64_C(1) << b->aux;
    if (x->kind == BUFFER_UNUSED) /* no kernel writes an output without elements */
      *x = (struct exec_buffer){.kind = BUFFER_OUTPUT, .slot = b->aux, .bytes = buffer_bytes(b)};
  }
  return 0;
}

static int var_index(const struct binding *b, const char *name) {
  for (unsigned i = 0; i < b->nvars; i++)
    if (!strcmp(b->vars[i].name, name)) return (int)i;
  return -1;
}

/* The command of the first item with the same ast, if it runs the kernel that item i runs; otherwise NULL. */
static const struct exec_command *same_kernel(const struct making *m, size_t i) {
  const struct schedule_item *items = m->sched.items;
  size_t first = items[i].first;
  return first < i && items[first].device == items[i].device && m->plans[first] == m->plans[i] ? &m->e->commands[first]
                                                                                               : NULL;
}

/* Makes a command that runs the kernel of another one. */
static void make_again(struct making *m, const struct exec_command *other, struct exec_command *c) {
  const struct kernel *k = c->kernel = other->kernel;
  c->nvars = other->nvars;
  c->program = other->program;
  memcpy(m->e->args + c->args + c->nbuffers, m->e->args + other->args + other->nbuffers, c->nvars * sizeof *m->e->args);
  compiler_found_again(k);
  report_kernel(m->env, k);
  record_kernel(m->env, slot_device(c->slot), k);
}

static int make_kernel(struct making *m, const struct schedule_item *item, const char *plan, struct exec_command *c) {
  char err[1024];
  const struct target *t = slot_target(item->device);
  const struct kernel *k = compiler_compile_by(rt.compiler, t, item->ast, plan, err, sizeof err);
  if (!k && plan) {
    beam_refused(plan, err);
    k = compiler_compile(rt.compiler, t, item->ast, err, sizeof err);
  }
  if (!k) return db_fail(-EINVAL, "compiling for %s: %s", db_device_name(slot_device(item->device)), err);
  if (k->nparams < item->nbufs)
    return db_fail(-EPROTO, "kernel %s has %u parameters for %u buffers", k->name, k->nparams, item->nbufs);
  if (k->nparams > MAX_KERNEL_ARGS)
    return db_fail(-E2BIG, "kernel %s has %u arguments, more than %d", k->name, k->nparams, MAX_KERNEL_ARGS);
  counters.kernels += !k->from_memory;
  runtime_check_disk(m->env);
  report_kernel(m->env, k);
  record_kernel(m->env, slot_device(item->device), k);
  c->kernel = k;
  c->nvars = k->nparams - item->nbufs;
  c->program = slot_program(item->device, k);
  if (!c->program) return db_fail(-EINVAL, "loading kernel %s: %s", k->name, db_error());
  for (unsigned i = item->nbufs; i < k->nparams; i++) {
    int var = var_index(m->binding, k->params[i].name);
    if (var < 0 || k->params[i].is_buffer)
      return db_fail(-EINVAL, "kernel %s needs a value for %s, which is not bound", k->name, k->params[i].name);
    m->e->args[c->args + i] = (uint32_t)var;
  }
  return 0;
}

static int make_custom(const struct schedule_item *item, struct exec_command *c) {
  c->program = slot_custom_program(item->device, custom_program(item->ast->src[0]->src[1]));
  if (!c->program) return db_fail(-EPROTO, "realize: a kernel's program was released");
  if (item->nbufs > MAX_KERNEL_ARGS)
    return db_fail(-E2BIG, "realize: kernel %s has %u buffers, more than %d", db_program_name(c->program), item->nbufs,
                   MAX_KERNEL_ARGS);
  c->kernel = custom_kernel(item, c->program);
  return c->kernel ? 0 : db_fail(-ENOMEM, "realize: out of memory");
}

/* Makes one end of an exchange: a copy to or from its pinned memory. */
static void make_transfer(struct making *m, const struct schedule_item *item, struct exec_command *c) {
  uint32_t x = exchange_at(m->e, item);
  c->exchange = x + 1;
  c->sends = item->kind == SCHEDULE_SEND;
  c->nbuffers = 2, c->noutputs = 1;
  m->e->args[c->args + !c->sends] = m->e->nbuffers - m->e->nexchanges + x;
}

static int make_all_commands(struct making *m) {
  struct executable *e = m->e;
  const struct schedule *s = &m->sched;
  size_t most = 1;
  for (size_t i = 0; i < s->nitems; i++) most += s->items[i].nbufs + (s->items[i].exchange != NULL) + m->binding->nvars;
  e->commands = calloc(s->nitems + 1, sizeof *e->commands);
  e->args = calloc(most, sizeof *e->args);
  e->offsets = calloc(most, sizeof *e->offsets);
  m->plans = calloc(s->nitems + 1, sizeof *m->plans);
  if (!e->commands || !e->args || !e->offsets || !m->plans) return db_fail(-ENOMEM, "realize: out of memory");
  e->ncommands = s->nitems;
  for (size_t i = 0; i < s->nitems; i++) {
    const struct schedule_item *item = &s->items[i];
    if (item->kind != SCHEDULE_KERNEL) continue;
    int err = beam_plan(m->env, s, i, &m->plans[i]);
    if (err) return err;
    if (!same_kernel(m, i)) compiler_prepare_by(rt.compiler, slot_target(item->device), item->ast, m->plans[i]);
  }
  for (size_t i = 0; i < s->nitems; i++) {
    const struct schedule_item *item = &s->items[i];
    struct exec_command *c = &e->commands[i];
    c->slot = (uint8_t)item->device;
    c->args = (uint32_t)m->nargs;
    c->nbuffers = item->nbufs;
    c->noutputs = item->noutputs;
    if (item->exchange) make_transfer(m, item, c);
    for (unsigned k = 0; k < item->nbufs; k++) {
      e->args[m->nargs + k + c->sends] = (uint32_t)item->bufs[k]->arg.i;
      if (item->offset) e->offsets[m->nargs + k] = (uint64_t)item->offset[k] * dtype_info[item->bufs[k]->dtype].size;
      e->slots |= UINT64_C(1) << item->bufs[k]->aux;
    }
    e->slots |= UINT64_C(1) << item->device;
    const struct exec_command *same = item->kind == SCHEDULE_KERNEL ? same_kernel(m, i) : NULL;
    if (same) make_again(m, same, c);
    if (item->kind == SCHEDULE_KERNEL && !same) {
      int err = make_kernel(m, item, m->plans[i], c);
      if (err) return err;
    }
    if (item->kind == SCHEDULE_CUSTOM) {
      int err = make_custom(item, c);
      if (err) return err;
    }
    m->nargs += c->nbuffers + c->nvars;
  }
  return 0;
}

/* Makes the commands, and records how long it took if kernels had to be compiled. */
static int make_commands(struct making *m) {
  char text[32];
  uint64_t recorded = hcq_host_begin(), before = counters.kernels;
  int err = make_all_commands(m);
  snprintf(text, sizeof text, "%llu kernels", (unsigned long long)(counters.kernels - before));
  if (counters.kernels > before) hcq_host_end(HCQ_HOST_COMPILE, text, recorded);
  return err;
}

/* Sets the barriers: a kernel needs one if it conflicts with a kernel since the last barrier on its device, or reuses
 * memory that such a kernel used. */
static int make_barriers(struct making *m) {
  struct executable *e = m->e;
  int64_t since[SLOTS] = {0}, *written = malloc((e->nbuffers + 1) * 2 * sizeof *written);
  if (!written) return db_fail(-ENOMEM, "realize: out of memory");
  int64_t *read = written + e->nbuffers;
  for (unsigned i = 0; i < e->nbuffers; i++) written[i] = read[i] = -1;
  for (size_t i = 0; i < e->ncommands; i++) {
    struct exec_command *c = &e->commands[i];
    const uint32_t *args = e->args + c->args;
    unsigned noutputs = c->noutputs;
    if (!c->kernel) { /* a batch ends before a copy */
      since[e->buffers[args[0]].slot] = since[e->buffers[args[1]].slot] = (int64_t)i + 1;
      continue;
    }
    for (unsigned k = 0; k < c->nbuffers; k++) {
      const struct exec_buffer *b = &e->buffers[args[k]];
      c->barrier |= written[args[k]] >= since[c->slot];
      if (k >= noutputs) continue;
      c->barrier |= read[args[k]] >= since[c->slot];
      c->barrier |= b->kind == BUFFER_TEMPORARY && b->first == (int64_t)i && b->free_since >= since[c->slot];
    }
    if (c->barrier) since[c->slot] = (int64_t)i;
    for (unsigned k = 0; k < c->nbuffers; k++) *(k < noutputs ? &written[args[k]] : &read[args[k]]) = (int64_t)i;
  }
  free(written);
  return 0;
}

static int build_executable(struct making *m) {
  const struct binding *b = m->binding;
  char text[512];
  int64_t next = b->nbuffers;
  int err = 0;
  uint64_t recorded = hcq_host_begin();
  struct graph *g = graph_new();
  struct uop **roots = calloc(b->nroots + 1, sizeof *roots);
  if (!g || !roots || !bound_graph(b->key, b->nkey, g, roots, b->nroots)) {
    err = db_fail(-ENOMEM, "realize: out of memory");
    goto out;
  }
  record_schedule_begin(m->env);
  err = graph_schedule_within(g, slot_machine, roots, b->nroots, &next, &m->sched, text, sizeof text);
  g = NULL;
  record_schedule_end(m->env);
  if (!err)
    err = plan_memory(&m->sched, &(struct plan_options){.alignment = TEMPORARY_ALIGNMENT}, &m->plan, text, sizeof text);
  if (err) {
    err = db_fail(err, "scheduling: %s", text);
    goto out;
  }
  hcq_host_end(HCQ_HOST_SCHEDULE, "", recorded);
  report_schedule(m->env, &m->sched, &m->plan);
  m->e->key = malloc(b->nkey * sizeof *b->key);
  if (!m->e->key || !make_buffers(m, next)) {
    err = db_fail(-ENOMEM, "realize: out of memory");
    goto out;
  }
  memcpy(m->e->key, b->key, b->nkey * sizeof *b->key);
  m->e->nkey = b->nkey;
  m->e->hash = b->hash;
  if (!(err = make_outputs(m)) && !(err = make_commands(m))) err = make_barriers(m);
  if (!err) record_schedule(m->env, &m->sched, m->e, roots, b->nroots);
out:
  free(roots);
  graph_free(g);
  return err;
}

struct executable *executable_get(const struct env *env, const struct binding *b) {
  struct executable *e = cache_find(b);
  if (e) {
    counters.found++;
    unlink_used(e);
    link_newest(e);
    e->refs++;
    return e;
  }
  struct making m = {.env = env, .binding = b, .e = calloc(1, sizeof *m.e)};
  if (!m.e) return db_fail_null(-ENOMEM, "realize: out of memory");
  int err = build_executable(&m);
  free(m.plans);
  if (m.sched.graph) schedule_free(&m.sched);
  plan_free(&m.plan);
  if (err) {
    executable_free(m.e);
    return NULL;
  }
  counters.made++;
  m.e->refs = 2; /* for the cache and for the caller */
  cache_insert(m.e);
  return m.e;
}
