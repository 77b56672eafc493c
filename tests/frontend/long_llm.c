/* Every small model on both emulated GPUs, also divided among two of them: greedy tokens and logits are equal to those
 * of llama.cpp. */
#include "llm.h"

static void emulated_gpus_choose_the_tokens_of_llama_cpp(void **state) {
  const char *name;
  json_t *want;
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    json_object_foreach(golden, name, want) expect_greedy(name, want, dev, GREEDY);
    db_close(dev);
  }
}

static void pairs_compute_every_model(void **state) {
  FOR_EMULATED_GPU {
    db_device *pair = open_pair(DEVICE_NAME);
    expect_all_models(pair);
    db_close(pair);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(emulated_gpus_choose_the_tokens_of_llama_cpp),
                                     cmocka_unit_test(pairs_compute_every_model)};
  return cmocka_run_group_tests_name("llm", tests, read_golden, forget);
}
