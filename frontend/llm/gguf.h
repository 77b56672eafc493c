/* The GGUF format, versions 2 and 3, little-endian: metadata and tensors of language models. A file's bytes are not
 * trusted: every length, count and offset is checked against the file's size before it is used. Source: the format's
 * description in ggml, docs/gguf.md. */
#ifndef DOORBELL_FRONTEND_LLM_GGUF_H
#define DOORBELL_FRONTEND_LLM_GGUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of the format. */
enum gguf_kind {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_KINDS
};
const char *gguf_kind_name(enum gguf_kind kind); /* "u8" */

/* Values of one kind. data points into the file. */
struct gguf_value {
  enum gguf_kind kind; /* of an array: that of its elements */
  bool array;
  uint64_t count; /* 1 if it is no array */
  const uint8_t *data, *end;
};
struct gguf_string {
  const char *text; /* not terminated */
  size_t length;
};
struct gguf_pair {
  char *key;
  struct gguf_value value;
};

/* How elements are stored: blocks of `elements` consecutive elements in `bytes` bytes. The numbers are those of the
 * format. */
enum ggml_type {
  GGML_F32 = 0,
  GGML_F16 = 1,
  GGML_Q4_0 = 2,
  GGML_Q4_1 = 3,
  GGML_Q5_0 = 6,
  GGML_Q5_1 = 7,
  GGML_Q8_0 = 8,
  GGML_Q2_K = 10,
  GGML_Q3_K = 11,
  GGML_Q4_K = 12,
  GGML_Q5_K = 13,
  GGML_Q6_K = 14,
  GGML_BF16 = 30,
};
struct ggml_layout {
  const char *name;
  unsigned elements, bytes;
};
const struct ggml_layout *ggml_layout(enum ggml_type type); /* NULL if the type is unknown */

enum { GGUF_RANK = 4 };
struct gguf_tensor {
  char *name;
  enum ggml_type type;
  unsigned rank;
  int64_t dim[GGUF_RANK]; /* outermost axis first, as in Doorbell; the file has them in the opposite order */
  const uint8_t *data;    /* points into the file */
  size_t bytes;
};

struct gguf {
  unsigned version;
  struct gguf_pair *pair; /* in the file's order, as the tensors */
  size_t npairs;
  struct gguf_tensor *tensor;
  size_t ntensors;
  struct gguf_index *index; /* both, sorted by name */
};
/* Parses a file; values and tensors point into bytes. Returns 0, or a negative errno with a message in err that names
 * the offset and the key or tensor. */
int gguf_parse(const void *bytes, size_t size, struct gguf *out, char *err, size_t errcap);
void gguf_free(struct gguf *g);
/* A pair's value or a tensor by its name, or NULL if there is none. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Element i of a value, i < count, as a number. Returns false if it is not a number of this class. Integers include
 * bool; a double may be any number. */
bool gguf_integer(const struct gguf_value *v, uint64_t i, int64_t *out);
bool gguf_number(const struct gguf_value *v, uint64_t i, double *out);
/* Reads the elements of a value of strings one after the other: *at is v->data at first. Returns false after the last
 * one, or if v is not of strings. */
bool gguf_next_string(const struct gguf_value *v, const uint8_t **at, struct gguf_string *out);
/* Copies the text of a single string. Returns NULL if v is NULL or no string, or memory runs out. */
char *gguf_text(const struct gguf_value *v);
#endif
