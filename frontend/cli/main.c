/* The `doorbell` command: selects the subcommand. */
#include "cli.h"
#include <signal.h>
#include <string.h>

const struct command *const commands[] = {&devices_command, &bench_command, &run_command,  &prof_command, &emu_command,
                                          &disasm_command,  &jit_command,   &show_command, &llm_command,  &onnx_command,
                                          &cache_command,   &help_command,  NULL};

const struct command *command_find(const char *name) {
  for (const struct command *const *c = commands; *c; c++)
    if (!strcmp((*c)->name, name)) return *c;
  return NULL;
}

/* The edit distance: the number of letters to insert, delete or replace. UINT32_MAX if b is too long. */
static unsigned distance(const char *a, const char *b) {
  enum { LONGEST = 32 };
  unsigned row[LONGEST + 1], n = (unsigned)strlen(b);
  if (n > LONGEST) return UINT32_MAX;
  for (unsigned k = 0; k <= n; k++) row[k] = k;
  for (unsigned i = 1; a[i - 1]; i++) {
    unsigned diagonal = row[0];
    row[0] = i;
    for (unsigned k = 1; k <= n; k++) {
      unsigned replaced = diagonal + (a[i - 1] != b[k - 1]), least = row[k] < row[k - 1] ? row[k] : row[k - 1];
      diagonal = row[k];
      row[k] = replaced < least + 1 ? replaced : least + 1;
    }
  }
  return row[n];
}

void command_unknown(const char *self, const char *word) {
  const struct command *best = NULL;
  unsigned least = 3;
  for (const struct command *const *c = commands; *c; c++) {
    unsigned d = distance((*c)->name, word);
    if (d < least) best = *c, least = d;
  }
  fprintf(stderr, "%s: unknown %s '%s'", self, word[0] == '-' ? "option" : "command", word);
  if (best) fprintf(stderr, "; did you mean '%s'?", best->name);
  fputs("\nTry 'doorbell --help' for more information.\n", stderr);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c) {
  return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_DFL);
  const char *word = argc > 1 ? argv[1] : NULL;
  char name[64];
  if (!word) {
    help_print(stderr);
    return EXIT_USAGE;
  }
  if (is_one_of(word, "version", "--version", "-V")) {
    puts("doorbell " DB_VERSION);
    return EXIT_DONE;
  }
  const struct command *c = is_one_of(word, "help", "--help", "-h") ? &help_command : command_find(word);
  if (!c) {
    command_unknown("doorbell", word);
    return EXIT_USAGE;
  }
  snprintf(name, sizeof name, "doorbell %s", c->name);
  argv[1] = name;
  int status = c->main(c, argc - 1, argv + 1);
  if (fflush(stdout) || ferror(stdout)) return fail_work(&(struct command){.name = ""}, "cannot write the output");
  return status;
}
