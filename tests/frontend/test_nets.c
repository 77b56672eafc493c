/* The networks that the trainings and `doorbell bench --model` share. */
#include "support.h"
#include "../../frontend/nets/nets.h"

enum { TEXTS = 2, LENGTH = 6, WORDS = 11, CONTEXT = 8 };

static void read_logits(db_tensor *t, float *out) {
  if (db_read(t, out, TEXTS * WORDS * sizeof *out)) fail_msg("%s", db_error());
}

/* Reading a text token by token with a cache gives the logits of reading it at once. */
static void decoding(void **state) {
  static const struct net_lm_sizes sizes[] = {{WORDS, CONTEXT, 8, 2, 2, 2, 16, false},
                                              {WORDS, CONTEXT, 16, 2, 4, 2, 24, true}};
  static const int32_t text[TEXTS][LENGTH] = {{3, 1, 4, 1, 5, 9}, {2, 7, 1, 8, 2, 8}};
  FOR_DEVICES for (unsigned k = 0; k < 2; k++) {
    db_device *dev = open_device(DEVICE_NAME);
    db_params *p = db_params_new(dev, 7);
    const struct net_lm_sizes *s = &sizes[k];
    struct net_lm n;
    struct net_lm_cache cache;
    net_lm_new(&n, p, *s);
    db_params_train(p, false);
    {
      DB_SCOPED;
      db_tensor *all = net_lm_apply(&n, db_from(text, DB_I32, dev, TEXTS, LENGTH), NULL, 0);
      for (int64_t i = 0; i < s->layers; i++) {
        cache.keys[i] = db_contiguous(db_zeros(DB_F32, dev, TEXTS, s->kv_heads, CONTEXT, s->width / s->heads));
        cache.values[i] = db_contiguous(db_zeros(DB_F32, dev, TEXTS, s->kv_heads, CONTEXT, s->width / s->heads));
        assert_int_equal(db_realize(cache.keys[i], cache.values[i]), 0);
      }
      for (int64_t at = 0; at < LENGTH; at++) {
        DB_SCOPED;
        float want[TEXTS * WORDS], got[TEXTS * WORDS];
        int32_t one[TEXTS] = {text[0][at], text[1][at]};
        int64_t end = db_bind("tokens", 1, CONTEXT, at + 1);
        db_tensor *next = net_lm_apply(&n, db_from(one, DB_I32, dev, TEXTS, 1), &cache, db_size_sub(end, 1));
        assert_int_equal(db_realize(next, cache.keys[0], cache.keys[1], cache.values[0], cache.values[1]), 0);
        read_logits(next, got);
        read_logits(db_contiguous(db_shrink(all, 0, TEXTS, at, at + 1, 0, WORDS)), want);
        for (int i = 0; i < TEXTS * WORDS; i++) assert_float_equal(got[i], want[i], 1e-5);
      }
    }
    db_params_free(p);
    db_close(dev);
  }
}

/* The published numbers of parameters: those of torchvision's resnet50 and vit_b_16, of GPT-2 without its second copy
 * of the embedding, and of TinyLlama 1.1B. */
static void sizes(void **state) {
  static const int64_t want[] = {25557032, 86567656, 124439808, 1100048384};
  for (int k = 0; k < 4; k++) {
    db_params *p = db_params_new(NULL, 1);
    static struct net_resnet resnet;
    static struct net_vit vit;
    static struct net_lm lm;
    if (k == 0) net_resnet_new(&resnet, p, net_resnet50);
    if (k == 1) net_vit_new(&vit, p, net_vit_base);
    if (k >= 2) net_lm_new(&lm, p, k == 2 ? net_gpt2 : net_llama_1b);
    assert_int_equal(db_params_numel(p), want[k]);
    db_params_free(p);
  }
}

static int finish(void **state) { return db_shutdown(); }
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(decoding), cmocka_unit_test(sizes)};
  return cmocka_run_group_tests_name("nets", tests, NULL, finish);
}
