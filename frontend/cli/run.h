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
/* If `doorbell prof` records this process, records the counts of each instruction. code: the file of the kernel. */
int run_trace_record(const struct command *self, const db_thread_trace *t, db_device *dev, const char *kernel,
                     const void *code, size_t size);

/* ---- run_samples.c: --pc-samples. s may be NULL where it says nothing else ---- */
struct run_samples;
/* Returns NULL, after a message, if the device has no PC sampling. */
struct run_samples *run_samples_open(const struct command *self, db_device *dev);
void run_samples_begin(struct run_samples *s, db_queue *q);
void run_samples_end(struct run_samples *s, db_queue *q);
/* Reads the samples after the launches. image: the cubin of the program. Returns the exit status. */
int run_samples_read(const struct command *self, struct run_samples *s, db_device *dev, const db_program *program,
                     const void *image, size_t size);
/* Prints what was read: lines, or a member of a JSON object. s is not NULL. */
void run_samples_print(const struct run_samples *s, bool json);
/* If `doorbell prof` records this process, records the samples of each instruction. */
void run_samples_record(const struct run_samples *s, db_device *dev, const char *kernel);
void run_samples_close(struct run_samples *s);

/* ---- run_code.c ---- */
/* If `doorbell prof --code` records this process, records the instructions of an AMD or NVIDIA kernel. */
void run_code_record(db_device *dev, const char *kernel, const void *image, size_t size);

/* ---- run_counters.c: --counters ---- */
struct run_counters;
/* Prints what the device can count. Returns the exit status. */
int run_counters_list(const struct command *self, db_device *dev);
/* list: names, separated by commas. Returns NULL, after a message, if the device does not count them. */
struct run_counters *run_counters_open(const struct command *self, db_device *dev, const char *list);
/* c may be NULL in all of these. Launch number `run` counts in the pass of that number, if there is one. */
unsigned run_counters_passes(const struct run_counters *c);
void run_counters_begin(struct run_counters *c, db_queue *q, int64_t run);
void run_counters_end(struct run_counters *c, db_queue *q, int64_t run);
/* Reads the sums after the launches. Returns the exit status: passes that did different work are an error. */
int run_counters_read(const struct command *self, struct run_counters *c);
/* Prints the sums that were read: a line each, or a member of a JSON object. */
void run_counters_print(const struct run_counters *c, bool json);
void run_counters_close(struct run_counters *c);
#endif
