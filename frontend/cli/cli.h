/* What the subcommands of `doorbell` share: options, messages, JSON. Exit status: 0 done, 1 failed, 2 wrong usage. */
#ifndef DOORBELL_CLI_H
#define DOORBELL_CLI_H
#include "../../hcq/json.h"
#include "../doorbell.h"
#include "../files/files.h"
#include <argp.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct command {
  const char *name, *summary;
  struct argp argp; /* options, words and the text of --help, of which man pages and completions are made, too */
  int (*main)(const struct command *self, int argc, char **argv); /* argv[0] is "doorbell NAME" */
};
extern const struct command devices_command, bench_command, run_command, emu_command, disasm_command, jit_command,
    show_command, cache_command, help_command;
extern const struct command *const commands[]; /* NULL-terminated */

/* ---- main.c ---- */
const struct command *command_find(const char *name); /* NULL: there is none */
/* Prints that there is no such command, and one with a name like it. self: who says so. */
void command_unknown(const char *self, const char *word);

/* ---- help.c ---- */
void help_print(FILE *f);

/* Options have no short form: their keys begin behind the characters. */
enum { OPTION_KEYS = 256 };

/* ---- options.c ---- */

/* Reads options and words into input, which the command's parser has as state->input. Ends the process after --help and
 * after an error, with argp's messages and EXIT_USAGE. */
void command_parse(const struct command *c, int argc, char **argv, unsigned flags, void *input);
/* Prints "doorbell NAME: message" and where to read more; returns EXIT_USAGE. */
int fail_usage(const struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints "doorbell NAME: message"; returns EXIT_FAILED. */
int fail_work(const struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "K=FILE", K from 0 to most; false when text is anything else. */
bool parse_numbered_file(const char *text, int64_t most, int64_t *k, const char **file);
/* A whole number in [least, most] in decimal or 0x; false when text is anything else. */
bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *out);

/* ---- json.c: what JSON has no words for, and lists with an object per line ---- */
json_t *json_finite(double v);       /* null when not finite */
void json_number(FILE *f, double v); /* the same, written */
/* Writes an object of a list, and releases it. */
void json_line(FILE *f, json_t *object, bool first);

/* ---- ptx.c ---- */
bool is_ptx(const void *bytes, size_t size);
bool is_cubin(const void *bytes, size_t size);
/* $PTXAS, or the ptxas on PATH or of the usual place; malloc'd, NULL when there is none. */
char *find_ptxas(void);
/* A cubin for arch from PTX text, malloc'd; -1 and what ptxas said in err. */
int assemble_ptx(const char *arch, const void *text, size_t size, void **image, size_t *image_size, char *err,
                 size_t errcap);

/* ---- bundle.c: clang's offload bundles ---- */
bool is_bundle(const void *bytes, size_t size);
/* The code object for arch (NULL: the only one of an AMD GPU), malloc'd; a negative errno and the reason in err. */
int bundle_extract(const void *bytes, size_t size, const char *arch, void **image, size_t *image_size, char *err,
                   size_t cap);

/* ---- compile.c: OpenCL C, assembly, LLVM IR and CUDA C by the compilers that are installed ---- */
/* By the file's name. */
bool is_source(const char *file);
/* Whether a source file can only be meant for an NVIDIA GPU. */
bool source_is_nvidia(const char *file, const char *text, size_t size);
/* A code object, a cubin or PTX text for arch, malloc'd; a negative errno and what the compiler said in err. */
int compile_source(const char *file, const char *arch, void **image, size_t *size, char *err, size_t cap);

/* ---- argument.c: what --arg says ---- */
struct argument {
  const char *spec;
  enum { ARGUMENT_VALUE, ARGUMENT_BUFFER, ARGUMENT_LOCAL } kind;
  db_dtype dtype;
  int64_t count; /* elements of a buffer, bytes of local memory, 1 for a value */
  unsigned rank; /* of the file it came from; a list otherwise */
  int64_t dim[32];
  size_t bytes;
  void *data; /* initial contents; free() */
};
/* 0, or -EINVAL and a message that names what is wrong with the text. */
int argument_parse(const char *spec, struct argument *out, char *err, size_t errcap);
bool dtype_parse(const char *text, size_t n, db_dtype *out);
/* Element i as text, or as a JSON value. */
void element_print(FILE *f, db_dtype t, const void *data, int64_t i, bool json);

#endif
