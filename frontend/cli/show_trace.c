/* doorbell show: the waves and instructions of a thread trace of an AMD GPU. */
#include "show.h"
#include "../prof/code.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct shown {
  const struct show_options *x;
  const struct mapping *m;
  struct sqtt_trace trace;
  struct prof_code code;
  bool has_code;
  struct prof_line *lines; /* of the code, by dword; NULL without code */
};

static const char *inst_text(const struct shown *s, const struct sqtt_inst *in) {
  if (s->has_code && in->pc != SQTT_NONE) return s->code.text[in->pc / 4];
  const char *op = in->type == SQTT_INST ? sqtt_op_name(s->trace.layout, in->op) : sqtt_type_name(in->type);
  return op ? op : "unknown op";
}

static uint64_t packets(const struct sqtt_trace *t) {
  uint64_t n = 0;
  for (unsigned i = 0; i < SQTT_TYPES; i++) n += t->count[i];
  return n;
}

/* Returns the number of waves whose instructions the trace contains, and the sum of their times. */
static uint32_t traced_waves(const struct sqtt_trace *t, uint64_t *clocks) {
  uint32_t n = 0;
  *clocks = 0;
  for (uint32_t i = 0; i < t->nwaves; i++)
    if (t->waves[i].insts) n++, *clocks += t->waves[i].end - t->waves[i].start;
  return n;
}

/* ---- text ---- */

static void print_head(const struct shown *s) {
  const struct sqtt_trace *t = &s->trace;
  uint64_t clocks;
  double mhz = sqtt_mhz(t);
  uint32_t traced = traced_waves(t, &clocks);
  printf("%s thread trace: %zu bytes, %" PRIu64 " packets, %" PRIu64 " clocks", sqtt_layout_name(t->layout), s->m->size,
         packets(t), t->clocks);
  if (mhz > 0) printf(" at %.1f MHz", mhz);
  printf("\n%u wave%s; %u instruction%s of %u wave%s", t->nwaves, t->nwaves == 1 ? "" : "s", t->ninsts,
         t->ninsts == 1 ? "" : "s", traced, traced == 1 ? "" : "s");
  if (t->layout == SQTT_CDNA)
    printf(" on CU %u\n", t->traced.wgp);
  else
    printf(" on SIMD %u of WGP %u of shader array %u\n", t->traced.simd, t->traced.wgp, t->traced.sa);
  if (t->lost) printf("packets were lost in %" PRIu64 " places\n", t->lost);
  if (t->restarted) printf("the end of %u wave%s was lost\n", t->restarted, t->restarted == 1 ? "" : "s");
  if (t->not_followed)
    printf("%u jump%s to addresses in registers, which the trace does not contain\n", t->not_followed,
           t->not_followed == 1 ? "" : "s");
  if (t->out_of_step)
    printf("the instructions of %u wave%s do not agree with %s, the first at 0x%" PRIx64 " (nibble %" PRIu64 ")\n",
           t->out_of_step, t->out_of_step == 1 ? "" : "s", s->x->code, s->code.address + t->first_out_of_step.pc,
           t->first_out_of_step.offset);
}

/* When waves ran, and how many at a time. */
static void print_occupancy(const struct sqtt_trace *t) {
  uint64_t first = UINT64_MAX, last = 0, sum = 0;
  for (uint32_t i = 0; i < t->nwaves; i++) {
    const struct sqtt_wave *w = &t->waves[i];
    if (w->start < first) first = w->start;
    if (w->end > last) last = w->end;
    sum += w->end - w->start;
  }
  if (last > first)
    printf("waves ran for %" PRIu64 " clocks, on average %.1f at a time and %.0f clocks each\n", last - first,
           (double)sum / (double)(last - first), (double)sum / t->nwaves);
}

static void print_waves(const struct sqtt_trace *t, bool all) {
  enum { SHOWN = 32 };
  bool cdna = t->layout == SQTT_CDNA;
  uint32_t shown = all || t->nwaves < SHOWN ? t->nwaves : SHOWN;
  if (!t->nwaves) return;
  printf("\n%6s %2s %3s %4s %4s %5s %12s %12s %10s %8s  %s\n", "wave", cdna ? "SH" : "SA", cdna ? "CU" : "WGP", "SIMD",
         "slot", "lanes", "start", "end", "clocks", "insts", "program");
  for (uint32_t i = 0; i < shown; i++) {
    const struct sqtt_wave *w = &t->waves[i];
    printf("%6u %2u %3u %4u %4u %5u %11" PRIu64 "%s %11" PRIu64 "%s %10" PRIu64 " %8u  0x%" PRIx64 "\n", i, w->sa,
           w->wgp, w->simd, w->slot, w->lanes, w->start, w->has_start ? " " : "<", w->end, w->has_end ? " " : ">",
           w->end - w->start, w->insts, w->program);
  }
  if (shown < t->nwaves) printf("%6s %u more; --waves prints them\n", "...", t->nwaves - shown);
}

static void print_duration(uint64_t sum, uint64_t n) {
  if (n)
    printf(" %9.1f", (double)sum / (double)n);
  else
    printf(" %9s", "-");
}

/* The code from its entry to the last instruction that was executed. Instructions without packets have no counts. */
static void print_code(const struct shown *s) {
  uint64_t clocks;
  uint32_t last = 0, size = s->code.code.size / 4;
  traced_waves(&s->trace, &clocks);
  for (uint32_t i = 0; i < size; i++)
    if (s->lines[i].count) last = i + 1;
  if (!last) return;
  printf("\n%10s %9s %10s %6s %9s  %s\n", "address", "count", "stall", "share", "duration", "instruction");
  for (uint32_t i = s->code.code.entry / 4; i < last; i++) {
    const struct prof_line *l = &s->lines[i];
    if (!s->code.text[i]) continue;
    printf("%#10" PRIx64, s->code.address + i * 4);
    if (s->code.code.at[i].silent)
      printf(" %9s %10s %6s", "-", "-", "-");
    else
      printf(" %9" PRIu64 " %10" PRIu64 " %5.1f%%", l->count, l->stall,
             clocks ? 100.0 * (double)l->stall / (double)clocks : 0);
    print_duration(l->duration, l->timed);
    printf("  %s\n", s->code.text[i]);
  }
}

static void print_insts(const struct shown *s) {
  const struct sqtt_trace *t = &s->trace;
  for (uint32_t i = 0; i < t->nwaves; i++) {
    if (!t->waves[i].insts) continue;
    printf("\nwave %u\n%12s %10s %9s %10s  %-13s  %s\n", i, "time", "stall", "duration", "address", "class",
           "instruction");
    for (uint32_t k = t->waves[i].first; k != SQTT_NONE; k = t->insts[k].next) {
      const struct sqtt_inst *in = &t->insts[k];
      char address[24] = "-", duration[16] = "-";
      if (in->pc != SQTT_NONE) snprintf(address, sizeof address, "%#" PRIx64, s->code.address + in->pc);
      if (in->duration != SQTT_NONE) snprintf(duration, sizeof duration, "%u", in->duration);
      printf("%12" PRIu64 " %10u %9s %10s  %-13s  %s\n", in->time, in->stall, duration, address,
             sqtt_class_name(in->class), inst_text(s, in));
    }
  }
}

/* Stops at the first error. sqtt_decode has reported the same error before. */
static void print_packets(const struct shown *s) {
  struct sqtt_reader r;
  struct sqtt_packet p;
  if (sqtt_open(&r, s->m->bytes, s->m->size)) return;
  printf("\n%10s %12s  %-17s %18s  %s\n", "nibble", "time", "packet", "bits", "fields");
  while (sqtt_next(&r, &p) == 1) {
    unsigned n;
    char name[40];
    const struct sqtt_field *f = sqtt_fields(r.layout, p.type, &n);
    snprintf(name, sizeof name, p.repeat > 1 ? "%s*%u" : "%s", sqtt_type_name(p.type), p.repeat);
    printf("%10" PRIu64 " %12" PRIu64 "  %-17s %#18" PRIx64 " ", p.offset, p.time, name, p.bits);
    for (unsigned i = 0; i < n && p.bits; i++) printf(" %s=%#" PRIx64, f[i].name, sqtt_field_value(&f[i], &p));
    putchar('\n');
  }
}

/* ---- JSON ---- */

static json_t *inst_json(const struct shown *s, const struct sqtt_inst *in) {
  json_t *o = json_pack("{s:I, s:I, s:s, s:s}", "time", (json_int_t)in->time, "stall", (json_int_t)in->stall, "class",
                        sqtt_class_name(in->class), "text", inst_text(s, in));
  if (in->duration != SQTT_NONE) json_object_set_new(o, "duration", json_integer(in->duration));
  if (in->pc != SQTT_NONE) json_object_set_new(o, "address", json_integer((json_int_t)s->code.address + in->pc));
  return o;
}

static json_t *wave_json(const struct shown *s, const struct sqtt_wave *w) {
  json_t *insts = json_array();
  for (uint32_t k = w->first; k != SQTT_NONE; k = s->trace.insts[k].next)
    json_array_append_new(insts, inst_json(s, &s->trace.insts[k]));
  return json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:b, s:b, s:I, s:o}", "array", w->sa, "wgp", w->wgp, "simd",
                   w->simd, "slot", w->slot, "lanes", w->lanes, "start", (json_int_t)w->start, "end",
                   (json_int_t)w->end, "has_start", w->has_start, "has_end", w->has_end, "program",
                   (json_int_t)w->program, "instructions", insts);
}

static json_t *code_json(const struct shown *s) {
  json_t *list = json_array();
  for (uint32_t i = 0; s->lines && i < s->code.code.size / 4; i++) {
    const struct prof_line *l = &s->lines[i];
    if (!s->code.text[i] || !l->count) continue;
    json_t *o = json_pack("{s:I, s:s, s:I, s:I}", "address", (json_int_t)s->code.address + (json_int_t)i * 4, "text",
                          s->code.text[i], "count", (json_int_t)l->count, "stall", (json_int_t)l->stall);
    if (l->timed) json_object_set_new(o, "duration", json_finite((double)l->duration / (double)l->timed));
    json_array_append_new(list, o);
  }
  return list;
}

static void print_json(const struct shown *s, const char *error) {
  const struct sqtt_trace *t = &s->trace;
  json_t *count = json_object(), *waves = json_array();
  for (unsigned i = 0; i < SQTT_TYPES; i++)
    if (t->count[i]) json_object_set_new(count, sqtt_type_name(i), json_integer((json_int_t)t->count[i]));
  for (uint32_t i = 0; i < t->nwaves; i++) json_array_append_new(waves, wave_json(s, &t->waves[i]));
  json_t *all = json_pack("{s:s, s:I, s:I, s:o, s:{s:i, s:i, s:i}, s:I, s:i, s:i, s:i, s:o, s:o, s:o}", "layout",
                          sqtt_layout_name(t->layout), "bytes", (json_int_t)s->m->size, "clocks", (json_int_t)t->clocks,
                          "mhz", sqtt_mhz(t) > 0 ? json_finite(sqtt_mhz(t)) : json_null(), "traced", "array",
                          t->traced.sa, "wgp", t->traced.wgp, "simd", t->traced.simd, "lost", (json_int_t)t->lost,
                          "restarted", (int)t->restarted, "out_of_step", (int)t->out_of_step, "not_followed",
                          (int)t->not_followed, "packets", count, "waves", waves, "code", code_json(s));
  if (error) json_object_set_new(all, "error", json_text(error));
  json_dumpf(all, stdout, JSON_ENSURE_ASCII | JSON_INDENT(1));
  putchar('\n');
  json_decref(all);
}

/* ---- the command ---- */

static int open_code(const struct command *self, struct shown *s) {
  struct sqtt_reader r;
  struct mapping m;
  if (sqtt_open(&r, s->m->bytes, s->m->size)) return fail_work(self, "%s: %s", s->x->file, db_error());
  if (map_file(s->x->code, &m)) return fail_work(self, "%s", db_error());
  s->has_code = true;
  int err = prof_code_elf(&s->code, m.bytes, m.size, s->x->kernel, r.layout);
  unmap_file(&m);
  return err ? fail_work(self, "%s: %s", s->x->code, db_error()) : EXIT_DONE;
}

/* Prints what was decoded, also before an error. */
static int print_trace(const struct command *self, struct shown *s) {
  char error[512];
  int err = sqtt_decode(&s->trace, s->m->bytes, s->m->size, s->has_code ? &s->code.code : NULL, s->has_code);
  if (err) snprintf(error, sizeof error, "%s", db_error());
  if (s->has_code && !(s->lines = prof_lines_new(&s->code))) return fail_work(self, "out of memory");
  if (s->lines) prof_lines_add(s->lines, &s->trace);
  if (s->x->json) {
    print_json(s, err ? error : NULL);
  } else {
    print_head(s);
    print_occupancy(&s->trace);
    print_waves(&s->trace, s->x->waves);
    if (s->lines) print_code(s);
    if (s->x->insts) print_insts(s);
    if (s->x->packets) print_packets(s);
  }
  return err ? fail_work(self, "%s: %s", s->x->file, error) : EXIT_DONE;
}

int show_trace(const struct command *self, const struct show_options *x, const struct mapping *m) {
  struct shown s = {.x = x, .m = m};
  if (x->json && x->packets) return fail_usage(self, "--json has no packets; leave --packets out");
  if (x->kernel && !x->code) return fail_usage(self, "--kernel needs --code");
  int status = x->code ? open_code(self, &s) : EXIT_DONE;
  if (status == EXIT_DONE) status = print_trace(self, &s);
  sqtt_free(&s.trace);
  prof_code_free(&s.code);
  free(s.lines);
  return status;
}
