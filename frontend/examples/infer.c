/* Inference from a file: infer WEIGHTS.safetensors INPUT.npy OUTPUT.npy. Applies a stack of linear layers, "0.weight"
 * [out, in] and "0.bias" [out], "1.weight" ..., with a relu between them, and writes the probabilities of the
 * classes. */
#include "frontend/nn.h"
#include <stdio.h>
#include <string.h>

static db_tensor *find(const struct db_named *file, unsigned n, unsigned layer, const char *what) {
  char name[64];
  snprintf(name, sizeof name, "%u.%s", layer, what);
  for (unsigned i = 0; i < n; i++)
    if (!strcmp(file[i].name, name)) return file[i].tensor;
  return NULL;
}

int main(int argc, char **argv) {
  struct db_named *weights, *input;
  unsigned n, one;
  if (argc != 4) return fprintf(stderr, "usage: infer WEIGHTS.safetensors INPUT.npy OUTPUT.npy\n"), 2;
  if (db_load(argv[1], NULL, &weights, &n) || db_load(argv[2], NULL, &input, &one))
    return fprintf(stderr, "%s\n", db_error()), 1;
  DB_SCOPED;
  db_tensor *x = input[0].tensor, *w, *b;
  unsigned layers = 0;
  for (; (w = find(weights, n, layers, "weight")); layers++) {
    if (layers) x = db_relu(x);
    x = db_matmul(x, db_transpose(w, 0, 1));
    if ((b = find(weights, n, layers, "bias"))) x = db_add(x, b);
  }
  int err = !layers;
  if (!layers) fprintf(stderr, "%s: the file has no tensor \"0.weight\"\n", argv[1]);
  struct db_named output = {"probabilities", db_softmax(x, -1)};
  if (!err && (err = db_save(argv[3], &output, 1))) fprintf(stderr, "%s\n", db_error());
  if (!err) printf("%u layers, %s written\n", layers, argv[3]);
  db_named_free(weights, n);
  db_named_free(input, one);
  return err != 0;
}
