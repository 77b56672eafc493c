/* The printers of `doorbell show` that are files of their own. */
#ifndef DOORBELL_CLI_SHOW_H
#define DOORBELL_CLI_SHOW_H
#include "cli.h"

struct show_options {
  const char *file;
  const char *code, *kernel; /* of a thread trace: the file of its program and the kernel's name, or NULL */
  bool json, packets, insts, waves;
};
/* Prints a thread trace. Returns the exit status. */
int show_trace(const struct command *self, const struct show_options *x, const struct mapping *m);
/* llm/show_gguf.c: prints metadata and tensors of a language model. Returns the exit status. */
int show_gguf(const struct command *self, const struct show_options *x, const struct mapping *m);
/* onnx/onnx.c: prints the inputs and outputs of a model. Returns the exit status. */
int show_onnx(const struct command *self, const struct show_options *x, const struct mapping *m);
/* Prints a list of objects {name, dtype, shape, bytes}, a line each, and their sum. */
void show_print_tensors(const json_t *list);
#endif
