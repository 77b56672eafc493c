/* What a host program may ask of an emulated machine beside the calls of its driver. The machine itself is made by
 * os_emulated (hcq/os.h). */
#ifndef DOORBELL_EMU_H
#define DOORBELL_EMU_H
#include <stdbool.h>
#include "../hcq/os.h"
#include "detail.h"

struct emu_stats {
  uint64_t instructions, waves, workgroups, dispatches;
  uint64_t bytes_loaded, bytes_stored;
  struct emu_detail detail; /* of the dispatches begun while emu_detail was on */
};
/* Totals of GPU index since the machine was made. -EINVAL when os is not an emulated machine or has no such GPU. */
int emu_stats(struct os *os, unsigned gpu, struct emu_stats *out);
/* Has dispatches from now on counted instruction by instruction, which takes some times as long, or no longer. -EINVAL
 * when os is not an emulated machine. */
int emu_detail(struct os *os, bool on);
/* The same counts by kernel, those with the most instructions first; the caller frees *out. -EINVAL as emu_stats, or
 * -ENOMEM. */
struct emu_kernel_stats {
  char name[128]; /* "" when nothing in memory tells it */
  uint64_t pgm;   /* address of its first instruction */
  uint64_t dispatches, waves, instructions;
  struct emu_detail detail;
};
int emu_kernels(struct os *os, unsigned gpu, struct emu_kernel_stats **out, size_t *n);
/* Why the machine refused the last call that failed, one line; "" if none did. What a kernel would print to its log.
 * -EINVAL as above. */
int emu_reason(struct os *os, char *buf, size_t cap);
/* Has print called with one line for each fault of a GPU, by the thread that met it and before the process is told; one
 * printer per machine, set before the machine is used. -EINVAL as above. */
int emu_log(struct os *os, void (*print)(void *ctx, const char *line), void *ctx);
/* Abandons the dispatches that run, each with a line to the log, and waits for that a little: for the end of a process,
 * which the machine does not otherwise notice. -EINVAL as above. */
int emu_stop(struct os *os);
#endif
