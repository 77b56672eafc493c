/* Tensors on several devices, and tensors that several processes compute together. */
#ifndef DOORBELL_PARALLEL_H
#define DOORBELL_PARALLEL_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- several devices ----
 *
 * One tensor may be placed on several devices: split along an axis, or with a full copy on each device (replicated).
 * Every operation accepts such tensors, so the same program runs on one device and on many. Realizing finds the data
 * that the devices have to exchange. Such a tensor can be combined only with tensors on the same list of devices.
 * Elementwise results are split like the first split operand. Reductions over other axes, convolutions and products
 * keep the split; reductions over the split axis give a replicated result. Sizes are divided as evenly as possible.
 *
 * db_group(devices, n) makes a handle for a list of devices. Every function that makes tensors on a device (db_zeros,
 * db_from, db_to, db_params_new...) accepts the handle and makes replicated tensors. db_device_of returns such a handle
 * for these tensors. Parameters on a group and batches through db_shard along axis 0 give data-parallel training;
 * weights split by rows or columns are tensor-parallel. */

enum { DB_PARTS_MAX = DB_GROUP_MAX, DB_REPLICATE = INT_MIN };
/* x over devices, split along an axis, or replicated with DB_REPLICATE. If x is on several devices already, it is
 * redistributed. */
#define db_shard(x, devices, n, axis) db_shard_at(DB_HERE, x, devices, n, axis)
db_tensor *db_shard_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis);
/* Does the same to t itself: realizes it and replaces its value, so that a parameter, for example, is redistributed for
 * the layers and optimizers that hold it. The gradient collected for it is dropped. Returns 0, or a negative errno with
 * t unchanged. */
int db_reshard(db_tensor *t, db_device *const *devices, unsigned n, int axis);
/* Returns the number of devices that t is on and stores in *axis the axis it is split along, or DB_REPLICATE. Returns 0
 * and sets db_error() if this cannot be determined. */
unsigned db_sharding(db_tensor *t, int *axis);
/* The part of t on its i-th device, as a tensor on that device that shares memory with t. Realizes t. */
#define db_part(t, i) db_part_at(DB_HERE, t, i)
db_tensor *db_part_at(DB_AT, db_tensor *t, unsigned i);

/* ---- several devices with one tensor on each: at most DB_PARTS_MAX parts ----
 *
 * Parts are ordinary tensors, for programs that state themselves what each device does. Functions that fill parts or
 * out write n tensors, which are poisoned on an error. */

/* Splits x along an axis and moves part i to devices[i]. With DB_REPLICATE every device gets all of x. */
#define db_split_to(x, devices, n, axis, parts) db_split_to_at(DB_HERE, x, devices, n, axis, parts)
void db_split_to_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis, db_tensor **parts);
/* Concatenates the parts along an axis on dev. */
#define db_gather_parts(parts, n, axis, dev) db_gather_parts_at(DB_HERE, parts, n, axis, dev)
db_tensor *db_gather_parts_at(DB_AT, db_tensor *const *parts, unsigned n, int axis, db_device *dev);
/* Concatenates the parts on every device: out[i] is on the device of in[i]. */
#define db_all_gather(in, n, axis, out) db_all_gather_at(DB_HERE, in, n, axis, out)
void db_all_gather_at(DB_AT, db_tensor *const *in, unsigned n, int axis, db_tensor **out);
/* Combines parts of one shape element by element. db_all_reduce gives the whole result to each device,
 * db_reduce_scatter gives device i its share along an axis. op: DB_REDUCE_SUM, DB_REDUCE_PROD, DB_REDUCE_MAX,
 * DB_REDUCE_MIN or DB_REDUCE_MEAN. Large tensors use a ring, whose results differ only in rounding. */
#define db_all_reduce(op, in, n, out) db_all_reduce_at(DB_HERE, DB_REDUCE_OP(op), in, n, out)
void db_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, db_tensor **out);
#define db_reduce_scatter(op, in, n, axis, out) db_reduce_scatter_at(DB_HERE, DB_REDUCE_OP(op), in, n, axis, out)
void db_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, int axis, db_tensor **out);

/* ---- several processes: a program that mpirun starts several times, on one host or many ----
 *
 * Every process computes on its own device (DEV) and has its own tensors. The functions below make tensors that all
 * processes compute together, through MPI. These are ordinary tensors: they are lazy, db_jit captures them, and those
 * made by linear operations have gradients. A copy queue moves data from the device to pinned host memory, a separate
 * thread exchanges it, and it is copied back. Compute queues meanwhile run kernels that do not need the data: the
 * gradients of one layer travel while those of the next are computed. Types, shapes and the order in which exchanges
 * are realized must be equal in all processes. A mismatch, or an exchange that takes longer than db_world_timeout, is
 * an error; afterwards reading and realizing fail in this process.
 *
 * A process that mpirun did not start is alone: it has rank 0 of 1, and these functions return their arguments. */

/* The number of this process, counted from 0, and the number of processes; a negative errno if MPI could not be
 * started. */
int db_world_rank(void);
int db_world_size(void);
/* Combines the t of all processes element by element. op: DB_REDUCE_SUM, DB_REDUCE_PROD, DB_REDUCE_MAX, DB_REDUCE_MIN
 * or DB_REDUCE_MEAN. 16- and 8-bit floats are combined in f32. A mean of integers is f32. For bool, sum is or, and
 * product is and. Sums and means have gradients, which include the losses of all processes. */
#define db_world_all_reduce(op, t) db_world_all_reduce_at(DB_HERE, DB_REDUCE_OP(op), t)
db_tensor *db_world_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *t);
/* The t of process root. */
#define db_world_broadcast(t, root) db_world_broadcast_at(DB_HERE, t, root)
db_tensor *db_world_broadcast_at(DB_AT, db_tensor *t, int root);
/* Concatenates the t of all processes along an axis, in the order of ranks. */
#define db_world_all_gather(t, axis) db_world_all_gather_at(DB_HERE, t, axis)
db_tensor *db_world_all_gather_at(DB_AT, db_tensor *t, int axis);
/* Combines the t of all processes with DB_REDUCE_SUM or DB_REDUCE_MEAN. Each process gets its share along an axis, in
 * the order of ranks. */
#define db_world_reduce_scatter(op, t, axis) db_world_reduce_scatter_at(DB_HERE, DB_REDUCE_OP(op), t, axis)
db_tensor *db_world_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *t, int axis);

struct db_world_counters { /* numbers of exchanges of this process so far */
  uint64_t issued;         /* submitted */
  uint64_t sent;           /* of these: this process's data has arrived from the device */
  /* of these: complete */
  uint64_t done;
};
void db_world_counters(struct db_world_counters *out);
/* Sets how long an exchange waits for a device or another process; 110 s at first. Returns 0 or a negative errno. */
int db_world_timeout(uint64_t ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
