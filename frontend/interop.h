/* Tensors over memory of others, kernels of your own as operations on tensors, and the exchange of tensors with other
 * libraries. The comment at the start of doorbell.h states the rules for all functions. */
#ifndef DOORBELL_INTEROP_H
#define DOORBELL_INTEROP_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- memory of others ---- */

/* A tensor over the row-major elements in buf (hcq.h) that start at byte `offset`, a multiple of 16, on buf's device.
 * It keeps a reference on buf. Work that others submitted on the buffer must have finished. Assigning to the tensor
 * writes to the buffer if offset is 0; otherwise it gives the tensor memory of its own. */
#define db_from_buffer(buf, offset, dtype, ...) db_from_buffer_at(DB_HERE, buf, offset, dtype, DB_LIST(__VA_ARGS__))
db_tensor *db_from_buffer_at(DB_AT, db_buffer *buf, size_t offset, db_dtype dtype, db_list shape);
/* Computes t, waits, and returns the buffer with its row-major elements; *offset (may be NULL) is the byte at which
 * they start. The buffer is borrowed: it may be used until t is released or assigned to. Returns NULL and sets
 * db_error() on an error. */
db_buffer *db_buffer_of(db_tensor *t, size_t *offset);

/* ---- kernels of your own ---- */

enum db_language {
  DB_PTX = 700, /* for NVIDIA GPUs, assembled by ptxas */
  DB_OPENCL_C,  /* for AMD GPUs, compiled by clang with the functions of doorbell/opencl.h */
  DB_LLVM_IR,   /* compiled by clang, for AMD and NVIDIA GPUs; the latter also need ptxas */
  DB_ASSEMBLY,  /* for AMD GPUs, assembled by clang */
  DB_CUDA_C,    /* for NVIDIA GPUs, compiled by nvcc */
};
/* Compiles source text, which ends with a zero byte, for dev and loads one of its kernels. The other arguments are
 * those of db_program_load (hcq.h). Runs ptxas ($PTXAS), clang ($CLANG) or nvcc ($NVCC) at each call; nothing is
 * cached. Returns NULL and sets db_error() if the tool is not installed, has not finished within 2 minutes, or refuses
 * the text; the first 1,500 characters of its messages are in db_error(). No language can be compiled for the CPU. */
db_program *db_program_compile(db_device *dev, enum db_language language, const char *source, const char *entry,
                               const struct db_param *params, unsigned nparams);

/* An argument of a kernel: DB_IN(x) is a tensor that it reads, or a C number; DB_OUT(dtype, sizes...) a result of this
 * type and shape that it writes; DB_INOUT(x) a result that holds a copy of x when the kernel starts. The C type of a
 * number must be that of the parameter: 2.0f or 2.0 for a float or double, an integer for integer parameters of any
 * size. An integer passed to a floating-point parameter is not converted and not detected. For dynamic local memory it
 * is the number of bytes. */
typedef struct db_kernel_arg {
  enum { DB_ARG_IN, DB_ARG_OUT, DB_ARG_INOUT } kind;
  db_operand in;
  db_dtype dtype; /* of DB_OUT */
  db_list shape;
} db_kernel_arg;
#define DB_IN(x)           ((db_kernel_arg){DB_ARG_IN, DB_OPERAND(x), DB_NONE, {0, 0}})
#define DB_OUT(dtype, ...) ((db_kernel_arg){DB_ARG_OUT, {DB_OPERAND_INT, 0, 0, 0}, dtype, DB_LIST(__VA_ARGS__)})
#define DB_INOUT(x)        ((db_kernel_arg){DB_ARG_INOUT, DB_OPERAND(x), DB_NONE, {0, 0}})
/* The result of a kernel that db_program_load (hcq.h) or db_program_compile loaded. The arguments follow in the order
 * of the kernel's parameters. grid is in workgroups and block in work-items, lists of 1 to 3 numbers; on the CPU block
 * is DB_LIST(1).
 *
 *   db_program *p = db_program_load(dev, image, size, "saxpy", NULL, 0); // y[i] += a * x[i] for i < n
 *   y = db_custom(p, DB_LIST((n + 255) / 256), DB_LIST(256), NULL, DB_INOUT(y), DB_IN(x), DB_IN(2.0f), DB_IN(n));
 *
 * The operation is lazy. The kernel runs once when results are needed, after the kernels that compute its inputs. Each
 * input is passed as contiguous memory in row-major order. The kernel must write every element of each DB_OUT. It must
 * not write its DB_IN tensors or any other memory that outlives the launch, because equal calls are run once, and a
 * call whose results are not needed is not run. A kernel with several results stores all of them in results[], which
 * may be NULL for one, and returns the first; realize them together (db_realize_all), because a result that is needed
 * later runs the kernel again. db_jit captures launches, and db_jit_save writes them with the program's image. Use
 * db_custom_gradient to define gradients; without it, differentiating a result is an error. A number is part of the
 * compiled schedule, so one that changes at every call belongs in a tensor. The device keeps the program until it is
 * closed.
 *
 * The result is poisoned if program is NULL (db_error() then has the reason), if the tensors are not on its device, or
 * if the arguments do not fit the parameters. Errors of the launch itself are errors of realizing. */
#define db_custom(program, grid, block, results, ...)                                                                  \
  db_custom_at(DB_HERE, program, grid, block, results, (const db_kernel_arg[]){__VA_ARGS__},                           \
               (unsigned)(sizeof((const db_kernel_arg[]){__VA_ARGS__}) / sizeof(db_kernel_arg)))
db_tensor *db_custom_at(DB_AT, db_program *program, db_list grid, db_list block, db_tensor **results,
                        const db_kernel_arg *args, unsigned n);

/* ---- DLPack ---- */

/* DLPack, the exchange of arrays with Python and other libraries: pointers to struct DLManagedTensor of dlpack.h,
 * version 0.8, in host memory. */
struct DLManagedTensor;
/* Returns t as a DLPack tensor, which keeps t until its deleter is called. Tensors of GPUs are copied to the host.
 * Returns NULL and sets db_error() on an error. */
struct DLManagedTensor *db_to_dlpack(db_tensor *t);
/* A tensor on dev (NULL: the default device) with the elements of m. On the CPU it uses m's memory if that is aligned
 * and row-major; otherwise the elements are copied. Takes over m, whose deleter is called when the memory is not needed
 * any more; not after an error. */
#define db_from_dlpack(m, dev) db_from_dlpack_at(DB_HERE, m, dev)
db_tensor *db_from_dlpack_at(DB_AT, struct DLManagedTensor *m, db_device *dev);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
