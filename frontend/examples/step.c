/* A captured step that is saved and loaded: step FILE.dbj fits a line by gradient descent. The first run of the program
 * captures the step and writes the file; later runs load it, compile nothing, and continue where it was saved. */
#include "frontend/doorbell.h"
#include <stdio.h>
#include <unistd.h>

static db_tensor *w; /* slope and offset, which the step assigns */

/* in: x and y, of one batch; out: the loss. */
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *x = db_stack(-1, in[0], db_ones_like(in[0]));
  DB_SCOPED; /* releases what is built on the old w before it is assigned */
  out[0] = db_keep(db_mean(db_square(db_sub(db_matmul(x, w), in[1]))));
  db_assign(w, db_sub(w, db_mul(db_grad(out[0], w), 0.1)));
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: step FILE.dbj\n"), 2;
  DB_SCOPED;
  bool there = !access(argv[1], F_OK);
  w = db_zeros(DB_F32, NULL, 2);
  db_realize(w);
  db_jit *j = there ? db_jit_load(argv[1], NULL, 0) : db_jit_new(step, NULL, 2, 1);
  double loss = 0;
  int err = 0;
  for (int i = 0; i < 50 && !err; i++) {
    DB_SCOPED;
    db_tensor *x = db_rand(DB_F32, NULL, 64), *in[] = {x, db_add(db_mul(x, 3), 1)}, *out[1]; /* y = 3 x + 1 */
    err = db_realize(in[0], in[1]);
    if (!err) err = db_jit_call(j, in, out);
    if (!err && i % 10 == 0 && !(err = db_item(out[0], &loss))) printf("step %2d: loss %.5f\n", i, loss);
  }
  if (!err && !there) err = db_jit_save(j, argv[1], &(struct db_named){"w", w}, 1);
  float line[2] = {0};
  if (!err) err = db_read(there ? db_jit_param(j, "w") : w, line, sizeof line);
  if (err)
    fprintf(stderr, "%s\n", db_error());
  else
    printf("y = %.2f x + %.2f\n", line[0], line[1]);
  db_jit_free(j);
  return err != 0;
}
