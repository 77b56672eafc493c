/* NVIDIA's assembler as a subprocess: PTX text in, cubin out, several at once.
 *
 * Nothing is written to disk: text and image are passed in memory files that the child opens as /dev/fd/N. One thread
 * at a time may use a pool. The children run while the caller prepares more text. */
#ifndef DOORBELL_COMPILER_PTXAS_H
#define DOORBELL_COMPILER_PTXAS_H
#include <stdbool.h>
#include <stddef.h>

struct ptxas;
struct ptxas_job;

/* Returns the path of the tool: `chosen` if it is not empty (the value of $PTXAS), else the first ptxas in the folders
 * of `search` (the value of $PATH) or in /usr/local/cuda/bin. The caller frees it. Returns NULL if there is none. */
char *ptxas_find(const char *chosen, const char *search);

/* path: the program; if NULL, every job fails with a message that says how to install it. at_once: number of processes,
 * 0 for one per processor. timeout_ms: per job, 0 for a minute. Returns NULL if memory runs out. */
struct ptxas *ptxas_new(const char *path, unsigned at_once, unsigned timeout_ms);
/* Kills the jobs that still run, and frees the pool. */
void ptxas_free(struct ptxas *p);

/* Returns what the tool reports, for example "release 13.0, V13.0.88"; the tool is asked once. Returns NULL and writes
 * a message to err if it cannot run. */
const char *ptxas_version(struct ptxas *p, char *err, size_t errcap);

/* Queues a text for arch ("sm_90"). flags: more arguments separated by spaces, or NULL. Never blocks. Returns NULL if
 * memory runs out. */
struct ptxas_job *ptxas_start(struct ptxas *p, const char *arch, const char *text, size_t size, const char *flags);
/* Waits for the job and frees it. On success the caller frees *image. On failure returns false, and err has the tool's
 * output. */
bool ptxas_finish(struct ptxas_job *job, void **image, size_t *size, char *err, size_t errcap);
#endif
