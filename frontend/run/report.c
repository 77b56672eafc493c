/* Reports for people and for watchers: a line per command (DEBUG=2), the reasons for the schedule (3), and the text of
 * kernels (4 to 7). */
#include "report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool report_wanted(const struct env *env) { return env->debug >= 2 || env->profile || rt.watch; }

struct report_item *report_add(struct report *r, db_device *dev, const struct kernel *k, unsigned args, uint64_t bytes,
                               bool without_signals) {
  if (r->n == r->capacity) {
    size_t capacity = r->capacity ? 2 * r->capacity : 32;
    struct report_item *more = realloc(r->items, capacity * sizeof *more);
    if (!more) return NULL;
    r->items = more;
    r->capacity = capacity;
  }
  struct report_item item = {.device = dev, .kernel = k, .args = args, .bytes = bytes};
  if (!without_signals) {
    item.begin = db_signal_new(dev);
    item.end = item.begin ? db_signal_new(dev) : NULL;
    if (!item.end) {
      db_signal_release(item.begin);
      return NULL;
    }
  }
  return r->items[r->n] = item, &r->items[r->n++];
}

void report_wait(struct report *r, size_t count) {
  if (!count) return;
  if (r->nwaits == r->waits_capacity) {
    size_t capacity = r->waits_capacity ? 2 * r->waits_capacity : 16;
    struct hcq_event_wait *more = realloc(r->waits, capacity * sizeof *more);
    if (!more) return;
    r->waits = more;
    r->waits_capacity = capacity;
  }
  r->waits[r->nwaits++] = (struct hcq_event_wait){count - 1, r->n - 1};
}

static struct db_command command_of(const struct report_item *item, const struct hcq_event *e) {
  return (struct db_command){.device = e->device,
                             .name = e->name,
                             .is_copy = !item->kernel,
                             .args = e->args,
                             .flops = e->flops,
                             .bytes = e->bytes,
                             .begin_ns = e->begin_ns,
                             .end_ns = e->end_ns};
}

int report_finish(struct report *r, bool finished) {
  int err = 0;
  struct hcq_event *events = calloc(r->n + 1, sizeof *events);
  for (size_t i = 0; i < r->n; i++) {
    struct report_item *item = &r->items[i];
    struct hcq_event e = {.device = item->device,
                          .name = item->kernel     ? item->kernel->name
                                  : item->exchange ? item->exchange
                                                   : "copy",
                          .kind = item->kernel     ? HCQ_EVENT_KERNEL
                                  : item->exchange ? HCQ_EVENT_EXCHANGE
                                                   : HCQ_EVENT_COPY,
                          .program = item->program,
                          .queue = item->queue,
                          .args = item->args,
                          .flops = item->kernel ? item->kernel->flops : 0,
                          .bytes = item->bytes,
                          .begin_ns = item->begin_ns,
                          .end_ns = item->end_ns};
    if (item->kernel) {
      memcpy(e.grid, item->kernel->grid, sizeof e.grid);
      memcpy(e.block, item->kernel->block, sizeof e.block);
    }
    if (item->begin) {
      db_signal_interval(item->begin, item->end, &e.begin_ns, &e.end_ns);
      db_signal_release(item->begin);
      db_signal_release(item->end);
    }
    if (events) events[i] = e;
    struct db_command c = command_of(item, &e);
    if (finished && rt.watch) rt.watch(rt.watch_ctx, &c);
  }
  if (finished && events) err = hcq_profile_events(events, r->n, r->waits, r->nwaits);
  free(events);
  free(r->items);
  free(r->waits);
  return err;
}

static void print_text(const char *title, const struct kernel *k, const char *text) {
  if (text) fprintf(stderr, "--- %s: %s\n%s\n", k->name, title, text);
}

void report_kernel(const struct env *env, const struct kernel *k) {
  if (env->debug >= 3)
    fprintf(stderr, "--- %s: grid %s%ux%ux%u, block %ux%ux%u, lowered in %.0f us, assembled in %.1f ms%s\n", k->name,
            kernel_grid_varies(k) ? "up to " : "", k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1],
            k->block[2], (double)k->lower_ns * 1e-3, (double)k->assemble_ns * 1e-6,
            k->from_memory ? " (kernel in memory)"
            : k->from_disk ? " (from disk)"
                           : "");
  if (k->from_memory) return;
  if (env->debug >= 3) fprintf(stderr, "    kernel %u (%s): %s = %s\n", k->number, k->axes, k->shape, k->plan);
  if (env->debug >= 3 && k->plan_refused) fprintf(stderr, "    PLAN is not possible: %s\n", k->plan_refused);
  if (env->debug >= 3 && k->best_refused)
    fprintf(stderr, "    The best plan failed, so this kernel has fewer steps: %s\n", k->best_refused);
  if (env->debug >= 5) print_text("graph", k, k->graph_text);
  if (env->debug >= 6) print_text("linear", k, k->linear_text);
  if (env->debug >= 4) print_text("as C", k, k->c_text);
  if (env->debug >= 7) print_text("assembly", k, k->disassembly);
}

static void print_buffer(const struct uop *b) {
  fprintf(stderr, " b%lld:%s[%lld]", (long long)b->arg.i, dtype_info[b->dtype].name, (long long)b->src[0]->arg.i);
}

void report_schedule(const struct env *env, const struct schedule *s, const struct memory_plan *plan) {
  if (env->debug >= 2 && plan->unshared)
    fprintf(stderr, "--- memory: peak %.3f MB, reuse saved %.3f MB\n", (double)plan->peak * 1e-6,
            (double)(plan->unshared - plan->peak) * 1e-6);
  if (env->debug < 3) return;
  fprintf(stderr, "--- schedule: %zu commands, %zu outputs, %zu temporaries\n", s->nitems, s->noutputs,
          s->ntemporaries);
  for (size_t i = 0; i < s->nitems; i++) {
    const struct schedule_item *item = &s->items[i];
    fprintf(stderr, "    %zu %s on %s:", i, item->kind == SCHEDULE_COPY ? "copy" : "kernel",
            db_device_name(slot_device(item->device)));
    for (unsigned k = 0; k < item->nbufs; k++) {
      if (k == item->noutputs) fprintf(stderr, " <-");
      print_buffer(item->bufs[k]);
    }
    fputc('\n', stderr);
    for (unsigned k = 0; k < item->noutputs; k++)
      fprintf(stderr, "        b%lld is written because %s\n", (long long)item->bufs[k]->arg.i,
              schedule_reason_text(item->why[k]));
  }
}

/* ---- sources ---- */

static struct report_source *sources; /* guarded by rt.lock */

void report_source_add(struct report_source *s) {
  s->prev = NULL;
  s->next = sources;
  if (sources) sources->prev = s;
  sources = s;
}

void report_source_remove(struct report_source *s) {
  if (s->next) s->next->prev = s->prev;
  *(s->prev ? &s->prev->next : &sources) = s->next;
}

int reports_settle(bool all) {
  int err = 0;
  for (struct report_source *s = sources; s; s = s->next) {
    int failed = s->report(s, all);
    if (!err) err = failed;
  }
  return err;
}
