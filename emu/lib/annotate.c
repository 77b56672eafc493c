/* Prints the instructions of each kernel that the GPUs of a process executed, with the counts of each. */
#include "client.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N(x) ((unsigned long long)(x))

/* Columns are blank where an instruction has no such count. */
static void print_ratio(FILE *f, int width, int digits, uint64_t of, uint64_t to, double factor) {
  if (to)
    fprintf(f, " %*.*f", width, digits, factor * (double)of / (double)to);
  else
    fprintf(f, " %*s", width, "");
}

static void print_count(FILE *f, int width, uint64_t n) {
  if (n)
    fprintf(f, " %*llu", width, N(n));
  else
    fprintf(f, " %*s", width, "");
}

static void print_site(FILE *f, const struct emu_site *s) {
  uint64_t looked_up = s->l1_hits + s->l2_hits + s->memory_lines;
  fprintf(f, "%12llu", N(s->executed));
  print_ratio(f, 5, 1, s->lanes, s->lanes ? s->executed : 0, 1);
  print_ratio(f, 7, 1, s->sectors, s->sectors ? s->executed : 0, 1);
  print_ratio(f, 4, 0, s->bytes, s->sectors * EMU_SECTOR, 100);
  print_ratio(f, 6, 1, s->lds_cycles, s->lds_cycles ? s->executed : 0, 1);
  print_count(f, 9, s->lds_conflicts);
  print_ratio(f, 7, 0, s->divergent, s->branches, 100);
  print_ratio(f, 4, 0, s->l1_hits, looked_up, 100);
  print_ratio(f, 4, 0, s->l2_hits, looked_up, 100);
  print_ratio(f, 6, 0, s->wait_cycles, s->wait_cycles ? s->executed : 0, 1);
  fprintf(f, "  %llx  %s\n", N(s->pc), s->text);
}

static void print_kernel(FILE *f, struct os *machine, unsigned gpu, const struct emu_kernel_stats *k) {
  struct emu_site *site;
  size_t n;
  if (emu_instructions(machine, gpu, k, &site, &n)) return;
  fprintf(f, "doorbell emu: kernel %s at 0x%llx: %llu dispatches, %llu waves, %llu instructions\n",
          *k->name ? k->name : "?", N(k->pgm), N(k->dispatches), N(k->waves), N(k->instructions));
  fprintf(f, "%12s %5s %7s %4s %6s %9s %7s %4s %4s %6s  %s\n", "executed", "lanes", "sectors", "used", "LDS",
          "conflicts", "diverge", "L1", "L2", "wait", "address  instruction");
  for (size_t i = 0; i < n; i++) print_site(f, &site[i]);
  free(site);
}

static void print_gpu(FILE *f, struct os *machine, unsigned gpu) {
  char assumptions[512];
  struct emu_kernel_stats *k;
  size_t n;
  if (emu_kernels(machine, gpu, &k, &n)) return;
  if (n && !emu_assumptions(machine, gpu, assumptions, sizeof assumptions)) {
    fprintf(f,
            "doorbell emu: process %d, GPU %u, per execution: active lanes; sectors of 32 bytes, and which part of\n"
            "them is used in percent; LDS cycles. In sum: cycles that bank conflicts add. In percent: branches that\n"
            "diverge; lines found in L1 and in L2. wait: cycles until a load has its data.\n",
            (int)getpid(), gpu);
    fprintf(f, "%s\n", *assumptions ? assumptions : "no model of caches for this GPU: L1, L2 and wait stay empty");
  }
  for (size_t i = 0; i < n; i++) print_kernel(f, machine, gpu, &k[i]);
  free(k);
}

void client_annotate(struct os *machine) {
  struct emu_stats s;
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f) return;
  for (unsigned gpu = 0; !emu_stats(machine, gpu, &s); gpu++) print_gpu(f, machine, gpu);
  if (!fclose(f)) (void)!write(STDERR_FILENO, text, size);
  free(text);
}
