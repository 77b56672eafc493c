/* Doorbell's tensors: lazy arrays that fuse, compile and run on a CPU or a GPU.
 *
 *   {
 *     DB_SCOPED;
 *     db_tensor *x = db_from(((float[]){1, 2, 3, 4}), DB_F32, NULL, 2, 2);
 *     db_tensor *y = db_softmax(db_add(db_matmul(x, x), 0.5), -1);
 *     float out[4];
 *     if (db_read(y, out, sizeof out)) fprintf(stderr, "%s\n", db_error());
 *   }
 *
 * Lazy: an operation builds a graph and computes nothing. db_realize and db_read schedule what is asked for, compile
 * its kernels and run them.
 *
 * Ownership: operations borrow their arguments and return a tensor that the innermost open scope of the calling thread
 * owns: it is released when the scope ends, so expressions nest without leaks. db_keep hands a tensor to the enclosing
 * scope; outside of any scope the caller owns what is returned and calls db_release. db_retain adds a reference for the
 * caller, whatever the scopes do.
 *
 * Errors: an operation never fails on the spot. Given bad arguments it returns a poisoned tensor that remembers the
 * first failing operation, its shapes and the line that called it; operations on it give the same poison, and realizing
 * or reading it returns a negative errno with that message in db_error(). NULL in place of a tensor or an object is a
 * bad argument like any other. Functions that make something other than a tensor (db_jit_new, db_optim_new) return NULL
 * when that fails, and db_error() says why; given to the next call, NULL repeats that reason. Nothing here prints or
 * exits.
 *
 * Shapes broadcast as in NumPy. Axes count from the end when negative. Tensors have at most 16 axes, a size may be 0.
 * Types promote to the smallest that holds both: bool < integers < f8e4m3, f8e5m2 < f16, bf16 < f32 < f64, where two
 * 8-bit floats give f16, f16 with bf16 gives f32, signed with unsigned gives the next wider signed type, and u64 with a
 * signed type gives f64. A C number beside a tensor takes the tensor's type, except that a number with a fraction (any
 * float or double) beside an integer or bool tensor makes both f32, and an integer beside a bool tensor makes both i32,
 * whatever its value. A number that the type does not hold is an error.
 *
 * Threads: tensors may be used from any thread; calls take turns. Scopes belong to the thread that opened them.
 * Processes: a child of fork makes tensors on devices of its own; reading or computing with its parent's fails.
 * Environment: DEV, DB_TIMEOUT, DEBUG=0..7, PROFILE, NOOPT, PLAN, SPEC, CACHE, JIT, TRACK_MATCH_STATS; see doorbell(1).
 * GNU C11 (or C23) is needed for the macros below; from C++ or another language call the functions behind them. */
#ifndef DOORBELL_H
#define DOORBELL_H
#include "jit.h"
#include "parallel.h"
#include "tensor.h"
#endif
