/* The `doorbell` command: which subcommand runs, and what there is. */
#include "cli.h"
#include <signal.h>
#include <string.h>

static const struct command *const commands[] = {&devices_command, &bench_command,  &run_command,
                                                 &emu_command,     &disasm_command, &jit_command};
enum { COMMANDS = sizeof commands / sizeof *commands };
static const struct command self = {.name = ""};

static void print_help(FILE *f) {
  fputs("doorbell - run tensor programs and GPU kernels without the vendor's runtime\n\n"
        "usage: doorbell COMMAND [ARGUMENT]...\n\n",
        f);
  for (int i = 0; i < COMMANDS; i++) fprintf(f, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
  fputs("  help      this text, or that of a command: doorbell help run\n"
        "  version   the version\n\n"
        "environment:\n"
        "  DEV       device to use: CPU, AMD, AMD:1, NV, EMU+AMD:gfx1100, EMU+NV:sm_90; unset: CPU\n"
        "  DEBUG     2 a line per command with its time, 3 schedule and plans, 4 kernels as C,\n"
        "            5 the graph, 6 linear code, 7 assembly (each includes those before)\n"
        "  NOOPT=1   kernels without optimization steps\n"
        "  PLAN      optimization steps by hand, as DEBUG=3 shows them: for every kernel,\n"
        "            NAME=PLAN for one, @FILE for a file with a line per kernel\n"
        "  BEAM=N    search plans, N wide, by measuring; kept in beam.txt of the cache folder;\n"
        "            0 uses what was found and searches nothing\n"
        "  SPEC=1    check the graph between the compiler's stages\n"
        "  PTXAS     NVIDIA's assembler; unset: ptxas on PATH or under /usr/local/cuda/bin\n"
        "  CACHE=0   no kernel cache on disk ($XDG_CACHE_HOME/doorbell, ~/.cache/doorbell)\n\n"
        "exit status: 0 done, 1 something failed, 2 wrong usage\n",
        f);
}

static const struct command *find(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (!strcmp(commands[i]->name, name)) return commands[i];
  return NULL;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c) {
  return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_DFL);
  const char *word = argc > 1 ? argv[1] : NULL;
  if (!word) {
    print_help(stderr);
    return EXIT_USAGE;
  }
  if (is_one_of(word, "help", "--help", "-h")) {
    const struct command *c = argc > 2 ? find(argv[2]) : NULL;
    if (argc > 2 && !c) return fail_usage(&self, "unknown command '%s'", argv[2]);
    if (c)
      fputs(c->help, stdout);
    else
      print_help(stdout);
    return EXIT_DONE;
  }
  if (is_one_of(word, "version", "--version", "-V")) {
    puts("doorbell " DOORBELL_VERSION);
    return EXIT_DONE;
  }
  const struct command *c = find(word);
  if (!c) return fail_usage(&self, word[0] == '-' ? "unknown flag '%s'" : "unknown command '%s'", word);
  int status = c->main(c, argc - 2, argv + 2);
  if (fflush(stdout) || ferror(stdout)) return fail_work(&self, "writing the output failed");
  return status;
}
