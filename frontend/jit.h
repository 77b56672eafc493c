/* Functions of tensors that are captured once and replayed, and files of captured programs. */
#ifndef DOORBELL_JIT_H
#define DOORBELL_JIT_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- capture ----
 *
 * For a function of tensors that is called many times. The first call runs the function. The second call runs it and
 * records what it submits. Later calls replay the recording without running the function, with one doorbell per queue.
 * Copies have their own queues. Independent chains of kernels use more than one compute queue of a device where this
 * saves an estimated third of the time. With JIT=0 every call runs the function.
 *
 * Between calls the inputs may be other tensors of the same shape, type and device, and sizes that depend on variables
 * may have other values. Tensors that the function uses but does not receive as inputs (external tensors) may be
 * assigned to. Every call repeats the assignments (db_assign) of the function; those that it does not realize itself
 * are computed together with the outputs. Everything else stays as it was when captured: C numbers, branches taken,
 * host memory read by db_from.
 *
 * Capturing refuses: reading a value inside the function (db_read, db_item); assigning to an input; assigning to an
 * external tensor while its old value is still needed, for example by a tensor that shares its memory; and outputs that
 * are views of memory which are not contiguous (db_contiguous copies them) or whose offset depends on a variable. Any
 * devices may be mixed. A copy between two devices without peer access passes through pinned host memory that the
 * program owns. */

typedef struct db_jit db_jit;
/* Stores every output in out[i]: a tensor that the function made or an existing one. Returns 0 or a negative errno,
 * which db_jit_call returns. */
typedef int db_jit_fn(void *ctx, db_tensor *const *in, db_tensor **out);
db_jit *db_jit_new(db_jit_fn *fn, void *ctx, unsigned nin, unsigned nout); /* NULL on an error, with db_error() set */
/* Frees j and its recording; j may be NULL. */
void db_jit_free(db_jit *j);
/* Calls the function or replays it. Stores nout tensors in out, owned by the innermost open scope; later calls do not
 * change their values. Returns 0 or a negative errno when the work is submitted. An error leaves the recording as it
 * was; a changed shape is an error that names the shape. */
int db_jit_call(db_jit *j, db_tensor *const *in, db_tensor **out);
/* Drops the recording: the next call runs the function, the one after it captures. Returns 0 or a negative errno. */
int db_jit_reset(db_jit *j);
/* Stores the number of inputs and outputs of a call. */
void db_jit_counts(const db_jit *j, unsigned *nin, unsigned *nout);

/* ---- files ----
 *
 * A captured program in a file, with its compiled kernels. Another process on devices of the same ISA replays it
 * without the function, the scheduler and the compiler. CPU kernels run on processors that have the extensions they
 * were compiled for.
 *
 * The file contains the memory of external tensors (parameters, an optimizer's state, counters of random numbers) as it
 * is when saved. The loaded program owns a copy, and its calls continue from there. The file is a .safetensors file,
 * from which other readers can read the parameters. The code in a file is trusted like any other program. The rest of
 * the file is checked: a file that is truncated, changed, or of another version or device is refused with a message
 * that says what is wrong where.
 *
 * Tensors over several devices are saved as they are placed: a loaded program takes and returns them on the group of
 * the corresponding devices, split in the same way. Other readers find a replicated parameter once, and the parts of a
 * split one as ".memory.N". Exchanges between processes are not supported. */

/* params: external tensors to name in the file; NULL and 0 for none. Returns 0 or a negative errno: -EINVAL before
 * anything is captured. */
int db_jit_save(db_jit *j, const char *path, const struct db_named *params, unsigned n);
/* devices: in the order of the file, or NULL and 0 for the devices that it names. Returns NULL and sets db_error() on
 * an error. */
db_jit *db_jit_load(const char *path, db_device *const *devices, unsigned n);
/* A parameter of a loaded program by its name, or NULL if there is none. Calls read and write this tensor. A parameter
 * over several devices is placed as it was when saved. Owned by j; db_retain keeps it longer. */
db_tensor *db_jit_param(const db_jit *j, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
