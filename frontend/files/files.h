/* Files of tensors. Their bytes are not trusted: every length is checked against the size of the file. */
#ifndef DOORBELL_FRONTEND_FILES_H
#define DOORBELL_FRONTEND_FILES_H
#include "../doorbell.h"
#include <stdio.h>

/* Prints a message to err and returns -EINVAL. */
int refuse_input(char *err, size_t errcap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- replace.c: a file that gets its name only when it is complete on the disk ---- */
struct replacement {
  FILE *file;
  char *path,
      *temporary; /* path: with links resolved; temporary: NULL for a device or a pipe, which is written directly */
};
/* Opens a temporary file beside path. Returns 0 or a negative errno. */
int replace_begin(struct replacement *r, const char *path);
/* If good, flushes the file to the disk and renames it to path, replacing an existing file. Otherwise, or after an
 * error, an existing file is unchanged. Returns 0 or a negative errno; if not good, that of errno. */
int replace_end(struct replacement *r, bool good);

/* ---- npy.c: one array ---- */
struct npy {
  db_dtype dtype; /* the format has no name for bf16 and the 8-bit floats, which are stored as u16 and u8 */
  unsigned rank;
  int64_t dim[32];
  int64_t count;
  bool fortran; /* column-major: neighbours along the first axis are adjacent */
  void *data;   /* `count` elements; npy_read allocates it, npy_parse points into the file */
};
/* These return 0, or a negative errno with a message in err. */
int npy_parse(const void *bytes, size_t size, struct npy *out, char *err, size_t errcap);
int npy_read(const char *path, struct npy *out, char *err, size_t errcap); /* row-major arrays only */
int npy_write(const char *path, const struct npy *a, char *err, size_t errcap);
/* Writes the header that precedes a's elements in a file to out. Returns its length. */
enum { NPY_HEADER = 1024 };
size_t npy_header(const struct npy *a, void *out);
/* Reads a whole file; the caller frees *bytes. Returns 0, or a negative errno with a message in err. */
int read_file(const char *path, void **bytes, size_t *size, char *err, size_t errcap);

/* ---- safetensors.c: named arrays ---- */
struct safetensor {
  char *name;
  db_dtype dtype;
  unsigned rank;
  int64_t dim[32];
  const void *data; /* points into the file */
  size_t bytes;
};
struct safetensors {
  struct safetensor *tensor;
  size_t n;
};
/* Parses a file; the tensors point into bytes. Returns 0, or a negative errno with a message in err. */
int safetensors_parse(const void *bytes, size_t size, struct safetensors *out, char *err, size_t errcap);
void safetensors_free(struct safetensors *s);
/* The header for tensors whose data follow in order, preceded by its length and padded. The caller frees it. Returns
 * NULL if memory runs out or a name is not UTF-8. */
char *safetensors_header(const struct safetensors *s, size_t *size);

/* ---- files.c ---- */
/* Receives the tensors of a file, one at a time. */
struct sink {
  void *ctx;
  /* Whether the tensor of this name is wanted. *dev is NULL, the default device; stores another one to load it to. */
  bool (*wants)(void *ctx, const char *name, db_device **dev);
  /* Takes a tensor, which the caller's scope owns. Returns 0, or a negative errno with a message. */
  int (*take)(void *ctx, const char *name, db_tensor *t);
};
/* Loads the wanted tensors of a file of any format. Returns 0, or a negative errno with a message. */
int files_load(const char *path, const struct sink *to);
struct mapping {
  void *bytes;
  size_t size;
};
/* Returns 0, or a negative errno with a message. */
int map_file(const char *path, struct mapping *m);
void unmap_file(struct mapping *m);
/* Writes a header, followed by the tensors' data. Returns 0, or a negative errno with a message. */
int safetensors_write(const char *path, const struct safetensors *s, const void *header, size_t length);
#endif
