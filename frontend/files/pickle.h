/* The tensors that a pickle of PyTorch describes. */
#ifndef DOORBELL_FRONTEND_PICKLE_H
#define DOORBELL_FRONTEND_PICKLE_H
#include "files.h"

struct pickled_tensor {
  char *name; /* keys and indices on the way to the tensor: "model.0.weight" */
  char *key;  /* of the storage, a file beside the pickle */
  db_dtype dtype;
  unsigned rank;
  int64_t dim[32], stride[32];  /* in elements; not negative */
  int64_t first, count, stored; /* the first element in the storage, elements of the tensor, elements of the storage */
};
struct pickle {
  struct pickled_tensor *tensor;
  size_t n;
};
/* Reads a pickle. Only opcodes that build tensors, numbers, texts and containers are accepted, and only globals that
 * make these; nothing is executed. Every tensor lies within its storage. Returns 0, or a negative errno with a message
 * in err, which names what was refused and its offset. */
int pickle_parse(const void *bytes, size_t size, struct pickle *out, char *err, size_t errcap);
void pickle_free(struct pickle *p);
#endif
