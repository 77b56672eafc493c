/* ONNX models: files of graphs and weights that other frameworks export. */
#ifndef DOORBELL_ONNX_H
#define DOORBELL_ONNX_H
#include "jit.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- loading ----
 *
 * A model with a graph of the standard domain, opsets 7 to 28. An operator, a type or a domain that is not supported
 * makes db_onnx_load fail with a message that names the node. The file is not trusted: malformed bytes are an error. */

typedef struct db_onnx db_onnx;
/* Loads a model; its weights are placed on dev (NULL: the default device). External data is read from files in the
 * model's folder. Returns NULL and sets db_error() on an error. */
db_onnx *db_onnx_load(const char *path, db_device *dev);
/* The same for the bytes of a file. folder: where external data is; NULL refuses such tensors. */
db_onnx *db_onnx_parse(const void *bytes, size_t size, const char *folder, db_device *dev);
/* Frees m, its weights and its captured programs; m may be NULL. */
void db_onnx_free(db_onnx *m);

/* An input or an output of a model. */
struct db_onnx_port {
  const char *name; /* valid as long as the model */
  db_dtype dtype;   /* DB_NONE if the file does not say */
  /* The file's name of the type, such as INT4, if tensors of `dtype` hold its values: i8 and u8 those of integers of
   * 2 and 4 bits, f32 those of FLOAT4E2M1, FLOAT6E2M3, FLOAT6E3M2, FLOAT8E4M3FNUZ, FLOAT8E5M2FNUZ and FLOAT8E8M0. Else
   * NULL. Values of inputs must be values of that type. */
  const char *held;
  bool has_shape; /* whether the file gives the number of axes */
  unsigned rank;
  int64_t dim[16];          /* -1: any size */
  const char *dim_name[16]; /* the name of a size of -1, or NULL */
};
/* The number of inputs that db_onnx_run expects. Initializers are not inputs. */
unsigned db_onnx_inputs(const db_onnx *m);
unsigned db_onnx_outputs(const db_onnx *m);
/* Describes input or output k. Returns 0, or -EINVAL if there is none. */
int db_onnx_input(const db_onnx *m, unsigned k, struct db_onnx_port *out);
int db_onnx_output(const db_onnx *m, unsigned k, struct db_onnx_port *out);

/* ---- running ---- */

/* Runs the model. in: a tensor for each input, of its type; out receives a tensor for each output, owned by the
 * innermost open scope. The second run with the same shapes is captured and later ones replay it (jit.h). A model whose
 * shapes or branches depend on values of its inputs is not captured: its nodes are converted again in every run, and
 * the values are read from the device. Returns 0 or a negative errno. */
int db_onnx_run(db_onnx *m, db_tensor *const *in, db_tensor **out);
/* Writes the program of the last run with its weights to a file for db_jit_load. -EINVAL before a run was captured, or
 * if the last run cannot be. */
int db_onnx_save(db_onnx *m, const char *path);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
