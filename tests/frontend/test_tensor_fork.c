/* A forked child can use tensors on its own devices; its parent's are rejected with a message. */
#include "support.h"
#include "tests/child.h"
#include "tests/ok.h"

static int child(void *arg) {
  db_tensor *parents = arg;
  float out[4];
  int status = 0;
  if (!db_read(parents, out, sizeof out) || !strstr(db_error(), "was opened before fork")) status |= 1;
  {
    DB_SCOPED;
    db_tensor *sum = db_add(parents, 1);
    if (!db_realize(sum) || !strstr(db_error(), "was opened before fork")) status |= 2;
    db_tensor *own = db_add(db_from(((float[]){1, 2, 3, 4}), DB_F32, NULL, 4), 1);
    if (db_read(own, out, sizeof out) || out[3] != 5) status |= 4;
    if (!db_poison(db_add(own, parents))) status |= 8;
  }
  if (!db_shutdown()) status |= 16; /* the parent's tensors also exist here */
  db_release(parents);
  if (db_shutdown()) status |= 32;
  {
    DB_SCOPED;
    db_tensor *own = db_mul(db_from(((float[]){1, 2, 3, 4}), DB_F32, NULL, 4), 3);
    if (db_read(own, out, sizeof out) || out[3] != 12) status |= 64;
  }
  return status;
}

static void tensors_on_devices_of_its_own(void **state) {
  FORK_BESIDE_THREADS;
  FOR_DEVICES {
    setenv("DEV", DEVICE_NAME, 1);
    db_tensor *t = NULL;
    {
      DB_SCOPED;
      t = db_retain(db_mul(db_from(((float[]){1, 2, 3, 4}), DB_F32, NULL, 4), 2));
      OK(db_realize(t));
    }
    for (int i = 0; i < 2; i++) assert_int_equal(in_child_process(child, t), 0);
    float out[4];
    OK(db_read(t, out, sizeof out));
    assert_true(out[0] == 2 && out[3] == 8);
    db_release(t);
    OK(db_shutdown());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tensors_on_devices_of_its_own)};
  return cmocka_run_group_tests_name("tensor_fork", tests, NULL, NULL);
}
