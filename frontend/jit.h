/* Functions of tensors that are captured once and replayed, and files of them. */
#ifndef DOORBELL_JIT_H
#define DOORBELL_JIT_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- capture ----
 *
 * A function of tensors that is called again and again: the first call runs it, the second runs it and writes down what
 * it submits, later ones replay that without running it: one doorbell a queue. Copies have queues of their own;
 * independent chains of kernels get more than one compute queue of a device where, by estimate, a third of the time is
 * saved. JIT=0 runs it every time.
 *
 * Between calls the inputs may be other tensors of the same shape, type and device (sizes over variables may have other
 * values), and tensors that the function found elsewhere may have been assigned to. What it assigns itself (db_assign)
 * is assigned by every call: assigns that it has not realized are computed together with the outputs. Everything else
 * is as it was when captured: numbers of C, branches taken, host memory read by db_from. Refused are: reading a value
 * inside (db_read, db_item); assigning an input; assigning a tensor found elsewhere while its old value is still
 * needed, by a tensor that is in its memory, say; and outputs that are views at a place that a variable says. The
 * devices may be any; a copy between two that do not reach each other's memory passes through pinned host memory of the
 * program's own. */

typedef struct db_jit db_jit;
/* Sets out[i] for every output, to a tensor of its own or to one that was there; 0, or a negative errno that the call
 * returns. */
typedef int db_jit_fn(void *ctx, db_tensor *const *in, db_tensor **out);
db_jit *db_jit_new(db_jit_fn *fn, void *ctx, unsigned nin, unsigned nout); /* NULL: db_error() tells why */
void db_jit_free(db_jit *j);
/* out: tensors that the innermost open scope owns; what a call returns keeps its values whatever later calls do.
 * Returns once the work is submitted. An error (of the function, of a shape that changed: which is said) leaves the
 * capture as it was. */
int db_jit_call(db_jit *j, db_tensor *const *in, db_tensor **out);
/* Drops what was captured: the next call runs the function, the one after it captures. */
int db_jit_reset(db_jit *j);
/* How many inputs and outputs a call has. */
void db_jit_counts(const db_jit *j, unsigned *nin, unsigned *nout);

/* A captured program in a file, with its compiled kernels: another process on devices of the same ISA replays it
 * without the function, without scheduling or compiling anything. Kernels for CPU run where the processor has what they
 * were compiled for.
 *
 * Memory of tensors that the function found elsewhere (parameters, an optimizer's state, counts of random numbers) goes
 * into the file as it is when saved, and belongs to the loaded program, whose calls go on from there. The file is a
 * .safetensors file that other readers can read parameters from. A loaded program trusts the code in it as one trusts
 * any program; the rest of the file is checked: one that is cut, changed, or of another version or device is refused
 * with what is wrong where.
 *
 * Tensors that lie on several devices as one are in it as they lay: a loaded program takes and returns them on the
 * group of the same of its devices, split as they were. Other readers find parameters that each device has, once, and
 * of those that are split the parts, as
 * ".memory.N". Not supported: exchanges between processes. */

/* params: tensors that the function found elsewhere and that are to have a name, NULL and 0 for none. -EINVAL before
 * anything is captured. */
int db_jit_save(db_jit *j, const char *path, const struct db_named *params, unsigned n);
/* devices: in the order that the file has them, or NULL and 0 for those it names. NULL: db_error() tells why. */
db_jit *db_jit_load(const char *path, db_device *const *devices, unsigned n);
/* A parameter of a loaded program, by its name: what calls read and write, on several devices as it was when saved. It
 * belongs to j; db_retain keeps it longer. NULL: there is none. */
db_tensor *db_jit_param(const db_jit *j, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
