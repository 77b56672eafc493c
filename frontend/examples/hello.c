/* The first program: a matrix product, a softmax and its gradient, on DEV or the CPU. */
#include "frontend/doorbell.h"
#include <stdio.h>

int main(void) {
  static const float data[2][3] = {{1, 2, 3}, {4, 5, 6}}, weights[3][2] = {{0.1, 0.2}, {0.3, -0.1}, {-0.2, 0.3}};
  float y[2][2], dx[2][3];
  DB_SCOPED; /* tensors made from here on are released at the end of the block */
  db_tensor *x = db_from(data, DB_F32, NULL, 2, 3);
  db_tensor *w = db_from(weights, DB_F32, NULL, 3, 2);
  db_tensor *out = db_softmax(db_matmul(x, w), -1);
  db_tensor *gradient = db_grad(db_sum(db_square(out)), x); /* nothing has been computed yet */
  if (db_read(out, y, sizeof y) || db_read(gradient, dx, sizeof dx)) {
    fprintf(stderr, "%s\n", db_error());
    return 1;
  }
  printf("softmax(x w) = [[%.4g, %.4g], [%.4g, %.4g]]\n", y[0][0], y[0][1], y[1][0], y[1][1]);
  printf("gradient     = [[%.4g, %.4g, %.4g], [%.4g, %.4g, %.4g]]\n", dx[0][0], dx[0][1], dx[0][2], dx[1][0], dx[1][1],
         dx[1][2]);
  return 0;
}
