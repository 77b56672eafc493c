/* What a host program can ask of an emulated machine in addition to the calls of its driver. os_emulated (hcq/os.h)
 * creates the machine. */
#ifndef DOORBELL_EMU_H
#define DOORBELL_EMU_H
#include <stdbool.h>
#include "../hcq/os.h"
#include "detail.h"

struct emu_stats {
  uint64_t instructions, waves, workgroups, dispatches;
  uint64_t bytes_loaded, bytes_stored;
  struct emu_detail detail; /* of dispatches that began while emu_detail was on */
};
/* Writes the totals of one GPU since the machine was created. Returns -EINVAL if os is not an emulated machine or has
 * no GPU with that index. */
int emu_stats(struct os *os, unsigned gpu, struct emu_stats *out);
/* Enables or disables per-instruction counting (struct emu_detail) for dispatches that begin after this call. Counting
 * slows execution several times. Returns -EINVAL if os is not an emulated machine. */
int emu_detail(struct os *os, bool on);
/* Whether the detail of GPUs of this architecture has model time. */
bool emu_has_model(const char *arch);
/* Writes the same counts per kernel, sorted by number of instructions, largest first. The caller frees *out. Returns
 * -EINVAL as emu_stats does, or -ENOMEM. */
struct emu_kernel_stats {
  char name[128]; /* "" if the name is not found in memory */
  uint64_t pgm;   /* address of its first instruction */
  uint64_t dispatches, waves, instructions;
  struct emu_detail detail;
};
int emu_kernels(struct os *os, unsigned gpu, struct emu_kernel_stats **out, size_t *n);
/* Like emu_detail, and also counts each instruction of each kernel, with a model of caches (exec/caches.h). The
 * workgroups of a dispatch then run one after another. */
int emu_annotate(struct os *os, bool on);
/* Writes the instructions of a kernel that emu_kernels lists, by address. The caller frees *out. Returns -EINVAL as
 * emu_stats does, -ENOENT if none were counted, or -ENOMEM. */
int emu_instructions(struct os *os, unsigned gpu, const struct emu_kernel_stats *kernel, struct emu_site **out,
                     size_t *n);
/* Likewise, as JSON: {source: a text about the counts, columns: their names, rows: [[address in the kernel, a count for
 * each column or null, the instruction]]}. The caller frees *out. */
int emu_instructions_json(struct os *os, unsigned gpu, const struct emu_kernel_stats *kernel, char **out);
/* Writes one line with the assumptions of a GPU's model of caches, or "" if there is none. Returns -EINVAL as emu_stats
 * does. */
int emu_assumptions(struct os *os, unsigned gpu, char *buf, size_t cap);
/* Writes one line that says why the machine refused the last failed call, or "" if no call has failed. A real kernel
 * would print this line to its log. Returns -EINVAL if os is not an emulated machine. */
int emu_reason(struct os *os, char *buf, size_t cap);
/* Sets a callback that receives one line for each GPU fault. The thread that met the fault calls it, before the process
 * is notified. A machine has one callback; set it before the machine is used. Returns -EINVAL if os is not an emulated
 * machine. */
int emu_log(struct os *os, void (*print)(void *ctx, const char *line), void *ctx);
/* Stops running dispatches and waits a short time for them to stop; logs one line for each. Call it when the process
 * ends, which the machine does not notice otherwise. Returns -EINVAL if os is not an emulated machine. */
int emu_stop(struct os *os);
#endif
