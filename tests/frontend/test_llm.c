/* Language models: logits of small random models of every architecture are equal to those of llama.cpp
 * (tests/data/llm/make_models.py). */
#include "command.h"
#include "llm.h"
#include "../../frontend/llm/batch.h"
#include "../../frontend/llm/chat.h"

static void logits_equal_those_of_llama_cpp(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    expect_all_models(dev);
    db_close(dev);
  }
}

/* Models of different architectures and quantizations, for emulated GPUs. long_llm runs all models. */
static const char *const some[] = {"llama", "gemma2", "gpt2", "phi3", "qwen2moe", "mixtral",
                                   "Q2_K",  "Q4_K",   "Q6_K", "F16",  "Q4_1-moe", "Q8_0-blocks"};

/* Weights, heads and experts are divided among two devices. Models of Q2_K to Q6_K have one head of keys, of which each
 * device has a copy. Q8_0-blocks has matrices of five blocks of columns. */
static void two_devices_compute_a_model_together(void **state) {
  FOR_DEVICES {
    db_device *pair = open_pair(DEVICE_NAME);
    if (!strcmp(DEVICE_NAME, "CPU"))
      expect_all_models(pair);
    else
      for (unsigned i = 0; i < sizeof some / sizeof *some; i++)
        expect_model(some[i], json_object_get(golden, some[i]), pair);
    expect_greedy("llama", json_object_get(golden, "llama"), pair, 50);
    expect_greedy("Q8_0-blocks", json_object_get(golden, "Q8_0-blocks"), pair, 20);
    expect_greedy("qwen3moe", json_object_get(golden, "qwen3moe"), pair, 20);
    db_close(pair);
  }
}
/* Each of four devices has one head of queries and a copy of the head of keys that it uses. In Q8_0-heads, each of
 * three devices has two of six heads of queries; the second one uses both heads of keys. There are only three emulated
 * NVIDIA devices: more do not fit into the 2 GB of addresses that the address sanitizer leaves below 1 TiB. */
static void devices_share_heads_of_keys(void **state) {
  static const char *const machine[][2] = {
      {"CPU", "CPU"},
      {"EMU+AMD:gfx1100,gfx1100,gfx1100,gfx1100", "EMU+AMD:gfx1100,gfx1100,gfx1100"},
      {NULL, "EMU+NV:sm_90,sm_90,sm_90"},
  };
  static const char *const emulated[] = {"llama", "gemma2", "phi3", "qwen2moe", "Q4_K", "Q8_0-blocks"};
  const char *name;
  json_t *want;
  for (unsigned k = 0; k < 2; k++) {
    db_device *four = open_group(machine[k][0], 4);
    for (unsigned i = 0; k && i < sizeof emulated / sizeof *emulated; i++)
      expect_model(emulated[i], json_object_get(golden, emulated[i]), four);
    json_object_foreach(golden, name, want) if (!k && strcmp(name, "Q8_0-heads")) expect_model(name, want, four);
    expect_greedy("llama", json_object_get(golden, "llama"), four, 50);
    expect_greedy("Q6_K", json_object_get(golden, "Q6_K"), four, k ? 10 : 50);
    db_close(four);
  }
  for (unsigned k = 0; k < (has_ptxas() ? 3 : 2); k++) {
    db_device *three = open_group(machine[k][1], 3);
    expect_model("Q8_0-heads", json_object_get(golden, "Q8_0-heads"), three);
    expect_greedy("Q8_0-heads", json_object_get(golden, "Q8_0-heads"), three, 20);
    db_close(three);
  }
}
static void heads_must_divide(void **state) {
  db_device *three = open_group("CPU", 3);
  struct llm *l;
  assert_int_equal(llm_open(&l, DATA "Q4_K.gguf", three, 1, 0, NULL, NULL), -EINVAL);
  assert_contains(db_error(), "Q4_K.gguf: 4 heads of queries cannot be divided among 3 devices; use a number of "
                              "devices that divides 4");
  db_close(three);
}

/* Each of two devices has half of the caches, and nothing is compiled or allocated as the text grows. */
static void two_devices_replay_a_program(void **state) {
  FOR_DEVICES {
    enum { TEXTS = 8, LONG = 4096 };
    db_device *pair = open_pair(DEVICE_NAME);
    struct db_cache_counters c0, c1;
    struct db_device_counters before[2], d0[2], d1[2];
    float logits[WORDS];
    int32_t token = 3;
    struct llm *small = open_texts("llama", pair, 1, CONTEXT); /* the driver allocates memory of its own */
    assert_int_equal(llm_eval(small, 0, &token, 1, logits), 0);
    llm_close(small);
    for (unsigned k = 0; k < 2; k++) db_device_counters(db_group_device(pair, k), &before[k]);
    struct llm *l = open_texts("llama", pair, TEXTS, LONG);
    struct numbers n;
    assert_int_equal(numbers_read(&n, llm_file(l)), 0);
    uint64_t caches = (uint64_t)(n.layers * n.kv_heads * (n.key + n.value) * TEXTS * LONG) * 2;
    for (int i = 0; i < 30; i++) {
      db_cache_counters(i == 4 ? &c0 : &c1);
      for (unsigned k = 0; k < 2; k++) db_device_counters(db_group_device(pair, k), i == 4 ? &d0[k] : &d1[k]);
      if (llm_eval(l, 0, &token, 1, logits)) fail_msg("%s: %s", DEVICE_NAME, db_error());
    }
    assert_int_equal(c1.made, c0.made);
    assert_int_equal(c1.kernels, c0.kernels);
    for (unsigned k = 0; k < 2; k++) {
      assert_int_equal(d1[k].bytes_allocated, d0[k].bytes_allocated);
      assert_in_range(d1[k].bytes_allocated - before[k].bytes_allocated, caches * 2 / 5, caches * 3 / 4);
      assert_true(d1[k].kernels > d0[k].kernels);
    }
    llm_close(l);
    db_close(pair);
  }
}

static void greedy_tokens_equal_those_of_llama_cpp(void **state) {
  const char *name;
  json_t *want;
  json_object_foreach(golden, name, want) expect_greedy(name, want, NULL, GREEDY);
}
static void emulated_gpus_choose_the_same_tokens(void **state) {
  static const char *const names[] = {"gpt2", "Q4_K", "Q8_0"};
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
      expect_greedy(names[i], json_object_get(golden, names[i]), dev, 30);
    db_close(dev);
  }
}

/* After the first calls, a longer text compiles nothing and allocates nothing, and a token is one submission. */
static void tokens_replay_a_program(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    struct llm *l = open_model("llama", dev, CONTEXT);
    struct db_cache_counters c0, c1;
    struct db_device_counters d0, d1;
    float logits[WORDS];
    int32_t prompt[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, token = 3;
    assert_int_equal(llm_eval(l, 0, prompt, 10, logits), 0);
    for (int i = 0; i < 40; i++) {
      if (i == 4) db_cache_counters(&c0), db_device_counters(dev, &d0);
      assert_int_equal(llm_eval(l, 0, &token, 1, logits), 0);
    }
    db_cache_counters(&c1);
    db_device_counters(dev, &d1);
    assert_int_equal(c1.made, c0.made);
    assert_int_equal(c1.kernels, c0.kernels);
    assert_int_equal(d1.bytes_allocated, d0.bytes_allocated);
    unsigned copies = strcmp(DEVICE_NAME, "CPU") != 0; /* of the logits to the host */
    assert_int_equal(d1.copies - d0.copies, 36 * copies);
    assert_int_equal(d1.doorbells - d0.doorbells, 36 * (1 + copies));
    llm_close(l);
    db_close(dev);
  }
}

static void texts_can_be_shortened_and_end_at_the_context(void **state) {
  struct llm *l = open_model("qwen3", NULL, CONTEXT);
  float first[WORDS], again[WORDS];
  int32_t tokens[64], bad = WORDS;
  for (int32_t i = 0; i < 64; i++) tokens[i] = 3 + i % 50;
  assert_int_equal(llm_eval(l, 0, tokens, 20, first), 0);
  assert_int_equal(llm_eval(l, 0, tokens, 30, NULL), 0);
  llm_truncate(l, 0, 10);
  assert_int_equal(llm_eval(l, 0, tokens + 10, 10, again), 0);
  for (int i = 0; i < WORDS; i++) assert_float_equal(first[i], again[i], 1e-4);
  assert_int_equal(llm_eval(l, 0, &bad, 1, NULL), -EINVAL);
  assert_int_equal(llm_eval(l, 0, tokens, 0, NULL), -EINVAL);
  assert_int_equal(llm_context(l), 64);
  assert_int_equal(llm_eval(l, 0, tokens, 45, NULL), -ENOSPC);
  assert_contains(db_error(), "the context of 64 tokens is full");
  assert_int_equal(llm_eval(l, 0, tokens, 44, again), 0); /* the last tokens do not fit a padded program */
  assert_int_equal(llm_length(l, 0), 64);
  llm_close(l);
}

/* Long prompts have the same logits whether they are computed in large parts, padded or not, or 32 tokens at a time. */
static void parts_do_not_change_logits(void **state) {
  enum { LONG = 700, SMALL_PART = 32 };
  static const int32_t lengths[] = {LLM_PART + 8, LLM_PART - 8, LLM_SHORT_PART + 2, LLM_SHORT_PART - 8};
  struct llm *l = open_model("qwen3", NULL, LONG);
  float at_once[WORDS], parts[WORDS];
  int32_t tokens[LONG];
  for (int32_t i = 0; i < LONG; i++) tokens[i] = 3 + i % 50;
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    llm_truncate(l, 0, 0);
    assert_int_equal(llm_eval(l, 0, tokens, (size_t)lengths[i], at_once), 0);
    llm_truncate(l, 0, 0);
    for (int32_t at = 0; at < lengths[i]; at += SMALL_PART) {
      int32_t n = lengths[i] - at < SMALL_PART ? lengths[i] - at : SMALL_PART;
      assert_int_equal(llm_eval(l, 0, tokens + at, (size_t)n, parts), 0);
    }
    for (int w = 0; w < WORDS; w++) assert_float_equal(at_once[w], parts[w], 1e-4);
  }
  llm_close(l);
}

/* Texts that are continued together have the logits that each has alone. Text i begins with 3 i + 1 tokens. */
static void expect_texts(const char *name, db_device *dev) {
  enum { TEXTS = 4, STEPS = 5 };
  static const struct {
    unsigned n, text[TEXTS];
  } steps[STEPS] = {{2, {2, 0}}, {2, {1, 3}}, {3, {3, 0, 2}}, {4, {0, 1, 2, 3}}, {2, {3, 1}}};
  struct llm *together = open_texts(name, dev, TEXTS, CONTEXT), *alone = open_texts(name, dev, TEXTS, CONTEXT);
  float got[TEXTS * WORDS], want[WORDS];
  for (unsigned t = 0; t < TEXTS; t++) {
    int32_t prompt[3 * TEXTS];
    for (unsigned i = 0; i < 3 * t + 1; i++) prompt[i] = (int32_t)(5 * t + 7 * i) % WORDS;
    if (llm_eval(together, t, prompt, 3 * t + 1, NULL)) fail_msg("%s: %s", name, db_error());
    assert_int_equal(llm_eval(alone, t, prompt, 3 * t + 1, NULL), 0);
  }
  for (unsigned s = 0; s < STEPS; s++) {
    struct llm_next next[TEXTS];
    for (unsigned i = 0; i < steps[s].n; i++)
      next[i] = (struct llm_next){steps[s].text[i], (int32_t)(11 * s + 3 * i + 1) % WORDS};
    if (llm_eval_next(together, next, steps[s].n, got)) fail_msg("%s: %s", name, db_error());
    for (unsigned i = 0; i < steps[s].n; i++) {
      assert_int_equal(llm_eval(alone, next[i].text, &next[i].token, 1, want), 0);
      for (unsigned k = 0; k < WORDS; k++)
        if (!(fabsf(got[i * WORDS + k] - want[k]) <= 1e-3f * (float)largest(want)))
          fail_msg("%s, step %u, text %u: logit %u is %g, not %g", name, s, next[i].text, k, (double)got[i * WORDS + k],
                   (double)want[k]);
    }
  }
  llm_close(together);
  llm_close(alone);
}
static void texts_are_continued_together(void **state) {
  static const char *const names[] = {"llama", "gpt2", "gemma3", "qwen3moe", "phi3", "Q8_0"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) expect_texts(names[i], NULL);
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    expect_texts("llama", dev);
    db_close(dev);
    db_device *pair = open_pair(DEVICE_NAME);
    expect_texts("llama", pair);
    db_close(pair);
  }
  struct llm *l = open_texts("llama", NULL, 2, CONTEXT);
  int32_t token = 5;
  assert_int_equal(llm_eval(l, 2, &token, 1, NULL), -EINVAL);
  assert_contains(db_error(), "text 2 is not below 2");
  assert_int_equal(llm_eval_next(l, (struct llm_next[]){{1, 5}, {1, 5}}, 2, NULL), -EINVAL);
  assert_contains(db_error(), "text 1 has two tokens");
  assert_int_equal(llm_eval_next(l, (struct llm_next[]){{0, 5}, {1, WORDS}}, 2, NULL), -EINVAL);
  assert_int_equal(llm_eval_next(l, NULL, 3, NULL), -EINVAL);
  llm_close(l);
  assert_int_equal(llm_open(&l, DATA "llama.gguf", NULL, LLM_TEXTS + 1, 0, NULL, NULL), -EINVAL);
}

/* A request of a batch, and the tokens that it received. */
struct asked {
  struct batch_request r;
  size_t n, wanted; /* tokens; wanted: after this many it wants no more */
  int32_t id[64];
  int ends;
  enum batch_end why;
};
static bool asked_wanted(void *ctx) {
  const struct asked *a = ctx;
  return a->n < a->wanted;
}
static void asked_add(void *ctx, int32_t token) {
  struct asked *a = ctx;
  a->id[a->n++] = token;
}
static void asked_end(void *ctx, enum batch_end why, const char *message) {
  struct asked *a = ctx;
  a->ends++, a->why = why;
}
/* Fills in a request that adds at most `most` tokens to the first n tokens of a fixed text. */
static void ask(struct asked *a, size_t n, int64_t most, size_t wanted) {
  static int32_t tokens[CONTEXT];
  for (int32_t i = 0; i < CONTEXT; i++) tokens[i] = 3 + i * 7 % 50;
  *a = (struct asked){.wanted = wanted, .r = {tokens, n, most, {0}, asked_wanted, asked_add, asked_end, a}};
}

/* The tokens of each request are those that it has alone. */
static void requests_join_and_leave_between_steps(void **state) {
  struct llm *l = open_texts("llama", NULL, 3, CONTEXT);
  const char *why;
  struct batch *b = batch_new(l, llm_tokenizer(l, &why), 3);
  enum { REQUESTS = 4 };
  struct asked alone[REQUESTS], together[REQUESTS];
  for (unsigned i = 0; i < REQUESTS; i++) {
    ask(&alone[i], 5 * i + 1, 20 + i, i == 3 ? 5 : 64);
    batch_add(b, &alone[i].r);
    while (batch_running(b)) batch_step(b);
    assert_int_equal(alone[i].ends, 1);
    assert_int_equal(alone[i].why, i == 3 ? BATCH_UNWANTED : BATCH_LENGTH);
    assert_int_equal(alone[i].n, i == 3 ? 5 : 20 + i);
    ask(&together[i], 5 * i + 1, 20 + i, i == 3 ? 5 : 64);
  }
  batch_add(b, &together[0].r);
  for (unsigned i = 1; i < REQUESTS; i++) {
    for (unsigned step = 0; step < 4 || !batch_has_room(b); step++) batch_step(b);
    batch_add(b, &together[i].r);
    assert_int_equal(batch_running(b), i < 3 ? i + 1 : 3);
  }
  while (batch_running(b)) batch_step(b);
  for (unsigned i = 0; i < REQUESTS; i++) {
    assert_int_equal(together[i].ends, 1);
    assert_int_equal(together[i].why, alone[i].why);
    assert_int_equal(together[i].n, alone[i].n);
    assert_memory_equal(together[i].id, alone[i].id, alone[i].n * sizeof *alone[i].id);
  }
  ask(alone, CONTEXT - 4, 100, 64); /* ends where the context does */
  batch_add(b, &alone->r);
  while (batch_running(b)) batch_step(b);
  assert_int_equal(alone->n, 4);
  assert_int_equal(alone->why, BATCH_LENGTH);
  batch_free(b);
  llm_close(l);
}

/* In a model of two layers with a window of 4 tokens, the last one sees 6 others. */
static void a_window_hides_older_tokens(void **state) {
  struct llm *l = open_model("mistral", NULL, CONTEXT);
  float logits[3][WORDS];
  int32_t tokens[20];
  for (int i = 0; i < 3; i++) {
    for (int32_t k = 0; k < 20; k++) tokens[k] = 3 + k * 7 % 50;
    if (i == 1) tokens[12] = 60; /* 7 before the last */
    if (i == 2) tokens[13] = 60;
    llm_truncate(l, 0, 0);
    assert_int_equal(llm_eval(l, 0, tokens, 18, NULL), 0); /* together, then one by one */
    assert_int_equal(llm_eval(l, 0, tokens + 18, 1, NULL), 0);
    assert_int_equal(llm_eval(l, 0, tokens + 19, 1, logits[i]), 0);
  }
  assert_memory_equal(logits[0], logits[1], sizeof *logits);
  assert_memory_not_equal(logits[0], logits[2], sizeof *logits);
  llm_close(l);
}

static void samplers(void **state) {
  float logits[] = {0, 3, NAN, 1, 3, 2};
  struct sampler greedy = {.temperature = 0}, one = {.temperature = 5, .top_k = 1, .top_p = 1};
  assert_int_equal(sampler_choose(&greedy, logits, 6), 1);
  for (int i = 0; i < 20; i++) assert_int_equal(sampler_choose(&one, logits, 6), 1);
  /* The two greatest have 0.36 each at this temperature, so 0.7 of the probability needs both and no more. */
  struct sampler nucleus = {.temperature = 1, .top_p = 0.7, .seed = 1};
  unsigned count[6] = {0};
  for (int i = 0; i < 1000; i++) count[sampler_choose(&nucleus, logits, 6)]++;
  assert_int_equal(count[1] + count[4], 1000);
  assert_true(count[1] > 400 && count[4] > 400);
  struct sampler x = {.temperature = 1, .top_p = 1, .seed = 9}, y = x;
  memset(count, 0, sizeof count);
  for (int i = 0; i < 4000; i++) {
    int32_t id = sampler_choose(&x, logits, 6);
    assert_int_equal(id, sampler_choose(&y, logits, 6)); /* depends only on the seed */
    count[id]++;
  }
  double sum = exp(0) + 2 * exp(3) + exp(1) + exp(2);
  assert_float_equal(count[5] / 4000.0, exp(2) / sum, 0.03);
  assert_float_equal(count[0] / 4000.0, exp(0) / sum, 0.02);
  assert_int_equal(count[2], 0);
}

/* Expects this message for a model in which a text is replaced by one of the same length. */
static void refuses(const char *message, const char *from, const char *to) {
  char path[96];
  FILE *in = fopen(DATA "llama.gguf", "rb"), *f;
  static char bytes[1 << 18];
  size_t n = fread(bytes, 1, sizeof bytes, in), at = 0;
  fclose(in);
  while (at + strlen(from) < n && memcmp(bytes + at, from, strlen(from)) != 0) at++;
  assert_true(at + strlen(from) < n);
  memcpy(bytes + at, to, strlen(from));
  snprintf(path, sizeof path, "%s/changed.gguf", dir);
  assert_non_null(f = fopen(path, "wb"));
  fwrite(bytes, 1, n, f);
  fclose(f);
  struct llm *l;
  assert_int_equal(llm_open(&l, path, NULL, 1, 0, NULL, NULL), -EINVAL);
  assert_null(l);
  assert_contains(db_error(), message);
  assert_contains(db_error(), path);
}
static void names_what_is_wrong(void **state) {
  struct llm *l;
  refuses("not supported: general.architecture is 'lxama'", "llama", "lxama");
  refuses("llama.block_count: missing", "block_count", "block_cxunt");
  refuses("blk.1.attn_output.weight: missing", "blk.1.attn_output", "blk.1.attn_xutput");
  refuses("token_embd.weight: missing", "token_embd", "token_xmbd");
  refuses("blk.0.ffn: matrices of different sizes", "blk.0.ffn_up", "blk.0.ffn_xp");
  assert_int_equal(llm_open(&l, "/nonexistent.gguf", NULL, 1, 0, NULL, NULL), -ENOENT);
}

/* ---- chats ---- */

/* Templates are recognized, and the texts equal those of llama.cpp (tests/data/llm/make_chats.py). */
static void chats_equal_those_of_llama_cpp(void **state) {
  json_t *rows = json_load_file(DATA "chats.json", 0, NULL), *row;
  size_t i, k;
  assert_true(json_array_size(rows) > 20);
  json_array_foreach(rows, i, row) {
    const char *name, *words, *want;
    json_t *messages, *message;
    assert_int_equal(
        json_unpack(row, "{s:s, s:s, s:o, s:s}", "name", &name, "template", &words, "chat", &messages, "text", &want),
        0);
    struct chat c = {.format = chat_format_of_template(words)};
    if (!c.format) fail_msg("%s: %s", name, db_error());
    assert_string_equal(chat_format_name(c.format), name);
    char *text;
    size_t size;
    c.out = open_memstream(&text, &size);
    json_array_foreach(messages, k, message) {
      const char *role = json_string_value(json_array_get(message, 0));
      chat_message(&c, chat_role_named(role), json_string_value(json_array_get(message, 1)));
    }
    chat_begin_answer(&c);
    fclose(c.out);
    assert_string_equal(text, want);
    free(text);
  }
  json_decref(rows);
  assert_int_equal(chat_role_named("tool"), CHAT_ROLES);
  assert_null(chat_format_of_template("{{ messages }}"));
  assert_contains(db_error(),
                  "not supported: tokenizer.chat_template '{{ messages }}'; the formats are phi4, chatml, ");
}

/* ---- the command ---- */

static void the_benchmark_measures_models(void **state) {
  json_t *json, *models;
  EXPECT(0, "bench --model " DATA "Q8_0.gguf --batch 3 --dev CPU --dev " EMULATED " --json");
  json = json_out();
  models = json_object_get(json, "models");
  assert_int_equal(json_array_size(models), 4); /* prompts and tokens on two devices */
  for (size_t i = 0; i < 4; i++) {
    const char *unit;
    double rate, deviation;
    int batch, runs;
    assert_int_equal(json_unpack(json_array_get(models, i), "{s:s, s:F, s:F, s:i, s:i}", "unit", &unit, "per_second",
                                 &rate, "deviation", &deviation, "batch", &batch, "runs", &runs),
                     0);
    assert_string_equal(unit, i % 2 ? "tokens" : "prompt tokens");
    assert_true(rate > 0 && deviation >= 0 && batch == 3);
    assert_int_equal(runs, i % 2 ? 64 : 5);
  }
  json_decref(json);
  EXPECT(0, "bench --model " DATA_DIR "/onnx/block.onnx");
  assert_contains(out, "block.onnx, batch 1: ");
  assert_contains(out, " samples/s, deviation ");
  EXPECT(0, "bench --model resnet50 --batch 2 --json");
  json = json_out();
  models = json_object_get(json, "models");
  assert_int_equal(json_array_size(models), 1);
  assert_string_equal(json_string_value(json_object_get(json_array_get(models, 0), "unit")), "images");
  assert_true(json_number_value(json_object_get(json_array_get(models, 0), "per_second")) > 0);
  json_decref(json);
  EXPECT(0, "llm " DATA "Q8_0.gguf --bench -n 5");
  assert_contains(out, " more tokens: ");
  EXPECT(1, "bench --model " DATA "Q8_0.gguf --batch 9");
  assert_contains(out, "--batch: a language model continues at most 8 texts");
  EXPECT(1, "bench --model resnet");
  assert_contains(out, "no .onnx or .gguf file, and not one of resnet50, vit, gpt2, llama-1b");
  EXPECT(1, "bench --model nothing.onnx");
  REFUSES("--batch is for --model", "bench --batch 2");
  REFUSES("--model does not run cases", "bench --model x.onnx --case dot");
  REFUSES("--batch needs a number from 1", "bench --model x.onnx --batch 0");
}

static void ctrl_c_ends_a_chat(void **state) {
  struct running r =
      start_command((const char *const[]){"doorbell", "llm", DATA "qwen2.gguf", "--chat", "-n", "5", NULL});
  char line[512];
  fputs("#$\n", r.in);
  fflush(r.in);
  assert_non_null(fgets(line, sizeof line, r.out)); /* the answer: the command has its handler of signals */
  kill(r.pid, SIGINT);
  int status;
  assert_int_equal(waitpid(r.pid, &status, 0), r.pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 130);
  assert_non_null(fgets(line, sizeof line, r.errors));
  assert_contains(line, "prompt: ");
  assert_contains(line, "; added: ");
  fclose(r.in), fclose(r.out), fclose(r.errors);
}

static void terminals_show_the_speed(void **state) {
  char line[1024];
  snprintf(line, sizeof line,
           "cd %s && script -qec \"" DOORBELL " llm " DATA "llama.gguf -p x -n 5 >text\" /dev/null"
           " </dev/null",
           dir);
  FILE *p = popen(line, "r");
  assert_non_null(p);
  out[fread(out, 1, sizeof out - 1, p)] = 0;
  assert_int_equal(pclose(p), 0);
  assert_contains(out, "\rloading 100 %");
  assert_contains(out, " tokens/s \r"); /* while tokens come */
  assert_contains(out, "\033[Kprompt: 3 tokens, ");
  assert_contains(out, "; added: 3 tokens, ");
}

static void the_command_continues_texts(void **state) {
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10");
  char *first = strndup(out, strcspn(out, "\n") + 1);
  assert_true(strlen(first) >= 2 && !strncmp(first, "!#", 2));
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10 --temp 1 --top-k 1");
  assert_true(!strncmp(out, first, strlen(first)));
  free(first);
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10 --temp 2 --top-p 1 --top-k 0 --seed 3");
  assert_contains(out, "prompt: 4 tokens");
  EXPECT(0, "llm " DATA "llama.gguf -p x --context 8 --temp 2");
  EXPECT(0, "llm " DATA "qwen3.gguf --bench -n 4 --dev CPU");
  assert_contains(out, "prompt of 128 tokens: ");
  assert_contains(out, "4 more tokens: ");
  EXPECT(1, "llm " DATA "llama.gguf --chat </dev/null");
  assert_contains(out, "tokenizer.chat_template: missing; --chat-template NAME chooses a format");
  EXPECT(1, "llm " DATA "llama.gguf --chat --chat-template x </dev/null");
  assert_contains(out, "not supported: the chat format 'x'; the formats are ");
  EXPECT(0, "llm " DATA "llama.gguf --chat --chat-template llama2 -n 2 -p x </dev/null");
  write_text("messages", "#$\n\n%&\n");
  EXPECT(0, "llm " DATA "qwen2.gguf --chat -p '!' -n 3 <messages");
  assert_contains(out, "prompt: ");
  write_text("bad.gguf", "GGUF");
  EXPECT(1, "llm bad.gguf -p x");
  assert_contains(out, "bad.gguf: at byte 0: not a GGUF file");
  EXPECT(1, "llm " DATA "llama.gguf --dev nothing -p x");
  EXPECT(0, "help --man llm");
  assert_contains(out, "\\-p, \\-\\-prompt");
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10");
  first = strndup(out, strcspn(out, "\n") + 1);
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10 --devices 2");
  assert_true(!strncmp(out, first, strlen(first)));
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10 --devices 2 --dev " EMULATED);
  assert_true(!strncmp(out, first, strlen(first)));
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10 --devices 4");
  assert_true(!strncmp(out, first, strlen(first)));
  EXPECT(0, "llm " DATA "llama.gguf -p '!#' -n 10 --devices 2 --dev CPU:1");
  assert_true(!strncmp(out, first, strlen(first)));
  free(first);
  EXPECT(1, "llm " DATA "llama.gguf -p x --devices 3");
  assert_contains(out, "llama.gguf: 4 heads of queries cannot be divided among 3 devices");
  EXPECT(1, "llm " DATA "llama.gguf -p x --devices 2 --dev CPU:63");
  assert_contains(out, "device 'CPU:64'");
  REFUSES("no file", "llm -p x");
  REFUSES("no text", "llm x.gguf");
  REFUSES("--top-p needs a number from 0 to 1, not '2'", "llm x.gguf -p x --top-p 2");
  REFUSES("--devices needs a number from 1 to 64, not '65'", "llm x.gguf -p x --devices 65");
  REFUSES("-n needs a number from 0 to ", "llm x.gguf -p x -n x");
  REFUSES("--bench has its own text", "llm x.gguf -p x --bench");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logits_equal_those_of_llama_cpp),
      cmocka_unit_test(two_devices_compute_a_model_together),
      cmocka_unit_test(devices_share_heads_of_keys),
      cmocka_unit_test(heads_must_divide),
      cmocka_unit_test(two_devices_replay_a_program),
      cmocka_unit_test(greedy_tokens_equal_those_of_llama_cpp),
      cmocka_unit_test(emulated_gpus_choose_the_same_tokens),
      cmocka_unit_test(tokens_replay_a_program),
      cmocka_unit_test(texts_are_continued_together),
      cmocka_unit_test(requests_join_and_leave_between_steps),
      cmocka_unit_test(a_window_hides_older_tokens),
      cmocka_unit_test(texts_can_be_shortened_and_end_at_the_context),
      cmocka_unit_test(parts_do_not_change_logits),
      cmocka_unit_test(samplers),
      cmocka_unit_test(names_what_is_wrong),
      cmocka_unit_test(chats_equal_those_of_llama_cpp),
      cmocka_unit_test(the_command_continues_texts),
      cmocka_unit_test(the_benchmark_measures_models),
      cmocka_unit_test(ctrl_c_ends_a_chat),
      cmocka_unit_test(terminals_show_the_speed),
  };
  return cmocka_run_group_tests_name("llm", tests, read_golden, forget);
}
