/* Data-parallel training on four devices: DEV, DEV:1, DEV:2, DEV:3. Each has all weights and a quarter of each batch.
 * Operations accept tensors that are split along the batch like others; gradients are combined where they are
 * needed. */
#include "frontend/nn.h"
#include <stdio.h>

enum { DEVICES = 4, BATCH = 128, STEPS = 60 };

int main(void) {
  db_device *dev[DEVICES];
  for (int i = 0; i < DEVICES; i++) {
    char name[160];
    if (i) snprintf(name, sizeof name, "%s:%d", db_device_name(dev[0]), i);
    if (!(dev[i] = db_open(i ? name : NULL))) return fprintf(stderr, "%s\n", db_error()), 1;
  }
  db_device *group = db_group(dev, DEVICES);
  db_params *p = db_params_new(group, 1);
  db_linear hidden = db_linear_new(p, "hidden", 2, 32, true), out = db_linear_new(p, "out", 32, 1, true);
  unsigned n;
  db_tensor *const *weights = db_params_trained(p, &n);
  db_optim *adam = db_adam(weights, n, .lr = 0.01);
  int err = 0;
  for (int i = 0; i < STEPS && !err; i++) { /* learns the product of two numbers */
    DB_SCOPED;
    double value;
    db_tensor *x = db_rand(DB_F32, dev[0], BATCH, 2);
    err = db_realize(x);
    db_tensor *y = db_prod_keep(x, -1);
    db_tensor *mine = db_shard(x, dev, DEVICES, 0), *wanted = db_shard(y, dev, DEVICES, 0);
    db_tensor *got = db_apply(&out, db_relu(db_apply(&hidden, mine)));
    db_tensor *loss = db_mean(db_square(db_sub(got, wanted)));
    if (!err) err = db_train_step(p, adam, loss);
    if (!err && i % 20 == 0 && !(err = db_item(loss, &value))) printf("step %2d: loss %.4f\n", i, value);
    if (!err && i == STEPS - 1 && !(err = db_item(loss, &value)))
      printf("step %2d: loss %.4f on %u devices\n", i, value, db_sharding(loss, NULL));
  }
  if (err) fprintf(stderr, "%s\n", db_error());
  db_optim_free(adam);
  db_params_free(p);
  db_close(group);
  for (int i = 0; i < DEVICES; i++) db_close(dev[i]);
  return err != 0;
}
