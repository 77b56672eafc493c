/* Files that hold tensors: their bytes are not trusted, every length is checked against what is there. */
#ifndef DOORBELL_FRONTEND_FILES_H
#define DOORBELL_FRONTEND_FILES_H
#include "../doorbell.h"
#include <stdio.h>

/* -EINVAL, and the message in err. */
int refuse_input(char *err, size_t errcap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- replace.c: a file that appears under its name once all of it is on the disk ---- */
struct replacement {
  FILE *file;
  char *path, *temporary; /* path: what links lead to; temporary NULL: a device or a pipe, written in place */
};
/* Opens a temporary file beside path. 0 or a negative errno. */
int replace_begin(struct replacement *r, const char *path);
/* When everything was written well: puts it on the disk and under its name, in place of what had it. Otherwise, and
 * after an error, what was there before stays. 0 or a negative errno: errno's if it was not written well. */
int replace_end(struct replacement *r, bool good);

/* ---- npy.c: one array ---- */
struct npy {
  db_dtype dtype; /* bf16 and the 8-bit floats have no name in the format: they travel as u16 and u8 */
  unsigned rank;
  int64_t dim[32];
  int64_t count;
  bool fortran; /* column-major: the first axis is the one whose neighbours lie together */
  void *data;   /* count elements; npy_read allocates it, npy_parse points into the file */
};
/* 0, or a negative errno and a message in err. */
int npy_parse(const void *bytes, size_t size, struct npy *out, char *err, size_t errcap);
int npy_read(const char *path, struct npy *out, char *err, size_t errcap); /* row-major ones only */
int npy_write(const char *path, const struct npy *a, char *err, size_t errcap);
/* What stands in front of a's elements in a file; returns its length. */
enum { NPY_HEADER = 1024 };
size_t npy_header(const struct npy *a, void *out);
/* A whole file; free(*bytes). */
int read_file(const char *path, void **bytes, size_t *size, char *err, size_t errcap);

/* ---- safetensors.c: named arrays ---- */
struct safetensor {
  char *name;
  db_dtype dtype;
  unsigned rank;
  int64_t dim[32];
  const void *data; /* in the file */
  size_t bytes;
};
struct safetensors {
  struct safetensor *tensor;
  size_t n;
};
int safetensors_parse(const void *bytes, size_t size, struct safetensors *out, char *err, size_t errcap);
void safetensors_free(struct safetensors *s);
/* The header for tensors whose data follow in order, malloc'd, padded and with its length in front. NULL: out of
 * memory, or a name that is no UTF-8. */
char *safetensors_header(const struct safetensors *s, size_t *size);

/* ---- files.c ---- */
struct mapping {
  void *bytes;
  size_t size;
};
/* 0, or a negative errno and a message. */
int map_file(const char *path, struct mapping *m);
void unmap_file(struct mapping *m);
/* A file of a header and the tensors' data behind it. */
int safetensors_write(const char *path, const struct safetensors *s, const void *header, size_t length);
#endif
