/* Doorbell's tensors: lazy arrays whose operations are fused, compiled and run on a CPU or a GPU.
 *
 *   {
 *     DB_SCOPED;
 *     db_tensor *x = db_from(((float[]){1, 2, 3, 4}), DB_F32, NULL, 2, 2);
 *     db_tensor *y = db_softmax(db_add(db_matmul(x, x), 0.5), -1);
 *     float out[4];
 *     if (db_read(y, out, sizeof out)) fprintf(stderr, "%s\n", db_error());
 *   }
 *
 * Lazy: an operation builds a graph and computes nothing. db_realize and db_read schedule what their arguments need,
 * compile the kernels and run them.
 *
 * Ownership: operations borrow their arguments. They return a tensor that the innermost open scope of the calling
 * thread owns and releases when it ends, so expressions nest without leaks. db_keep moves a tensor to the enclosing
 * scope. Outside of any scope the caller owns the result and calls db_release. db_retain adds a reference for the
 * caller, independent of scopes.
 *
 * Errors: an operation itself never fails. Given bad arguments it returns a poisoned tensor that stores the first
 * failing operation, its shapes and the line that called it. Operations on a poisoned tensor return the same poison;
 * realizing or reading it returns a negative errno and sets db_error() to that message. NULL in place of a tensor or an
 * object is a bad argument like any other. Functions that make something other than a tensor (db_jit_new, db_optim_new)
 * return NULL and set db_error(); a call that is given this NULL reports the same reason. The library does not print
 * errors and never exits.
 *
 * Shapes broadcast as in NumPy. Negative axes count from the end. Tensors have at most 16 axes, and a size may be 0.
 * Types promote to the smallest type that holds both: bool < integers < f8e4m3, f8e5m2 < f16, bf16 < f32 < f64. Two
 * different 8-bit floats give f16, f16 with bf16 gives f32, a signed with an unsigned type gives the next wider signed
 * type, and u64 with a signed type gives f64. A C number takes the type of the tensor it is combined with, with two
 * exceptions that do not depend on its value: a float or double with an integer or bool tensor makes both f32, and an
 * integer with a bool tensor makes both i32. An integer that an integer type cannot represent is an error.
 *
 * Threads: any thread may use any tensor; calls are serialized. A scope belongs to the thread that opened it.
 * Processes: a child of fork makes tensors on its own devices; reading or computing with its parent's tensors fails.
 * Environment: DEV, DB_TIMEOUT, DEBUG=0..7, PROFILE, NOOPT, PLAN, SPEC, CACHE, JIT, TRACK_MATCH_STATS; see doorbell(1).
 * The macros need GNU C11 (or C23); from C++ or another language call the functions that they expand to. */
#ifndef DOORBELL_H
#define DOORBELL_H
#include "interop.h"
#include "jit.h"
#include "parallel.h"
#include "tensor.h"
#endif
