/* What a record has about how kernels are compiled (PROF_CODE): the schedule, and the texts of each kernel. */
#include "record.h"
#include "../../hcq/json.h"

static void set_text(json_t *o, const char *name, const char *text) {
  if (text) json_object_set_new(o, name, json_text(text));
}

void record_kernel(const struct env *env, const db_device *dev, const struct kernel *k) {
  if (!env->code || k->from_memory) return;
  json_t *texts = json_object();
  set_text(texts, "shape", k->shape);
  set_text(texts, "axes", k->axes);
  set_text(texts, "plan", k->plan ? k->plan : "");
  set_text(texts, "graph", k->graph_text);
  set_text(texts, "c", k->c_text);
  set_text(texts, "assembly", k->disassembly);
  hcq_record_line("code", dev, json_pack("{s:o, s:o}", "name", json_text(k->name), "texts", texts));
}

/* ---- schedules ---- */

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

static json_t *item_json(const struct schedule_item *item, const struct exec_command *c) {
  static const char *const kinds[] = {"kernel", "copy", "send", "receive"};
  json_t *writes = json_array(), *reads = json_array(), *why = json_array();
  /* The only buffer of a SEND is its source. */
  unsigned noutputs = item->kind == SCHEDULE_SEND ? 0 : item->noutputs;
  for (unsigned i = 0; i < item->nbufs; i++)
    json_array_append_new(i < noutputs ? writes : reads, json_integer(item->bufs[i]->arg.i));
  for (unsigned i = 0; item->kind == SCHEDULE_KERNEL && i < noutputs; i++)
    json_array_append_new(why, json_text(schedule_reason_text(item->why[i])));
  return json_pack("{s:o, s:o, s:o, s:o, s:o}", "device", json_text(db_device_name(slot_device(item->device))), "name",
                   json_text(c->kernel ? c->kernel->name : kinds[item->kind]), "writes", writes, "reads", reads, "why",
                   why);
}

void record_schedule(const struct env *env, const struct schedule *s, const struct executable *e) {
  if (!env->code) return;
  json_t *items = json_array();
  for (size_t i = 0; i < s->nitems; i++) json_array_append_new(items, item_json(&s->items[i], &e->commands[i]));
  hcq_record_line("schedule", NULL, json_pack("{s:o, s:o}", "buffers", buffer_texts(s, e), "items", items));
}
