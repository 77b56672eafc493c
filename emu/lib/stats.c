/* What the GPUs of a process executed: as text or as a line of JSON per GPU on standard error, and as a file for
 * `doorbell prof`. */
#define _GNU_SOURCE
#include "client.h"
#include "../machine.h"
#include "preload.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOP_KERNELS = 20 };
#define N(x) ((unsigned long long)(x))

#define X(n, text) text,
static const char *const classes[] = {EMU_CLASSES(X)}, *const spaces[] = {EMU_SPACES(X)};
#undef X

/* ---- as text ---- */

static void print_detail(const struct emu_detail *d) {
  char line[1024];
  size_t n = 0;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++)
    if (d->executed[i] && n < sizeof line)
      n += (size_t)snprintf(line + n, sizeof line - n, "%s%llu %s", n ? ", " : "", N(d->executed[i]), classes[i]);
  dprintf(STDERR_FILENO, "  instructions: %s\n", n ? line : "none");
  for (unsigned i = 0; i < EMU_SPACE_COUNT; i++)
    if (d->loaded[i] || d->stored[i])
      dprintf(STDERR_FILENO, "  %s: %llu bytes loaded, %llu stored\n", spaces[i], N(d->loaded[i]), N(d->stored[i]));
  if (d->executed[EMU_LDS_CLASS] || d->lds_conflicts)
    dprintf(STDERR_FILENO, "  LDS bank conflicts: %llu of %llu cycles\n", N(d->lds_conflicts), N(d->lds_cycles));
  if (d->lines)
    dprintf(STDERR_FILENO,
            "  global: %llu accessed lines of 128 bytes, %llu sectors of 32, %llu bytes of distinct lines\n",
            N(d->lines), N(d->sectors), N(d->memory_bytes));
  if (d->model_ps) dprintf(STDERR_FILENO, "  model time, not a measurement: %.3f us\n", (double)d->model_ps * 1e-6);
  dprintf(STDERR_FILENO, "  EXEC: partial in %llu of %llu vector instructions, %.1f lanes active on average\n",
          N(d->partial), N(d->vector), d->vector ? (double)d->lanes / (double)d->vector : 0);
  dprintf(STDERR_FILENO, "  conditional branches: %llu, of them divergent %llu\n", N(d->branches), N(d->divergent));
  dprintf(STDERR_FILENO, "  not exact: %llu instructions\n", N(d->approximate));
}

static void print_kernels(struct os *machine, unsigned gpu) {
  struct emu_kernel_stats *k;
  size_t n;
  if (emu_kernels(machine, gpu, &k, &n)) return;
  for (size_t i = 0; i < n && i < TOP_KERNELS; i++) {
    dprintf(STDERR_FILENO,
            "doorbell emu: process %d, GPU %u, kernel %s at 0x%llx: %llu dispatches, %llu waves, %llu instructions\n",
            (int)getpid(), gpu, *k[i].name ? k[i].name : "?", N(k[i].pgm), N(k[i].dispatches), N(k[i].waves),
            N(k[i].instructions));
    print_detail(&k[i].detail);
  }
  if (n > TOP_KERNELS) dprintf(STDERR_FILENO, "doorbell emu: and %zu more kernels\n", n - TOP_KERNELS);
  free(k);
}

static void print_text(struct os *machine) {
  struct emu_stats s;
  for (unsigned gpu = 0; !emu_stats(machine, gpu, &s); gpu++) {
    dprintf(STDERR_FILENO,
            "doorbell emu: process %d, GPU %u: %llu dispatches, %llu workgroups, %llu waves, %llu instructions, "
            "%llu bytes loaded, %llu bytes stored\n",
            (int)getpid(), gpu, N(s.dispatches), N(s.workgroups), N(s.waves), N(s.instructions), N(s.bytes_loaded),
            N(s.bytes_stored));
    if (!s.dispatches) continue;
    print_detail(&s.detail);
    print_kernels(machine, gpu);
  }
}

/* ---- as JSON ---- */

static void json_detail(FILE *f, const struct emu_detail *d) {
  fputs(", \"executed\": {", f);
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++)
    fprintf(f, "%s\"%s\": %llu", i ? ", " : "", classes[i], N(d->executed[i]));
  fputs("}, \"memory\": {", f);
  for (unsigned i = 0; i < EMU_SPACE_COUNT; i++)
    fprintf(f, "%s\"%s\": {\"loaded\": %llu, \"stored\": %llu}", i ? ", " : "", spaces[i], N(d->loaded[i]),
            N(d->stored[i]));
  const struct {
    const char *name;
    uint64_t value;
  } counts[] = {{"lds_conflict_cycles", d->lds_conflicts},
                {"lds_cycles", d->lds_cycles},
                {"lines", d->lines},
                {"sectors", d->sectors},
                {"distinct_line_bytes", d->memory_bytes},
                {"model_ps", d->model_ps},
                {"vector", d->vector},
                {"partial", d->partial},
                {"lanes", d->lanes},
                {"branches", d->branches},
                {"divergent", d->divergent},
                {"approximate", d->approximate}};
  fputc('}', f);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    fprintf(f, ", \"%s\": %llu", counts[i].name, N(counts[i].value));
}

/* The name of a GPU's architecture. */
static void json_arch(FILE *f, unsigned gpu) {
  const char *names = getenv(CLIENT_GPUS);
  for (; names && gpu; gpu--) names = (names = strchr(names, ',')) ? names + 1 : NULL;
  char *name = names ? strndup(names, strcspn(names, ",")) : NULL;
  fputs(", \"arch\": ", f);
  emu_json_text(f, name ? name : "");
  free(name);
}

/* With lines, also the instructions of each kernel, if they were counted. */
static void json_gpu(FILE *f, struct os *machine, unsigned gpu, const struct emu_stats *s, bool lines) {
  struct emu_kernel_stats *k;
  size_t n;
  fprintf(f, "{\"process\": %d, \"gpu\": %u", (int)getpid(), gpu);
  json_arch(f, gpu);
  fprintf(f,
          ", \"dispatches\": %llu, \"workgroups\": %llu, \"waves\": %llu, "
          "\"instructions\": %llu, \"bytes_loaded\": %llu, \"bytes_stored\": %llu",
          N(s->dispatches), N(s->workgroups), N(s->waves), N(s->instructions), N(s->bytes_loaded), N(s->bytes_stored));
  json_detail(f, &s->detail);
  fputs(", \"kernels\": [", f);
  if (emu_kernels(machine, gpu, &k, &n)) n = 0, k = NULL;
  for (size_t i = 0; i < n; i++) {
    fputs(i ? ", {\"name\": " : "{\"name\": ", f);
    emu_json_text(f, k[i].name);
    fprintf(f, ", \"address\": %llu, \"dispatches\": %llu, \"waves\": %llu, \"instructions\": %llu", N(k[i].pgm),
            N(k[i].dispatches), N(k[i].waves), N(k[i].instructions));
    json_detail(f, &k[i].detail);
    char *text = NULL;
    if (lines && !emu_instructions_json(machine, gpu, &k[i], &text)) fprintf(f, ", \"lines\": %s", text);
    free(text);
    fputc('}', f);
  }
  fputs("]}\n", f);
  free(k);
}

/* Writes each line by one call, so that lines of several processes do not mix in a file that is open for appending. A
 * pipe may still split lines of more than PIPE_BUF bytes. */
static void print_json(struct os *machine) {
  struct emu_stats s;
  for (unsigned gpu = 0; !emu_stats(machine, gpu, &s); gpu++) {
    char *line = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&line, &size);
    if (!f) return;
    json_gpu(f, machine, gpu, &s, false);
    if (!fclose(f)) (void)!write(STDERR_FILENO, line, size);
    free(line);
  }
}

void client_print_stats(struct os *machine, bool json) { (json ? print_json : print_text)(machine); }

/* Writes the same lines to FOLDER/PID.emu. */
void client_save_stats(struct os *machine, const char *folder) {
  struct emu_stats s;
  char *path = NULL;
  if (asprintf(&path, "%s/%ld.emu", folder, (long)getpid()) < 0) return;
  FILE *f = REAL->fopen(path, "we");
  for (unsigned gpu = 0; f && !emu_stats(machine, gpu, &s); gpu++) json_gpu(f, machine, gpu, &s, true);
  if (!f || fclose(f)) dprintf(STDERR_FILENO, "doorbell emu: PROF=%s: the counts cannot be written\n", folder);
  free(path);
}
