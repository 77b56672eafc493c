/* The parts of `doorbell run` that are files of their own. */
#ifndef DOORBELL_CLI_RUN_H
#define DOORBELL_CLI_RUN_H
#include "cli.h"

/* ---- run_trace.c: --thread-trace ---- */
enum { RUN_TRACE_PATH = 1024 };
/* Returns NULL, after a message, if the device has no thread traces. */
db_thread_trace *run_trace_open(const struct command *self, db_device *dev);
/* The file of a shader engine: PREFIX.se0.sqtt. */
void run_trace_path(char path[RUN_TRACE_PATH], const char *prefix, unsigned engine);
/* Writes the files. Returns the exit status. */
int run_trace_save(const struct command *self, const db_thread_trace *t, const char *prefix);
#endif
