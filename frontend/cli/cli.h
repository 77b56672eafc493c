/* Shared by the subcommands of `doorbell`: options, messages, JSON. Exit status: 0 done, 1 failed, 2 wrong usage. */
#ifndef DOORBELL_CLI_H
#define DOORBELL_CLI_H
#include "../../hcq/json.h"
#include "../doorbell.h"
#include "../files/files.h"
#include "../source/source.h"
#include <argp.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct command {
  const char *name, *summary;
  struct argp argp; /* options, arguments and the text of --help; man pages and completions are generated from it */
  int (*main)(const struct command *self, int argc, char **argv); /* argv[0] is "doorbell NAME" */
};
extern const struct command devices_command, bench_command, run_command, emu_command, prof_command, disasm_command,
    jit_command, onnx_command, show_command, llm_command, cache_command, help_command;
extern const struct command *const commands[]; /* NULL-terminated */

/* A file that the command contains (.ci/embed.sh). A table of them ends with a NULL name. */
struct embedded {
  const char *name;
  const unsigned char *begin, *end;
};

/* ---- main.c ---- */
const struct command *command_find(const char *name); /* NULL if there is none */
/* Prints that there is no such command, and suggests one with a similar name. self: the name of the program. */
void command_unknown(const char *self, const char *word);

/* ---- help.c ---- */
void help_print(FILE *f);

/* The keys of options without a short form start above the characters. */
enum { OPTION_KEYS = 256 };

/* ---- options.c ---- */

/* Parses options and arguments into input, which the command's parser receives as state->input. Exits after --help, and
 * after an error with argp's message and EXIT_USAGE. */
void command_parse(const struct command *c, int argc, char **argv, unsigned flags, void *input);
/* Prints "doorbell NAME: message" and a hint at --help. Returns EXIT_USAGE. */
int fail_usage(const struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints "doorbell NAME: message". Returns EXIT_FAILED. */
int fail_work(const struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Keeps the word that names a command's only file; a second one is an error of usage. */
void keep_only_file(struct argp_state *state, const char **file, const char *word);
/* Parses "K=FILE", K from 0 to most. Returns false for any other text. */
bool parse_numbered_file(const char *text, int64_t most, int64_t *k, const char **file);
/* Parses an integer in [least, most], decimal or 0x. Returns false for any other text. */
bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *out);

/* ---- child.c ---- */
/* Runs a program: argv is NULL-terminated, argv[0] is searched for on PATH. prepare sets its environment and is called
 * in its process; if it returns false, errno says why. Returns the program's exit status; 128 + the number of the
 * signal that ended it; 127 or 126, after a message, if it cannot be run; EXIT_FAILED if no process can be made. */
int run_program(const struct command *self, char **argv, bool (*prepare)(const void *ctx), const void *ctx);

/* ---- prof_html.c ---- */
struct prof_session;
/* Writes the report of a session as an HTML page. report: what prof_report made of the session. Returns the exit
 * status. */
int prof_html_save(const struct command *self, const char *path, const struct prof_session *s, const json_t *report);

/* ---- runs.c: times of repeated runs ---- */
double cli_now(void); /* the time of CLOCK_MONOTONIC in seconds */
/* The first RUNS_WARM runs compile, capture and first replay the function; they are not counted. Initialize the struct
 * with zeros. */
enum { RUNS_WARM = 3 };
struct runs {
  unsigned warm, n; /* n: the runs that count */
  double sum, squares, start;
  double processor, processor_start; /* seconds of all threads of this process */
};
void runs_begin(struct runs *r);
void runs_end(struct runs *r);
double runs_mean(const struct runs *r);      /* seconds */
double runs_deviation(const struct runs *r); /* the standard deviation, in seconds */

/* ---- json.c: numbers that JSON cannot represent, and lists with an object per line ---- */
json_t *json_finite(double v);       /* null if v is not finite */
void json_number(FILE *f, double v); /* writes the same */
/* Writes an object of a list, and releases it. */
void json_line(FILE *f, json_t *object, bool first);

/* ---- argument.c: the text of --arg ---- */
struct argument {
  const char *spec;
  enum { ARGUMENT_VALUE, ARGUMENT_BUFFER, ARGUMENT_LOCAL } kind;
  db_dtype dtype;
  int64_t count; /* number of elements of a buffer, bytes of local memory, 1 for a value */
  unsigned rank; /* rank of the file that it was read from; otherwise 1 for a buffer */
  int64_t dim[32];
  size_t bytes;
  void *data; /* initial contents; the caller frees it */
};
/* Returns 0, or -EINVAL with a message that names the error in the text. */
int argument_parse(const char *spec, struct argument *out, char *err, size_t errcap);
bool dtype_parse(const char *text, size_t n, db_dtype *out);
/* Prints element i as text or as a JSON value. */
void element_print(FILE *f, db_dtype t, const void *data, int64_t i, bool json);

/* Prints the type, the shape and the first elements of a tensor, as a line of text or a JSON object. Returns the exit
 * status. */
int print_tensor(const struct command *self, const char *name, db_tensor *t, bool json);
/* Loads the only tensor of the file of --in NAME=FILE. The caller releases it. NULL after a message. */
db_tensor *load_input(const struct command *self, const char *name, const char *file, db_device *dev);

/* ---- jit.c: prints a captured program that was read from a file as JSON ---- */
struct jit_file;
int print_program_json(const struct command *self, const char *file, const struct jit_file *f);
#endif
