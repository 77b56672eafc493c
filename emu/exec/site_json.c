/* The counts of a kernel's instructions as JSON, for records of `doorbell prof`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "../machine.h"

void emu_json_text(FILE *f, const char *s) {
  fputc('"', f);
  for (; *s; s++)
    if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
      fprintf(f, "\\u%04x", *s);
    else if ((unsigned char)*s < 0x80)
      fputc(*s, f);
    else
      fputs("\\ufffd", f); /* names may be cut inside a character */
  fputc('"', f);
}

/* An instruction has no value in a column that does not concern it. */
static void write_ratio(FILE *f, uint64_t of, uint64_t to, double factor) {
  if (to)
    fprintf(f, ",%.6g", factor * (double)of / (double)to);
  else
    fputs(",null", f);
}

static void write_row(FILE *f, const struct emu_site *s, uint64_t pgm) {
  uint64_t looked_up = s->l1_hits + s->l2_hits + s->memory_lines;
  fprintf(f, "[%llu,%llu", (unsigned long long)(s->pc - pgm), (unsigned long long)s->executed);
  write_ratio(f, s->lanes, s->lanes ? s->executed : 0, 1);
  write_ratio(f, s->sectors, s->sectors ? s->executed : 0, 1);
  write_ratio(f, s->bytes, s->sectors * EMU_SECTOR, 100);
  write_ratio(f, s->lds_cycles, s->lds_cycles ? s->executed : 0, 1);
  write_ratio(f, s->lds_conflicts, s->lds_cycles ? 1 : 0, 1);
  write_ratio(f, s->divergent, s->branches, 100);
  write_ratio(f, s->l1_hits, looked_up, 100);
  write_ratio(f, s->l2_hits, looked_up, 100);
  write_ratio(f, s->wait_cycles, s->wait_cycles ? s->executed : 0, 1);
  fputc(',', f);
  emu_json_text(f, s->text);
  fputc(']', f);
}

int emu_instructions_json(struct os *os, unsigned gpu, const struct emu_kernel_stats *kernel, char **out) {
  char assumptions[512], source[1024];
  struct emu_site *sites;
  size_t n, size;
  int err = emu_instructions(os, gpu, kernel, &sites, &n);
  FILE *f = err ? NULL : open_memstream(out, &size);
  if (err) return err;
  if (emu_assumptions(os, gpu, assumptions, sizeof assumptions)) *assumptions = 0;
  snprintf(source, sizeof source,
           "Counts of the emulator. Exact: executions; active lanes, sectors of %d bytes and LDS cycles per execution; "
           "the percentage of the sectors' bytes that lanes access, above 100 if they share bytes; cycles that bank "
           "conflicts add, in sum; the percentage of branches that diverge. L1 and L2, percentages of lines found "
           "there, and wait, cycles until a load has its data, are of a %s.",
           EMU_SECTOR, *assumptions ? assumptions : "model");
  if (f) {
    fputs("{\"source\":", f);
    emu_json_text(f, source);
    fputs(",\"columns\":[\"executed\",\"lanes\",\"sectors\",\"used %\",\"LDS\",\"conflicts\",\"diverge %\",\"L1 %\","
          "\"L2 %\",\"wait\"],\"rows\":[",
          f);
    for (size_t i = 0; i < n; i++) {
      if (i) fputc(',', f);
      write_row(f, &sites[i], kernel->pgm);
    }
    fputs("]}", f);
  }
  free(sites);
  return f && !fclose(f) ? 0 : -ENOMEM;
}
