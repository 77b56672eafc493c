/* A loaded ONNX model: the parsed file, its values, and the conversion of its nodes to operations on tensors. */
#ifndef DOORBELL_FRONTEND_ONNX_MODEL_H
#define DOORBELL_FRONTEND_ONNX_MODEL_H
#include "../files/files.h"
#include "../onnx.h"
#include "frontend/onnx/schema.pb-c.h"

enum { ONNX_RANK = 16, ONNX_LEAST_OPSET = 7, ONNX_LAST_OPSET = 28 };

/* ---- element.c: types of elements and tensors in the file ---- */

/* Values of TensorProto.DataType. */
enum onnx_element {
  ONNX_FLOAT = 1,
  ONNX_INT64 = 7,
  ONNX_DOUBLE = 11,
  ONNX_FLOAT8E8M0 = 24,
};
/* The name of a type of elements in messages; "type 99" is stored in `unknown` for others. */
const char *onnx_element_name(int32_t element, char unknown[24]);
/* The type of tensors that hold these elements; DB_NONE if it is not supported. Integers of 2 and 4 bits are held as
 * i8 and u8. Floats of 4, 6 and 8 bits that tensors do not have are held as f32: the tensor has their values. */
db_dtype onnx_element_dtype(int32_t element);
unsigned onnx_element_bits(int32_t element); /* 0 if the type is not supported */
/* The type itself if tensors of another type hold its elements, else 0. */
int32_t onnx_element_held(int32_t element);
int32_t onnx_element_of(db_dtype t); /* the type whose elements are those of such tensors; 0 if there is none */

/* A float of at most 8 bits: a sign, exponents without a reserved largest one, and a fraction. */
struct onnx_float {
  unsigned fraction; /* its bits */
  int least;         /* the exponent of the least normal number */
  float most;        /* the largest finite number */
  bool nan, fnuz;    /* there is NaN; its bits are those of -0, so 0 has no sign */
};
const struct onnx_float *onnx_element_float(int32_t element); /* NULL for others */

struct onnx_files {
  const char *folder; /* where external data is; NULL refuses it */
  struct onnx_file {
    char *name;
    struct mapping m;
  } *file;
  unsigned n;
};
void onnx_files_free(struct onnx_files *f);

/* The elements of a tensor in the file, row-major. */
struct onnx_array {
  db_dtype dtype;
  unsigned rank;
  int64_t dim[ONNX_RANK];
  const void *data; /* points into the parsed file or an external one, or is `own` */
  void *own;        /* the caller frees it */
};
/* Returns 0, or a negative errno with a message in err. */
int onnx_array_of(const Onnx__Tensor *t, struct onnx_files *files, struct onnx_array *out, char *err, size_t cap);

/* ---- parse.c ---- */
/* Parses a file and checks what does not depend on operators: opsets, and that there is a graph. Returns NULL with a
 * message in err. onnx__model__free_unpacked frees the result. */
Onnx__Model *onnx_parse(const void *bytes, size_t size, char *err, size_t cap);
/* The version of the standard domain in a list of opsets; 0 if it is not listed. */
int64_t onnx_opset(Onnx__OperatorSet *const *sets, size_t n);
bool onnx_is_standard(const char *domain); /* domain may be NULL */

/* ---- scope.c: values by name ---- */

/* What a name stands for while the graph is evaluated. */
struct onnx_value {
  db_tensor *t;     /* on the model's device; if known, on the CPU */
  bool known;       /* the value does not depend on the inputs of the model, at most on their shapes */
  bool ready;       /* known: t is computed, or stays an expression because its memory would be large */
  db_tensor *there; /* known: a copy on the model's device, made when first used; NULL: not yet */
  bool last;        /* the channels are last in memory (layout.c) */
  int32_t element;  /* the type of its elements if tensors of another type hold them, else 0 */
  bool pending;     /* a convolution that is computed where the value is used, which is at one place */
};
/* A table of values. It holds references on their tensors. */
struct onnx_scope {
  struct onnx_scope *up; /* searched for names that are not here */
  struct onnx_entry {
    const char *name; /* NULL: free */
    struct onnx_value value;
  } *entry;
  size_t capacity; /* a power of two */
};
void onnx_value_drop(struct onnx_value *v); /* drops its references */
/* Makes a table with space for n names. Returns 0 or -ENOMEM. */
int onnx_scope_new(struct onnx_scope *s, struct onnx_scope *up, size_t n);
void onnx_scope_free(struct onnx_scope *s);
/* The value of a name in this table or those above it; NULL if there is none. */
struct onnx_value *onnx_scope_find(struct onnx_scope *s, const char *name);
bool onnx_scope_has(const struct onnx_scope *s, const char *name); /* in this table only */
/* Adds a value, or replaces the one of this name. Retains its tensors. */
struct onnx_value *onnx_scope_put(struct onnx_scope *s, const char *name, struct onnx_value v);

/* ---- evaluate.c ---- */

/* What is kept for one set of input shapes. */
struct onnx_plan {
  struct db_onnx *model;
  struct onnx_shape {
    db_dtype dtype;
    unsigned rank;
    int64_t dim[ONNX_RANK];
  } *port;                  /* of each input */
  struct onnx_scope folded; /* known results of nodes */
  struct onnx_reads {
    struct onnx_read {
      void *data;
      size_t bytes;
    } *read;
    size_t n, capacity;
  } reads;             /* known values in the order in which nodes read them */
  bool evaluated;      /* reads is complete */
  const char *dynamic; /* the operator that reads values that depend on inputs; NULL: none */
  db_jit *jit;
  unsigned runs; /* that succeeded, of jit */
  bool captured;
};

/* ---- fold.c ---- */

/* What replaces a node of the main graph. */
struct onnx_fold {
  bool in_blocks; /* the weight is [blocks of channels, ..., channels of a block] */
  bool used_once; /* one node of the main graph uses the first output */
  bool skipped;   /* the node is part of a later one */
  const Onnx__Node
      *product;  /* a Conv, MatMul or Gemm of its first input with `weight` and `bias`; NULL: the node itself */
  size_t number; /* of the product */
  struct onnx_value weight; /* the channels of the result last */
  struct onnx_value bias;   /* [channels] or [1]; without a tensor: none */
};

struct db_onnx {
  char *name; /* the file's, for messages */
  char *folder;
  Onnx__Model *file;
  int64_t opset;
  db_device *dev, *cpu; /* the model's device, and the one of known values */
  bool owns_cpu;
  struct onnx_files files;
  struct onnx_scope initial; /* initializers of the main graph */
  struct onnx_fold *fold;    /* of each node of the main graph */
  Onnx__ValueInfo **input;   /* of the graph, without initializers */
  unsigned ninputs;
  struct onnx_plan *plan[8]; /* most recently used first */
};

/* Finds the products with constant weights in the main graph, and computes their weights when they are first used.
 * Returns 0, or a negative errno with a message. */
int onnx_fold_model(struct db_onnx *m);
void onnx_fold_free(struct db_onnx *m);

void onnx_plan_free(struct onnx_plan *p); /* p may be NULL */
/* The function of the model that the node calls; NULL if it is an operator. */
const Onnx__Function *onnx_function_of(const Onnx__Model *m, const Onnx__Node *n);
/* Checks that all nodes have operators that are supported. Returns 0, or a negative errno with a message. */
int onnx_check_nodes(struct db_onnx *m);
/* Adds the initializers of a graph to a scope. Returns 0, or a negative errno with a message. */
int onnx_add_initializers(struct db_onnx *m, const Onnx__Graph *g, struct onnx_scope *s);
/* Evaluates the main graph. Returns 0, or a negative errno with a message. */
int onnx_evaluate(struct onnx_plan *p, db_tensor *const *in, db_tensor **out);
#endif
