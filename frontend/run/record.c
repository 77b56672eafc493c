/* What a record has about code (PROF_CODE): the schedule, the texts of each kernel, and what emulated devices count of
 * each instruction. */
#include "record.h"
#include "../../emu/emu.h"
#include "../../graph/rewrite_log.h"
#include "../../hcq/backend.h"
#include "../../hcq/json.h"
#include <stdlib.h>

static void set_text(json_t *o, const char *name, const char *text) {
  if (text) json_object_set_new(o, name, json_text(text));
}

/* Whether a kernel has no texts in the record yet. Kernels of one name have one entry in the page. */
static bool is_first(const db_device *dev, const struct kernel *k) {
  static json_t *recorded; /* kernels, by ISA and name; guarded by rt.lock */
  char key[128];
  if (!recorded) recorded = json_object();
  snprintf(key, sizeof key, "%s %s", db_device_arch(dev), k->name);
  if (json_object_get(recorded, key)) return false;
  json_object_set_new(recorded, key, json_true());
  return true;
}

void record_kernel(const struct env *env, const db_device *dev, const struct kernel *k) {
  if (!env->code || !is_first(dev, k)) return;
  json_t *texts = json_object();
  set_text(texts, "shape", k->shape);
  set_text(texts, "axes", k->axes);
  set_text(texts, "plan", k->plan ? k->plan : "");
  set_text(texts, "graph", k->graph_text);
  set_text(texts, "linear", k->linear_text);
  set_text(texts, "rewrites", k->rewrites);
  set_text(texts, "c", k->c_text);
  set_text(texts, "assembly", k->disassembly);
  hcq_record_line("code", dev, json_pack("{s:o, s:o}", "name", json_text(k->name), "texts", texts));
  /* For NVIDIA GPUs the compiler's disassembly is PTX, from which ptxas makes the instructions. */
  const char *arch = db_device_arch(dev);
  json_t *rows = k->image ? record_sass_rows(arch, k->name, k->image, k->image_size) : NULL;
  if (rows)
    hcq_record_line("lines", dev,
                    json_pack("{s:o, s:s, s:[], s:o}", "name", json_text(k->name), "source",
                              "The code as ptxas made it.", "columns", "rows", rows));
}

/* ---- schedules ---- */

static struct rewrite_log rewrites; /* of the schedule in progress; guarded by rt.lock */
static char *rewrites_text;

void record_schedule_begin(const struct env *env) {
  static const char *const stage = "schedule";
  if (env->rewrites) rewrite_log_begin(&rewrites, &stage);
}

void record_schedule_end(const struct env *env) {
  if (!env->rewrites) return;
  free(rewrites_text);
  rewrites_text = rewrite_log_end(&rewrites);
}

/* The buffers of a schedule have numbers from 0, by the ids of the graph. */
static json_t *buffer_texts(const struct schedule *s, const struct executable *e) {
  json_t *list = json_array();
  char text[64];
  for (unsigned i = 0; i < e->nbuffers; i++) json_array_append_new(list, json_string(""));
  for (size_t i = 0; i < s->nitems; i++)
    for (unsigned k = 0; k < s->items[i].nbufs; k++) {
      const struct uop *b = s->items[i].bufs[k];
      snprintf(text, sizeof text, "%s[%lld]", dtype_info[b->dtype].name, (long long)b->src[0]->arg.i);
      json_array_set_new(list, (size_t)b->arg.i, json_string(text));
    }
  return list;
}

/* Appends the outputs of a kernel that it also reads: those it updates in place. */
static void append_updated(json_t *reads, const struct schedule_item *item) {
  size_t n;
  struct uop **order = uop_toposort(&item->ast, 1, &n);
  for (unsigned k = 0; order && k < item->noutputs; k++)
    for (size_t i = 0; i < n; i++) {
      const struct uop *p = order[i]->op == OP_LOAD ? order[i]->src[0]->src[0] : NULL;
      if (!p || p->op != OP_PARAM || p->arg.i != (int64_t)k) continue;
      json_array_append_new(reads, json_integer(item->bufs[k]->arg.i));
      break;
    }
  free(order);
}

static json_t *item_json(const struct schedule_item *item, const struct exec_command *c) {
  static const char *const kinds[] = {"kernel", "copy", "send", "receive", "custom"};
  json_t *writes = json_array(), *reads = json_array(), *why = json_array();
  /* The only buffer of a SEND is its source. */
  unsigned noutputs = item->kind == SCHEDULE_SEND ? 0 : item->noutputs;
  for (unsigned i = 0; i < item->nbufs; i++)
    json_array_append_new(i < noutputs ? writes : reads, json_integer(item->bufs[i]->arg.i));
  if (item->kind == SCHEDULE_KERNEL) append_updated(reads, item);
  bool reasons = item->kind == SCHEDULE_KERNEL || item->kind == SCHEDULE_CUSTOM;
  for (unsigned i = 0; reasons && i < noutputs; i++)
    json_array_append_new(why, json_text(schedule_reason_text(item->why[i])));
  return json_pack("{s:o, s:o, s:o, s:o, s:o}", "device", json_text(db_device_name(slot_device(item->device))), "name",
                   json_text(c->kernel ? c->kernel->name : kinds[item->kind]), "writes", writes, "reads", reads, "why",
                   why);
}

static json_t *graph_text(struct uop *const *roots, unsigned n) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return NULL;
  uop_print(f, roots, n);
  fclose(f);
  json_t *json = json_text(text);
  free(text);
  return json;
}

void record_schedule(const struct env *env, const struct schedule *s, const struct executable *e,
                     struct uop *const *roots, unsigned n) {
  if (!env->code) return;
  json_t *items = json_array();
  for (size_t i = 0; i < s->nitems; i++) json_array_append_new(items, item_json(&s->items[i], &e->commands[i]));
  json_t *line = json_pack("{s:o, s:o}", "buffers", buffer_texts(s, e), "items", items);
  if (env->rewrites) json_object_set_new(line, "graph", graph_text(roots, n));
  set_text(line, "rewrites", rewrites_text);
  hcq_record_line("schedule", NULL, line);
}

/* ---- instructions of emulated devices ---- */

enum { ANNOTATED = 2 /* least PROF_CODE */ };

static void record_instructions(db_device *dev, const struct emu_kernel_stats *k) {
  char *text = NULL;
  if (emu_instructions_json(db_device_os(dev), db_device_index(dev), k, &text)) return;
  json_t *lines = json_loads(text, 0, NULL);
  free(text);
  if (!lines) return;
  json_object_set_new(lines, "address", json_integer((json_int_t)k->pgm));
  hcq_record_line("lines", dev, lines);
}

static void count_instructions(db_device *dev) { emu_annotate(db_device_os(dev), true); }

static void record_device(db_device *dev) {
  struct emu_kernel_stats *kernels;
  size_t n;
  if (emu_kernels(db_device_os(dev), db_device_index(dev), &kernels, &n)) return;
  for (size_t i = 0; i < n; i++) record_instructions(dev, &kernels[i]);
  free(kernels);
}

/* A constructor, because the queue layer may open a device before any function of this layer runs. */
__attribute__((constructor)) static void set_hooks(void) {
  const char *level = getenv("PROF_CODE");
  if (level && atoi(level) >= ANNOTATED)
    hcq_record_hooks = (struct hcq_record_hooks){count_instructions, record_device};
}
