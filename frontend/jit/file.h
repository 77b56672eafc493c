/* A captured program in a file. The file is a .safetensors file. Its tensor ".program" is text that describes
 * everything except the bytes of kernels (".kernel.N") and of memory (the name of a parameter, or ".memory.N"). The
 * last tensor is a checksum of all bytes before it.
 *
 * Devices, memories, kernels and variables are referred to by their index in the lists here. jit_file_parse checks
 * them: indices are in range, bytes that commands touch are within their memory, and kernels get the arguments that
 * they take. A kernel of the user's has its launch's arguments: buffers of the command, and numbers. It cannot check
 * what kernels do: their code is trusted like any other program. */
#ifndef DOORBELL_FRONTEND_JIT_FILE_H
#define DOORBELL_FRONTEND_JIT_FILE_H
#include "captured.h"
#include "../files/files.h"

enum { JIT_FILE_VERSION = 3, JIT_TERMS = 16, JIT_FACTORS = 6, JIT_CHECKSUM_BYTES = 4 };
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
/* An input, an output or a parameter. */
struct jit_tensor {
  const char *name; /* of parameters, else NULL */
  enum dtype dtype;
  unsigned rank;
  struct jit_size dim[MAX_RANK];
  bool group;      /* on several devices */
  int axis;        /* the axis along which it is split, of fixed size; SHARD_REPLICATED if each device has all of it */
  unsigned nparts; /* 1 on one device */
  struct jit_part {
    uint8_t device;
    int64_t size;    /* along the axis */
    uint64_t most;   /* upper bound of its bytes, for all values of the variables */
    uint32_t memory; /* of outputs and parameters; UINT32_MAX if there are no elements */
    int64_t first;   /* the element of the memory at which it starts */
  } *part;
};

struct jit_file {
  struct jit_file_device {
    const char *name, *isa, *features;
  } *devices;
  struct jit_file_var { /* the first program.nvars are arguments of kernels; the others occur only in shapes */
    const char *name;
    int64_t min, max;
  } *vars;
  struct jit_file_memory { /* parallel to program.memories */
    enum memory_kind kind;
    unsigned input, part; /* of INPUT: its input, and the part of it */
    bool written, output, pinned;
    uint64_t bytes;
    const void *contents; /* OUTER */
  } *memories;
  struct jit_tensor *in, *out, *params; /* params are in OUTER memories */
  struct kernel *kernels;
  struct program program; /* the commands; slots are indices of devices, and there are no buffers or loaded programs */
  size_t ndevices, nvars, nin, nout, nparams, nkernels;
  uint32_t stream; /* of random numbers */
  /* ---- owned: the names and bytes above point into these and into the file ---- */
  struct safetensors tensors;
  void *text;
};
/* Returns 0, or a negative errno with the error and its location in err. */
int jit_file_parse(const void *bytes, size_t size, struct jit_file *out, char *err, size_t errcap);
void jit_file_free(struct jit_file *f);
void jit_file_print(const struct jit_file *f, FILE *to); /* print.c */
/* write.c: the program without its data as JSON, which jit_file_write stores. The caller frees it. NULL if memory runs
 * out or a name is not valid UTF-8. */
char *jit_file_text(const struct jit_file *f);
/* Returns 0, or a negative errno with a message. */
int jit_file_write(const struct jit_file *f, const char *path);
/* Computes the upper bound of each part's bytes. Returns false if a size may be negative or a part too large. */
bool jit_max_parts(const struct jit_file *f, struct jit_tensor *t);
/* The first kernel that has the image of kernel i; only kernels of the user's share images. */
size_t jit_image_number(const struct jit_file *f, size_t i);
/* Stores the value of a size without variables; false if it has some. */
bool jit_size_is_number(const struct jit_size *s, int64_t *n);
#endif
