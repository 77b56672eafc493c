/* doorbell help: texts that are generated from the commands' tables and the table of variables: help, manual pages,
 * shell completions. */
#include "cli.h"
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name, *summary, *text;
} variables[] = {
#define NUMBER(name, most, unset, summary, text) {#name, summary, text},
#define TEXT(name, summary, text)                {#name, summary, text},
#include "../run/variables.def"
};
enum { NVARIABLES = sizeof variables / sizeof *variables };

static const char title[] = "doorbell - run tensor programs and GPU kernels without the vendor's runtime";

/* ---- help ---- */

void help_print(FILE *f) {
  fprintf(f, "%s\n\nUsage: doorbell COMMAND [ARGUMENT...]\n\n", title);
  for (const struct command *const *c = commands; *c; c++) fprintf(f, "  %-9s %s\n", (*c)->name, (*c)->summary);
  fputs("  version   print the version\n\nenvironment (see the manual page for details):\n", f);
  for (unsigned i = 0; i < NVARIABLES; i++) fprintf(f, "  %-17s %s\n", variables[i].name, variables[i].summary);
  fputs("\nExit status: 0 success, 1 failure, 2 wrong usage\n", f);
}

/* Prints words in lines of `width` columns; lines after the first are indented. */
static void print_wrapped(FILE *f, const char *text, size_t column, size_t indent, size_t width) {
  while (*text) {
    size_t n = strcspn(text, " ");
    if (column > indent && column + 1 + n > width) {
      fprintf(f, "\n%*s", (int)indent, "");
      column = indent;
    } else if (column > indent)
      column += (size_t)fprintf(f, " ");
    fwrite(text, 1, n, f);
    column += n, text += n + strspn(text + n, " ");
  }
  fputc('\n', f);
}

/* Prints the list for frontend/README.md. */
static void print_variables(FILE *f) {
  for (unsigned i = 0; i < NVARIABLES; i++) {
    int n = fprintf(f, "- `%s`:", variables[i].name);
    print_wrapped(f, variables[i].text, (size_t)n, 2, 120);
  }
}

/* ---- manual pages. Source: man(7) ---- */

static void print_roff(FILE *f, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool begins = !i || text[i - 1] == '\n';
    if (begins && (text[i] == '.' || text[i] == '\'')) fputs("\\&", f);
    if (text[i] == '\\')
      fputs("\\e", f);
    else if (text[i] == '-')
      fputs("\\-", f);
    else
      fputc(text[i], f);
  }
}

static void print_entry(FILE *f, const char *name, const char *value, const char *text) {
  fputs(".TP\n.B ", f);
  print_roff(f, name, strlen(name));
  if (value) {
    fputs("\\fR=\\fI", f);
    print_roff(f, value, strlen(value));
  }
  fputc('\n', f);
  print_roff(f, text, strlen(text));
  fputc('\n', f);
}

/* Lines that start with a space are printed verbatim. */
static void print_paragraphs(FILE *f, const char *text) {
  bool keeps = false;
  while (*text) {
    size_t n = strcspn(text, "\n");
    if ((*text == ' ') != keeps) fputs(keeps ? ".fi\n" : ".nf\n", f), keeps = !keeps;
    if (n)
      print_roff(f, text, n), fputc('\n', f);
    else
      fputs(".PP\n", f);
    text += n + (text[n] == '\n');
  }
  if (keeps) fputs(".fi\n", f);
}

static void print_synopsis(FILE *f, const struct command *c) {
  const char *words = c->argp.args_doc ? c->argp.args_doc : "";
  do {
    size_t n = strcspn(words, "\n");
    fprintf(f, ".B doorbell %s\n[OPTION...] ", c->name);
    print_roff(f, words, n);
    fputs("\n.br\n", f);
    words += n + (words[n] == '\n');
  } while (*words);
}

static void print_options(FILE *f, const struct command *c) {
  for (const struct argp_option *o = c->argp.options; o && o->name; o++) {
    char name[64];
    int written = o->key < OPTION_KEYS ? snprintf(name, sizeof name, "-%c, ", o->key) : 0;
    snprintf(name + written, sizeof name - (size_t)written, "--%s", o->name);
    print_entry(f, name, o->arg, o->doc);
  }
}

static void print_title(FILE *f, const char *page, const char *name, const char *summary) {
  fprintf(f, ".TH %s 1 \"\" \"doorbell " DB_VERSION "\" \"User Commands\"\n.SH NAME\n", page);
  print_roff(f, name, strlen(name));
  fputs(" \\- ", f);
  print_roff(f, summary, strlen(summary));
  fputs("\n.SH SYNOPSIS\n", f);
}

static void print_exit_status(FILE *f) {
  fputs(".SH EXIT STATUS\n0 success; 1 failure; 2 wrong usage.\n.SH SEE ALSO\n", f);
}

static void print_command_page(FILE *f, const struct command *c) {
  char name[64];
  const char *doc = c->argp.doc, *notes = strchr(doc, '\v');
  snprintf(name, sizeof name, "doorbell-%s", c->name);
  print_title(f, name, name, c->summary);
  print_synopsis(f, c);
  fputs(".SH DESCRIPTION\n", f);
  print_roff(f, doc, notes ? (size_t)(notes - doc) : strlen(doc));
  fputc('\n', f);
  if (c->argp.options) fputs(".SH OPTIONS\n", f);
  print_options(f, c);
  if (notes) fputs(".SH NOTES\n", f), print_paragraphs(f, notes + 1);
  print_exit_status(f);
  fputs(".BR doorbell (1)\n", f);
}

static void print_page(FILE *f) {
  print_title(f, "doorbell", "doorbell", strchr(title, '-') + 2);
  fputs(".B doorbell\nCOMMAND [ARGUMENT...]\n.SH DESCRIPTION\n"
        "Doorbell drives GPUs by itself: it opens the kernel driver, writes packets into hardware queues and rings the "
        "doorbell. Where there is no GPU it brings an emulated one that answers the same system calls and executes the "
        "same machine code. Each command has its own page.\n.SH COMMANDS\n",
        f);
  for (const struct command *const *c = commands; *c; c++) print_entry(f, (*c)->name, NULL, (*c)->summary);
  fputs(".SH ENVIRONMENT\n", f);
  for (unsigned i = 0; i < NVARIABLES; i++) print_entry(f, variables[i].name, NULL, variables[i].text);
  fputs(".SH FILES\n", f);
  print_entry(f, "$XDG_CACHE_HOME/doorbell, or ~/.cache/doorbell", NULL,
              "Compiled kernels, and the plans that BEAM found. May be removed at any time.");
  print_exit_status(f);
  for (const struct command *const *c = commands; *c; c++) fprintf(f, ".BR doorbell\\-%s (1)\n", (*c)->name);
}

/* ---- completions ---- */

/* Completions of an option's value, by the value's name in --help. */
static const char devices[] = "CPU AMD NV EMU+AMD:gfx1100 EMU+NV:sm_90", gpus[] = "gfx1100 sm_80 sm_86 sm_89 sm_90";
static const struct {
  const char *value, *words; /* words: NULL for file names */
} completed[] = {{"DEV", devices}, {"FILE", NULL},           {"K=FILE.npy", NULL},
                 {"K=FILE", NULL}, {"NAME[,NAME...]", gpus}, {"SHELL", "bash zsh fish"}};

static bool values_of(const struct argp_option *o, const char **words) {
  *words = NULL;
  if (!o->arg) return false;
  for (unsigned i = 0; i < sizeof completed / sizeof *completed; i++)
    if (!strcmp(o->arg, completed[i].value)) return *words = completed[i].words, true;
  return false;
}

/* Prints text in single quotes, without the characters in drop, up to a semicolon or the end of the first sentence. */
static void print_quoted(FILE *f, const char *text, const char *drop) {
  fputc('\'', f);
  for (; *text && *text != ';' && !(*text == '.' && text[1] == ' '); text++)
    if (*text == '\'')
      fputs("'\\''", f);
    else if (!strchr(drop, *text))
      fputc(*text, f);
  fputc('\'', f);
}

static void complete_bash(FILE *f) {
  fputs("# bash completion for doorbell\n_doorbell() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
        "  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '",
        f);
  for (const struct command *const *c = commands; *c; c++) fprintf(f, "%s ", (*c)->name);
  fputs("version' -- \"$word\")); return; fi\n  case $command,$before in\n", f);
  for (const struct command *const *c = commands; *c; c++)
    for (const struct argp_option *o = (*c)->argp.options; o && o->name; o++) {
      const char *words;
      if (values_of(o, &words) && words)
        fprintf(f, "  %s,--%s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return;;\n", (*c)->name, o->name, words);
    }
  fputs("  esac\n  case $command,$word in\n", f);
  for (const struct command *const *c = commands; *c; c++) {
    fprintf(f, "  %s,-*) COMPREPLY=($(compgen -W '", (*c)->name);
    for (const struct argp_option *o = (*c)->argp.options; o && o->name; o++) fprintf(f, "--%s ", o->name);
    fputs("--help' -- \"$word\"));;\n", f);
  }
  fputs("  *) COMPREPLY=($(compgen -f -- \"$word\"));;\n  esac\n}\n"
        "complete -o filenames -F _doorbell doorbell\n",
        f);
}

static void complete_zsh(FILE *f) {
  fputs("#compdef doorbell\nlocal -a commands=(\n", f);
  for (const struct command *const *c = commands; *c; c++) {
    fprintf(f, "  %s:", (*c)->name);
    print_quoted(f, (*c)->summary, ":");
    fputc('\n', f);
  }
  fputs("  version:'print the version'\n)\n"
        "if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
        "local command=$words[2]\nshift words; (( CURRENT-- ))\ncase $command in\n",
        f);
  for (const struct command *const *c = commands; *c; c++) {
    fprintf(f, "%s) _arguments", (*c)->name);
    for (const struct argp_option *o = (*c)->argp.options; o && o->name; o++) {
      const char *words;
      fprintf(f, " \\\n  '*--%s%s['", o->name, o->arg ? "=" : "");
      print_quoted(f, o->doc, "[]:");
      fputs("']", f);
      if (o->arg && values_of(o, &words) && words)
        fprintf(f, ":value:(%s)'", words);
      else
        fputs(o->arg ? ":value:_files'" : "'", f);
    }
    fputs(" \\\n  '*:file:_files';;\n", f);
  }
  fputs("esac\n", f);
}

static void complete_fish(FILE *f) {
  fputs("# fish completion for doorbell\n", f);
  for (const struct command *const *c = commands; *c; c++) {
    fprintf(f, "complete -c doorbell -n __fish_use_subcommand -f -a %s -d ", (*c)->name);
    print_quoted(f, (*c)->summary, "");
    fputc('\n', f);
    for (const struct argp_option *o = (*c)->argp.options; o && o->name; o++) {
      const char *words;
      fprintf(f, "complete -c doorbell -n '__fish_seen_subcommand_from %s' -l %s%s -d ", (*c)->name, o->name,
              o->arg ? " -r" : "");
      print_quoted(f, o->doc, "");
      if (values_of(o, &words) && words) fprintf(f, " -f -a '%s'", words);
      fputc('\n', f);
    }
  }
  fputs("complete -c doorbell -n __fish_use_subcommand -f -a version -d 'print the version'\n", f);
}

static const struct {
  const char *name;
  void (*print)(FILE *f);
} shells[] = {{"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};

/* ---- the command ---- */

struct ctx {
  const struct command *of;
  bool commands, man, variables;
  void (*completion)(FILE *f);
};
enum { COMMANDS = OPTION_KEYS, MAN, VARIABLES, COMPLETION };
static const struct argp_option options[] = {
    {"commands", COMMANDS, NULL, 0, "Print the commands' names", 0},
    {"man", MAN, NULL, 0, "Print the manual page, in roff", 0},
    {"variables", VARIABLES, NULL, 0, "Print what the environment variables do, in Markdown", 0},
    {"completion", COMPLETION, "SHELL", 0, "Print completions for bash, zsh or fish", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case COMMANDS: x->commands = true; return 0;
  case MAN: x->man = true; return 0;
  case VARIABLES: x->variables = true; return 0;
  case COMPLETION:
    for (unsigned i = 0; i < sizeof shells / sizeof *shells; i++)
      if (!strcmp(value, shells[i].name)) x->completion = shells[i].print;
    if (!x->completion) argp_error(state, "--completion %s: expected bash, zsh or fish", value);
    return 0;
  case ARGP_KEY_ARG:
    if (x->of) argp_error(state, "only one command is possible, not '%s' and '%s'", x->of->name, value);
    if (!(x->of = command_find(value))) command_unknown(state->name, value), exit(EXIT_USAGE);
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static int help_main(const struct command *self, int argc, char **argv) {
  struct ctx x = {0};
  command_parse(self, argc, argv, 0, &x);
  char name[64];
  if (x.of) snprintf(name, sizeof name, "doorbell %s", x.of->name);
  if (x.completion)
    x.completion(stdout);
  else if (x.commands)
    for (const struct command *const *c = commands; *c; c++) puts((*c)->name);
  else if (x.variables)
    print_variables(stdout);
  else if (x.man && x.of)
    print_command_page(stdout, x.of);
  else if (x.man)
    print_page(stdout);
  else if (x.of)
    argp_help(&x.of->argp, stdout, ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK, name);
  else
    help_print(stdout);
  return EXIT_DONE;
}

const struct command help_command = {
    .name = "help",
    .summary = "print this text, or the help of a command: doorbell help run",
    .argp = {.options = options,
             .parser = parse,
             .args_doc = "[COMMAND]",
             .doc = "Prints what a command does and its options, or the list of commands."},
    .main = help_main,
};
