/* Tensors on several devices, and what several processes compute together. */
#ifndef DOORBELL_PARALLEL_H
#define DOORBELL_PARALLEL_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- several devices ----
 *
 * One tensor may lie on several devices: split along an axis, or with all of it on each (replicated). Every operation
 * works on it as on any other, so a program is the same on one device and on many; what the devices have to exchange is
 * found when tensors are realized. Such tensors go together with tensors on the same list of devices. What is
 * elementwise follows the first operand that is split; reductions off the split axis, convolutions and products keep
 * it; reductions along it are replicated. Sizes are dealt out as evenly as can be.
 *
 * db_group(devices, n) makes a handle of a list of devices, which all functions take that make tensors on a device
 * (db_zeros, db_from, db_to, db_params_new...): they are then replicated. db_device_of is such a handle for these
 * tensors. Data-parallel training is parameters on a group and batches through db_shard along axis 0; weights split by
 * rows or columns are tensor-parallel. */

enum { DB_PARTS_MAX = DB_GROUP_MAX, DB_REPLICATE = INT_MIN };
/* x over devices, split along an axis, or replicated with DB_REPLICATE. x may be over devices already: then it is split
 * anew. */
#define db_shard(x, devices, n, axis) db_shard_at(DB_HERE, x, devices, n, axis)
db_tensor *db_shard_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis);
/* The same for t itself, which is computed and stands for what it is there: a parameter, say, that a layer and an
 * optimizer to come hold. What was collected for it is dropped. 0 or a negative errno, t as it was. */
int db_reshard(db_tensor *t, db_device *const *devices, unsigned n, int axis);
/* On how many devices t lies, 0 with a message where that cannot be told; axis: along which it is split, or
 * DB_REPLICATE. */
unsigned db_sharding(db_tensor *t, int *axis);
/* The part of t on its i-th device as a tensor there, sharing memory; realizes t. */
#define db_part(t, i) db_part_at(DB_HERE, t, i)
db_tensor *db_part_at(DB_AT, db_tensor *t, unsigned i);

/* ---- several devices, one tensor on each: at most DB_PARTS_MAX parts ----
 *
 * Parts are ordinary tensors, for programs that say themselves what each device does. Functions that fill parts or out
 * write n tensors, poisoned ones when something is wrong. */

/* Splits x along an axis, part i on devices[i]; DB_REPLICATE gives each all of it. */
#define db_split_to(x, devices, n, axis, parts) db_split_to_at(DB_HERE, x, devices, n, axis, parts)
void db_split_to_at(DB_AT, db_tensor *x, db_device *const *devices, unsigned n, int axis, db_tensor **parts);
/* The parts put together along an axis, on dev. */
#define db_gather_parts(parts, n, axis, dev) db_gather_parts_at(DB_HERE, parts, n, axis, dev)
db_tensor *db_gather_parts_at(DB_AT, db_tensor *const *parts, unsigned n, int axis, db_device *dev);
/* Each device gets all parts put together. */
#define db_all_gather(in, n, axis, out) db_all_gather_at(DB_HERE, in, n, axis, out)
void db_all_gather_at(DB_AT, db_tensor *const *in, unsigned n, int axis, db_tensor **out);
/* The parts, of one shape, combined element by element: all of it to each device, or to device i its share along an
 * axis. op: DB_REDUCE_SUM, DB_REDUCE_PROD, DB_REDUCE_MAX, DB_REDUCE_MIN or DB_REDUCE_MEAN. Large tensors go round a
 * ring, whose results differ from others in rounding only. */
#define db_all_reduce(op, in, n, out) db_all_reduce_at(DB_HERE, DB_REDUCE_OP(op), in, n, out)
void db_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, db_tensor **out);
#define db_reduce_scatter(op, in, n, axis, out) db_reduce_scatter_at(DB_HERE, DB_REDUCE_OP(op), in, n, axis, out)
void db_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *const *in, unsigned n, int axis, db_tensor **out);

/* ---- several processes: a program that mpirun starts several times, on one host or many ----
 *
 * Every process computes on its own device (DEV) and has tensors of its own; these are what all of them make together,
 * through MPI. They are tensors like any other: lazy, with gradients where that is linear, captured by db_jit. Data
 * goes from the device to pinned host memory by the copy queue, is exchanged by a thread of its own and copied back,
 * while compute queues go on with what does not need it: the gradients of one layer travel while those of the next are
 * computed. Types, shapes and the order in which exchanges are realized have to be the same in every process: what is
 * not the same, or does not come within db_world_timeout, is an error, after which reading and realizing fail in this
 * process.
 *
 * A process that mpirun did not start is alone: rank 0 of 1, and all of these give back what they are given. */

/* This process's number, counted from 0, and how many there are; a negative errno when MPI could not be started. */
int db_world_rank(void);
int db_world_size(void);
/* Everyone's t, combined element by element. op: DB_REDUCE_SUM, DB_REDUCE_PROD, DB_REDUCE_MAX, DB_REDUCE_MIN or
 * DB_REDUCE_MEAN. 16- and 8-bit floats are combined in f32; a mean of integers is f32; of bool, sum and product are or
 * and and. Sums and means have gradients: losses of all processes count. */
#define db_world_all_reduce(op, t) db_world_all_reduce_at(DB_HERE, DB_REDUCE_OP(op), t)
db_tensor *db_world_all_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *t);
/* The root's t. */
#define db_world_broadcast(t, root) db_world_broadcast_at(DB_HERE, t, root)
db_tensor *db_world_broadcast_at(DB_AT, db_tensor *t, int root);
/* Everyone's t, put together along an axis in the order of ranks. */
#define db_world_all_gather(t, axis) db_world_all_gather_at(DB_HERE, t, axis)
db_tensor *db_world_all_gather_at(DB_AT, db_tensor *t, int axis);
/* DB_REDUCE_SUM or DB_REDUCE_MEAN of everyone's t, of which each process gets its share along an axis, in the order of
 * ranks. */
#define db_world_reduce_scatter(op, t, axis) db_world_reduce_scatter_at(DB_HERE, DB_REDUCE_OP(op), t, axis)
db_tensor *db_world_reduce_scatter_at(DB_AT, enum db_reduce_op op, db_tensor *t, int axis);

struct db_world_counters { /* exchanges of this process so far */
  uint64_t issued;         /* submitted */
  uint64_t sent;           /* of which the device has brought this process's part */
  uint64_t done;
};
void db_world_counters(struct db_world_counters *out);
/* How long an exchange waits for a device or another process: 110 s unless set. */
int db_world_timeout(uint64_t ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
