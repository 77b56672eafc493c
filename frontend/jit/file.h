/* A captured program as it lies in a file: a .safetensors file with a tensor of text, ".program", that says everything
 * but the bytes of kernels (".kernel.N") and of memory (the name of the parameter that it is, or ".memory.N"); and,
 * last, a sum of all before it.
 *
 * Numbers of devices, memories, kernels and variables are places in the lists here. What jit_file_parse gives has been
 * checked: they are within their lists, bytes that commands touch are within their memory, and what a kernel is passed
 * is what it takes. What kernels do is not known: their code is trusted as any program's that one runs. */
#ifndef DOORBELL_FRONTEND_JIT_FILE_H
#define DOORBELL_FRONTEND_JIT_FILE_H
#include "captured.h"
#include "../files/files.h"

enum { JIT_FILE_VERSION = 2, JIT_TERMS = 16, JIT_FACTORS = 6, JIT_CHECKSUM_BYTES = 4 };
extern const char jit_file_format[];
extern const char *const jit_file_kinds[3]; /* enum memory_kind */

/* A sum of products of variables. */
struct jit_size {
  unsigned nterms;
  struct jit_term {
    int64_t factor;
    unsigned nvars;
    uint32_t var[JIT_FACTORS];
  } term[JIT_TERMS];
};
/* A tensor that goes in, comes out, or has a name. */
struct jit_tensor {
  const char *name; /* NULL but for parameters */
  enum dtype dtype;
  unsigned rank;
  struct jit_size dim[MAX_RANK];
  bool group;      /* on several devices as one */
  int axis;        /* that it is split along there, a size that is a number; SHARD_REPLICATED: each has all of it */
  unsigned nparts; /* 1 on one device */
  struct jit_part {
    uint8_t device;
    int64_t size;    /* along the axis */
    uint64_t most;   /* bytes, whatever the variables are */
    uint32_t memory; /* of outputs and parameters; UINT32_MAX: none, there are no elements */
    int64_t first;   /* element of the memory */
  } *part;
};

struct jit_file {
  struct jit_file_device {
    const char *name, *isa, *features;
  } *devices;
  struct jit_file_var { /* program.nvars that kernels take, then those that only shapes have */
    const char *name;
    int64_t min, max;
  } *vars;
  struct jit_file_memory { /* beside program.memories */
    enum memory_kind kind;
    unsigned input, part; /* INPUT: of which, and which of its parts */
    bool written, output, pinned;
    uint64_t bytes;
    const void *contents; /* OUTER */
  } *memories;
  struct jit_tensor *in, *out, *params; /* params are in OUTER memories */
  struct kernel *kernels;
  struct program program; /* commands and what they name; slots are devices, there are no buffers and programs */
  size_t ndevices, nvars, nin, nout, nparams, nkernels;
  uint32_t stream; /* of random numbers */
  /* ---- what jit_file_parse made: names and bytes above are in it and in the file ---- */
  struct safetensors tensors;
  void *text;
};
/* 0, or a negative errno and in err what is wrong where. */
int jit_file_parse(const void *bytes, size_t size, struct jit_file *out, char *err, size_t errcap);
void jit_file_free(struct jit_file *f);
void jit_file_print(const struct jit_file *f, FILE *to); /* print.c */
/* write.c: 0, or a negative errno and a message. */
int jit_file_write(const struct jit_file *f, const char *path);
/* How many bytes each part has at the largest; false: more than there can be, or a size that may be negative. */
bool jit_parts_most(const struct jit_file *f, struct jit_tensor *t);
/* A size without variables; false: it has some. */
bool jit_size_is_number(const struct jit_size *s, int64_t *n);
#endif
