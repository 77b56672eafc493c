/* The operators of ONNX as functions on tensors. Each is a row of operators.def and a function in a file of its family.
 * Names and meanings are those of https://github.com/onnx/onnx/blob/main/docs/Operators.md. */
#ifndef DOORBELL_FRONTEND_ONNX_OPERATORS_H
#define DOORBELL_FRONTEND_ONNX_OPERATORS_H
#include "../../hcq/error.h"
#include "model.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operations in operators' functions report the model's file and the number of the node as their location. */
#undef DB_HERE
#define DB_HERE c->model->name, (int)c->number

struct onnx_call;
/* Returns the first output; sets c->out[1], ... to the others that are in use. Returns NULL with db_error() set if the
 * node is not supported. */
typedef db_tensor *onnx_operator_fn(struct onnx_call *c);

struct onnx_operator {
  const char *name;
  int since;       /* the first opset that has it */
  unsigned inputs; /* the first ones, which a node may not leave out */
  onnx_operator_fn *fn;
  int param; /* which of several operations of one form */
  /* shape: reads only the shapes of its inputs, so its result is known. varies: random numbers. control: evaluates
   * graphs, and fills c->value itself. elementwise: the inputs broadcast to the output. pool: reduces or keeps the
   * sizes of an image. */
  enum { ONNX_PURE, ONNX_SHAPE, ONNX_VARIES, ONNX_CONTROL, ONNX_ELEMENTWISE, ONNX_POOL } kind;
};
const struct onnx_operator *onnx_operator(const char *name); /* NULL if there is none */

enum { ONNX_MOST_OUTPUTS = 256 };

/* The conversion of a node. */
struct onnx_call {
  struct db_onnx *model;
  struct evaluation *e;
  struct onnx_scope *scope;
  const Onnx__Node *node;
  const struct onnx_operator *op;
  size_t number; /* of the node in its graph */
  int64_t opset;
  db_device *dev; /* where the call's tensors are: the model's device, or the CPU if known */
  bool known;     /* no input depends on the inputs of the model */
  unsigned nin, nout;
  struct onnx_value **in; /* NULL: left out */
  db_tensor **out;
  struct onnx_value *value; /* of control flow */
  bool last, pending;       /* of the first output (struct onnx_value) */
  int32_t element;          /* of the outputs (struct onnx_value), or ONNX_AS_INPUT */
};
enum { ONNX_AS_INPUT = -1 }; /* the outputs have the elements of the first input that has their type */

/* ---- call.c: inputs and attributes ---- */

/* Input i as a tensor; NULL if it is left out. */
db_tensor *node_input(struct onnx_call *c, unsigned i);
/* A value as a tensor on the call's device. Computes it if it is known and the call's result is not. */
db_tensor *node_value(struct onnx_call *c, struct onnx_value *v);
bool node_has_input(const struct onnx_call *c, unsigned i);
bool node_has_output(const struct onnx_call *c, unsigned i);
int32_t node_element(const struct onnx_call *c, unsigned i); /* the type of the elements of input i */
/* Input i as an operand; a known input of one element with no more axes than `beside` is a number. */
db_operand node_operand(struct onnx_call *c, unsigned i, const db_tensor *beside);
/* Fails with a message. Returns NULL. */
db_tensor *node_unsupported(struct onnx_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const Onnx__Attribute *node_attribute(const struct onnx_call *c, const char *name); /* NULL if it is not given */
int64_t node_int(const struct onnx_call *c, const char *name, int64_t unset);
double node_float(const struct onnx_call *c, const char *name, double unset);
bool node_is(const struct onnx_call *c, const char *name, const char *text, const char *unset);
/* Copies a list of at most `cap` integers. Returns their number, 0 if the attribute is not given. */
unsigned node_ints(const struct onnx_call *c, const char *name, int64_t *out, unsigned cap);

/* Reads values of input i on the host, converted to integers or doubles. Returns their number, or -1 with db_error()
 * set. 0 if the input is left out. */
int node_read_ints(struct onnx_call *c, unsigned i, int64_t *out, unsigned cap);
int node_read_numbers(struct onnx_call *c, unsigned i, double *out, unsigned cap);
/* All values of input i as doubles; the caller frees them. */
double *node_read_all(struct onnx_call *c, unsigned i, size_t *n);
/* Reads integers of input i, or of the attribute of this name that older opsets have. The same results; -1 also if
 * both are missing and `required`. */
int node_ints_of(struct onnx_call *c, unsigned i, const char *name, int64_t *out, unsigned cap, bool required);
/* Copies the bytes of a tensor to the host. Values that depend on the model's inputs prevent capturing. */
int onnx_read_bytes(struct evaluation *e, const char *why, struct onnx_value *v, void **data, size_t *bytes);

/* An i64 vector of a call's device. */
db_tensor *node_vector(struct onnx_call *c, const int64_t *v, unsigned n);
db_tensor *node_tensor(struct onnx_call *c, const void *data, db_dtype t, unsigned rank, const int64_t *dim);
/* The axis, which may count from the end, as 0 to rank - 1; -1 with db_error() set if it is out of range. */
int node_axis(struct onnx_call *c, int64_t axis, unsigned rank);
void node_shape(const db_tensor *x, int64_t dim[ONNX_RANK]);
#define SIZES(n, v) ((db_list){(unsigned)(n), v})
static inline bool is_float(const db_tensor *x) {
  db_dtype t = db_dtype_of(x);
  return t >= DB_F16;
}

/* ---- cast.c ---- */

/* x as values of a float type with at most 8 bits, as the attribute `saturate` says. */
db_tensor *onnx_to_float(struct onnx_call *c, db_tensor *x, int32_t element);

/* ---- layout.c, fold.c ---- */

/* Moves axis 1 to the end, and the last axis back to 1. */
db_tensor *onnx_to_last(struct onnx_call *c, db_tensor *x);
db_tensor *onnx_from_last(struct onnx_call *c, db_tensor *x);
/* Calls the operator's function, and lets the first output have the order in memory that the inputs have. */
db_tensor *onnx_run_in_order(struct onnx_call *c);
/* Computes a product; c is the call of f->product with its first input only. */
db_tensor *onnx_folded_product(struct onnx_call *c, struct onnx_fold *f);
/* The convolution of input 0 with weights [sizes..., channels, channels of the output]. */
db_tensor *onnx_conv_last(struct onnx_call *c, db_tensor *weight, db_tensor *bias);

/* ---- evaluate.c: control flow ---- */

/* Evaluates the graph of an attribute with values for its inputs, and stores its outputs. Returns 0, or a negative
 * errno with a message. */
int node_evaluate_body(struct onnx_call *c, const Onnx__Graph *g, const struct onnx_value *in, unsigned nin,
                       struct onnx_value *out, unsigned nout);
/* Makes a value; known: t is on the CPU. */
static inline struct onnx_value onnx_value_of(db_tensor *t, bool known) {
  struct onnx_value v = {.t = t, .known = known};
  return v;
}

/* Parameters of op_reduce beside those of enum db_reduce_op. */
enum { ONNX_REDUCE_L1 = 1, ONNX_REDUCE_L2, ONNX_REDUCE_LOG_SUM, ONNX_REDUCE_SUM_SQUARE };

onnx_operator_fn onnx_op_attention, onnx_op_causal_conv, onnx_op_deform_conv, onnx_op_grid_sample,
    onnx_op_linear_attention, onnx_op_roi_align;
onnx_operator_fn onnx_op_affine_grid, onnx_op_non_max_suppression, onnx_op_rotary_embedding;
onnx_operator_fn onnx_op_arg, onnx_op_batch_normalization, onnx_op_bernoulli, onnx_op_binary, onnx_op_bit_cast,
    onnx_op_bit_shift, onnx_op_cast, onnx_op_cast_like, onnx_op_celu, onnx_op_center_crop_pad, onnx_op_clip,
    onnx_op_col2im, onnx_op_compress, onnx_op_concat, onnx_op_constant, onnx_op_constant_of_shape, onnx_op_conv,
    onnx_op_conv_integer, onnx_op_conv_transpose, onnx_op_depth_to_space, onnx_op_dequantize_linear, onnx_op_det,
    onnx_op_dft, onnx_op_dropout, onnx_op_dynamic_quantize_linear, onnx_op_einsum, onnx_op_elu, onnx_op_expand,
    onnx_op_eye_like, onnx_op_flatten, onnx_op_gather, onnx_op_gather_elements, onnx_op_gather_nd, onnx_op_gelu,
    onnx_op_gemm, onnx_op_global_pool, onnx_op_group_normalization, onnx_op_hard_sigmoid, onnx_op_hardmax,
    onnx_op_identity, onnx_op_if, onnx_op_instance_normalization, onnx_op_is_inf, onnx_op_layer_normalization,
    onnx_op_leaky_relu, onnx_op_loop, onnx_op_lp_normalization, onnx_op_lp_pool, onnx_op_lrn, onnx_op_matmul,
    onnx_op_matmul_integer, onnx_op_max_unpool, onnx_op_mean_variance_normalization, onnx_op_mel_weights, onnx_op_mod,
    onnx_op_multinomial, onnx_op_negative_log_likelihood, onnx_op_nonzero, onnx_op_one_hot, onnx_op_pad, onnx_op_pool,
    onnx_op_pow, onnx_op_prelu, onnx_op_qlinear_conv, onnx_op_qlinear_matmul, onnx_op_quantize_linear, onnx_op_random,
    onnx_op_random_like, onnx_op_range, onnx_op_recurrent, onnx_op_reduce, onnx_op_reshape, onnx_op_resize,
    onnx_op_reverse_sequence, onnx_op_rms_normalization, onnx_op_scan, onnx_op_scan_along, onnx_op_scatter_elements,
    onnx_op_scatter_nd, onnx_op_selu, onnx_op_shape, onnx_op_shrink, onnx_op_size, onnx_op_slice, onnx_op_softmax,
    onnx_op_softmax_cross_entropy, onnx_op_softplus, onnx_op_space_to_depth, onnx_op_split, onnx_op_squeeze,
    onnx_op_stft, onnx_op_swiglu, onnx_op_swish, onnx_op_tensor_scatter, onnx_op_thresholded_relu, onnx_op_tile,
    onnx_op_top_k, onnx_op_transpose, onnx_op_trilu, onnx_op_unary, onnx_op_unique, onnx_op_unsqueeze, onnx_op_variadic,
    onnx_op_where, onnx_op_window;
#endif
