/* NVIDIA's assembler as a subprocess: PTX text in, cubin out, several at once.
 *
 * Nothing is written to disk: text and image travel in memory files that the child opens as /dev/fd/N. A pool belongs
 * to one thread at a time; its children run on their own while the caller prepares more text. */
#ifndef DOORBELL_COMPILER_PTXAS_H
#define DOORBELL_COMPILER_PTXAS_H
#include <stdbool.h>
#include <stddef.h>

struct ptxas;
struct ptxas_job;

/* Where the tool is: chosen (the value of $PTXAS; taken as it is) or else in the folders of search (of $PATH) or under
 * /usr/local/cuda/bin. malloc'd; NULL when there is none. */
char *ptxas_find(const char *chosen, const char *search);

/* path: the program, NULL when none was found (every job then fails and says how to get one). at_once 0: one a
 * processor. timeout_ms 0: a minute for each job. NULL: out of memory. */
struct ptxas *ptxas_new(const char *path, unsigned at_once, unsigned timeout_ms);
/* Ends jobs that still run. */
void ptxas_free(struct ptxas *p);

/* "release 13.0, V13.0.88": from the tool itself, asked once. NULL and a message when it cannot be run. */
const char *ptxas_version(struct ptxas *p, char *err, size_t errcap);

/* Queues a text for arch ("sm_90"); flags: more arguments divided by spaces, or NULL. Never blocks. NULL: out of
 * memory. */
struct ptxas_job *ptxas_start(struct ptxas *p, const char *arch, const char *text, size_t size, const char *flags);
/* Waits for the job and frees it. The image is malloc'd; false leaves what the tool said in err. */
bool ptxas_finish(struct ptxas_job *job, void **image, size_t *size, char *err, size_t errcap);
#endif
