/* Prints programs: a line per memory and per command. */
#include "program.h"
#include <inttypes.h>

static struct queue_text {
  char s[16];
} queue_text(const struct program_queue *q) {
  struct queue_text t;
  snprintf(t.s, sizeof t.s, q->index ? "%s %u" : "%s",
           q->kind == DB_QUEUE_COMPUTE ? "compute"
           : q->kind == DB_QUEUE_COPY  ? "copy"
                                       : "world",
           q->index);
  return t;
}

static void print_memories(const struct program *p, const struct program_text *t, FILE *f) {
  char what[96];
  for (unsigned i = 0; i < p->nmemories; i++) {
    uint64_t bytes = t->memory(t->ctx, i, what, sizeof what);
    if (!*what) continue;
    fprintf(f, "  m%-4u %-18s %12" PRIu64 " bytes  %s\n", i, t->device(t->ctx, p->memories[i].slot), bytes, what);
  }
}

/* Writes come first, then reads: m3[0..64) is the first 64 bytes of memory 3. */
static void print_accesses(const struct program *p, const struct program_command *c, bool written, FILE *f) {
  bool first = true;
  for (uint32_t k = 0; k < c->naccesses; k++) {
    const struct program_access *a = &p->accesses[c->first + k];
    if (a->written != written) continue;
    fprintf(f, "%s m%u[%" PRIu64 "..%" PRIu64 ")", first && !written ? " <-" : "", a->memory, a->offset,
            a->offset + a->bytes);
    first = false;
  }
}

static void print_waits(const struct program *p, const struct program_text *t, uint32_t first, uint32_t n, FILE *f) {
  for (uint32_t k = 0; k < n; k++) {
    const struct program_wait *w = &p->waits[first + k];
    fprintf(f, "%s %s %s ", k ? "," : "  waits for", t->device(t->ctx, p->queues[w->queue].slot),
            queue_text(&p->queues[w->queue]).s);
    if (w->position)
      fprintf(f, "%u", w->position);
    else
      fputs("start", f);
  }
}

static void print_command(const struct program *p, const struct program_text *t, size_t i, FILE *f) {
  const struct program_command *c = &p->commands[i];
  const struct program_queue *q = p->nqueues ? &p->queues[c->queue] : NULL;
  fprintf(f, "%5zu %-18s %-9s %s%-24s", i, t->device(t->ctx, c->slot),
          q           ? queue_text(q).s
          : c->kernel ? "compute"
                      : "copy",
          c->barrier ? "| " : "  ", program_command_text(c));
  print_accesses(p, c, true, f);
  print_accesses(p, c, false, f);
  for (uint32_t k = 0; k < c->nvars; k++)
    fprintf(f, "%s%s", k ? ", " : " with ", t->variable(t->ctx, p->var_of[c->vars + k]));
  if (q) print_waits(p, t, c->first_wait, c->nwaits, f);
  fputc('\n', f);
}

/* What main queues wait for after their last command. */
static void print_ends(const struct program *p, const struct program_text *t, FILE *f) {
  for (unsigned i = 0; i < p->nqueues; i++) {
    const struct program_queue *q = &p->queues[i];
    if (!q->nwaits) continue;
    fprintf(f, "  end of %s %s:", t->device(t->ctx, q->slot), queue_text(q).s);
    print_waits(p, t, q->first_wait, q->nwaits, f);
    fputc('\n', f);
  }
}

/* Which memories and variables change words between runs, and how many words each queue has. */
static void print_patches(const struct program *p, const struct program_text *t, FILE *f) {
  unsigned n = 0;
  fputs("  between runs may change:", f);
  for (unsigned i = 0; i < p->nmemories; i++)
    if (p->memories[i].varies) fprintf(f, "%s m%u", n++ ? "," : "", i);
  for (unsigned i = 0; i < p->nvars; i++) fprintf(f, "%s %s", n++ ? "," : "", t->variable(t->ctx, i));
  if (!n) fputs(" nothing", f);
  for (unsigned i = 0; i < p->nqueues; i++)
    if (p->queues[i].recording[0])
      fprintf(f, "; %u words of %s %s", db_recording_patches(p->queues[i].recording[0]),
              t->device(t->ctx, p->queues[i].slot), queue_text(&p->queues[i]).s);
  fputc('\n', f);
}

void program_print(const struct program *p, const struct program_text *text, FILE *f) {
  fprintf(f, "captured %zu commands", p->ncommands);
  if (p->nqueues) fprintf(f, " on %u queues, %zu waits between queues", p->nqueues, p->nwaits);
  if (p->unplanned)
    fprintf(f, "; memory: peak %.3f MB, reuse saved %.3f MB", (double)p->peak * 1e-6,
            (double)(p->unplanned - p->peak) * 1e-6);
  fputc('\n', f);
  print_memories(p, text, f);
  print_patches(p, text, f);
  for (size_t i = 0; i < p->ncommands; i++) print_command(p, text, i, f);
  print_ends(p, text, f);
}
