/* What the formats of files of tensors share. A file is loaded one tensor at a time, so a model is never in host memory
 * as a whole. */
#ifndef DOORBELL_FRONTEND_FORMATS_H
#define DOORBELL_FRONTEND_FORMATS_H
#include "../tensor/call.h"
#include "files.h"

/* Makes a tensor of row-major elements (reversed: column-major ones) and passes it on, if it is wanted. Returns 0, or a
 * negative errno with a message. */
int sink_add(const struct sink *to, const char *name, const void *data, db_dtype t, db_list shape, bool reversed);
bool sink_wants(const struct sink *to, const char *name, db_device **dev);
/* As sink_add, of a tensor that is known to be wanted, on dev. */
int sink_make(const struct sink *to, const char *name, db_device *dev, const void *data, db_dtype t, db_list shape,
              bool reversed);

/* A tensor's shape and type, without data. */
struct npy describe_tensor(const db_tensor *t);
/* Reads the elements of a tensor to a->data, which the caller frees. Returns 0 or a negative errno. */
int read_elements(const struct db_named *t, struct npy *a);

struct format {
  const char *end; /* of the file's name */
  int (*load)(const char *path, const struct sink *to);
  int (*save)(const char *path, const struct db_named *t, unsigned n); /* NULL: not supported */
};
int safetensors_load(const char *path, const struct sink *to);
int safetensors_save(const char *path, const struct db_named *t, unsigned n);
int index_load(const char *path, const struct sink *to); /* shards.c */
int index_save(const char *path, const struct db_named *t, unsigned n);
int npz_load(const char *path, const struct sink *to);
int npz_save(const char *path, const struct db_named *t, unsigned n);
int torch_load(const char *path, const struct sink *to);
/* db_fail with libzip's message. */
int zip_failed(const char *path, int code);
#endif
