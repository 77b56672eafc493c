/* Captured programs in files: another process replays a program that this one captured and continues from its state,
 * without compiling anything. Files that are truncated, modified or made for another machine are rejected. With
 * arguments this suite is the other process. */
#define _GNU_SOURCE
#include "support.h"
#include "tests/ok.h"
#include "../hcq/saxpy.h"
#include "../../frontend/files/files.h"
#include "../../frontend/jit/file.h"
#include "../../frontend/nn.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

/* ---- counting of the compiler's calls into LLVM ---- */

static int llvm_calls;
void LLVMInitializeAMDGPUTargetInfo(void) {
  llvm_calls++;
  void (*real)(void) = (void (*)(void))dlsym(RTLD_NEXT, "LLVMInitializeAMDGPUTargetInfo");
  real();
}
void *LLVMContextCreate(void) {
  llvm_calls++;
  void *(*real)(void) = (void *(*)(void))dlsym(RTLD_NEXT, "LLVMContextCreate");
  return real();
}

/* ---- the captured functions: the process that made a program and the one that loaded it call it with the same inputs
 * ---- */

enum { FIRST = 5 /* number of calls before it is saved */, LAST = 9, MOST_RESULTS = 1024 };

struct world {
  db_device *dev[2], *group;
  db_params *params;
  db_linear in, out;
  db_optim *adam;
  db_tensor *shift, *data;
  db_program *saxpy; /* of custom */
  const struct machine *machine;
};
struct scenario {
  const char *name;
  unsigned ndevices, nin, nout;
  db_jit_fn *fn;
  void (*inputs)(struct world *w, int i, db_tensor **in);
};

/* A network with Adam, whose dropout draws random numbers. */
static int train(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  db_tensor *h = db_dropout(db_relu(db_apply(&w->in, in[0])), 0.25, true);
  out[0] = db_cross_entropy(db_apply(&w->out, h), in[1]);
  return db_train_step(w->params, w->adam, out[0]);
}
static void train_inputs(struct world *w, int i, db_tensor **in) {
  float x[8 * 6];
  int32_t y[8];
  for (int k = 0; k < 48; k++) x[k] = (float)((k * 7 + i * 5) % 11) / 11;
  for (int k = 0; k < 8; k++) y[k] = (k + i) % 3;
  in[0] = db_from(x, DB_F32, w->dev[0], 8, 6);
  in[1] = db_from(y, DB_I32, w->dev[0], 8);
}

static int draws(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  out[0] = db_rand(DB_F32, w->dev[0], 16);
  out[1] = db_randn(DB_F32, w->dev[0], 16);
  return 0;
}
static void no_inputs(struct world *w, int i, db_tensor **in) {}

/* A sum over a size that changes, an assigned tensor, outputs that existed before, and one without elements. */
static int various(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  db_tensor *twice = db_mul(in[0], 2);
  if (db_realize(twice)) return -EIO;
  out[0] = db_sum(db_square(twice));
  db_assign(w->shift, db_add(w->shift, in[1]));
  out[1] = in[1];
  out[2] = w->shift;
  out[3] = db_mul(in[1], 0.5);
  out[4] = db_zeros(DB_F32, w->dev[0], 0, 3);
  return 0;
}
static void various_inputs(struct world *w, int i, db_tensor **in) {
  in[0] = db_shrink(w->data, 0, db_bind("n", 1, 32, 1 + (i * 5) % 32));
  in[1] = db_shrink(w->data, (i % 8) * 4, (i % 8) * 4 + 4);
}

static int across(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  db_tensor *there = db_mul(db_to(in[0], w->dev[1]), 3), *here = db_add(in[0], 1);
  out[0] = db_add(db_to(there, w->dev[0]), here);
  out[1] = db_square(there);
  return 0;
}
static void across_inputs(struct world *w, int i, db_tensor **in) {
  in[0] = db_from(((float[]){(float)i, 2.5f, -(float)i}), DB_F32, w->dev[0], 3);
}

/* Temporaries that share memory: the memory plan is saved. */
static int stages(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *x = in[0];
  for (int i = 0; i < 6; i++) {
    x = db_add(db_flip(x, 0), i);
    if (db_realize(x)) return -EIO;
  }
  out[0] = db_mul(x, 0.25);
  return 0;
}

/* A network trained on a batch in two parts of different size, and split tensors: an input that is returned, and an
 * assigned one. */
static int parallel(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  db_tensor *h = db_dropout(db_relu(db_apply(&w->in, in[0])), 0.25, true);
  out[1] = db_apply(&w->out, h);
  out[0] = db_cross_entropy(out[1], in[1]);
  db_assign(w->shift, db_add(db_mul(w->shift, 0.5), in[2]));
  out[2] = w->shift;
  out[3] = in[0];
  if (db_realize(out[1])) return -EIO; /* with the weights from before the step */
  return db_train_step(w->params, w->adam, out[0]);
}
static void parallel_inputs(struct world *w, int i, db_tensor **in) {
  float x[7 * 6];
  int32_t y[7];
  for (int k = 0; k < 42; k++) x[k] = (float)((k * 7 + i * 5) % 11) / 11;
  for (int k = 0; k < 7; k++) y[k] = (k + i) % 3;
  in[0] = db_shard(db_from(x, DB_F32, w->dev[0], 7, 6), w->dev, 2, 0);
  in[1] = db_shard(db_from(y, DB_I32, w->dev[0], 7), w->dev, 2, 0);
  in[2] = db_shard(db_from(((float[]){(float)i, 0.5f, -1}), DB_F32, w->dev[0], 3), w->dev, 2, DB_REPLICATE);
}

/* Kernels of the user's, of one program: two launches that are equal and one that is not. */
static db_tensor *saxpy(struct world *w, float a, db_tensor *x, db_tensor *y) {
  const uint32_t *b = w->machine->block;
  return db_custom(w->saxpy, DB_LIST(1), DB_LIST(b[0], b[1], b[2]), NULL, DB_INOUT(y), DB_IN(x), DB_IN(a), DB_IN(4));
}
static int custom(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  out[0] = saxpy(w, 0.5f, db_mul(in[0], 2), w->shift);
  db_assign(w->shift, saxpy(w, 0.5f, out[0], w->shift));
  out[1] = saxpy(w, -3, w->shift, in[0]);
  return 0;
}
static void custom_inputs(struct world *w, int i, db_tensor **in) {
  in[0] = db_from(((float[]){(float)i, 1, -(float)i, 8}), DB_F32, w->dev[0], 4);
}

static const struct scenario scenarios[] = {
    {"train", 1, 2, 1, train, train_inputs},         {"draws", 1, 0, 2, draws, no_inputs},
    {"various", 1, 2, 5, various, various_inputs},   {"across", 2, 1, 2, across, across_inputs},
    {"stages", 1, 1, 1, stages, across_inputs},      {"custom", 1, 1, 2, custom, custom_inputs},
    {"parallel", 2, 3, 4, parallel, parallel_inputs}};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* Both processes have the tensors for the inputs; the one that captures also has the model. */
static void world_new(struct world *w, const struct scenario *s, const char *device, bool whole) {
  *w = (struct world){0};
  for (unsigned i = 0; i < s->ndevices; i++) {
    char name[64];
    snprintf(name, sizeof name, i ? "%s:%u" : "%s", device, i);
    w->dev[i] = open_device(name);
  }
  float data[32];
  for (int i = 0; i < 32; i++) data[i] = (float)i;
  w->data = db_from(data, DB_F32, w->dev[0], 32);
  if (!whole) return;
  w->shift = db_from(((float[]){1, 2, 3, 4}), DB_F32, w->dev[0], 4);
  if (s->fn == parallel) {
    db_release(w->shift);
    w->shift = db_from(data, DB_F32, w->dev[0], 5, 3);
    OK(db_reshard(w->shift, w->dev, 2, 0));
    w->group = db_group(w->dev, 2);
  }
  w->params = db_params_new(w->group ? w->group : w->dev[0], 3);
  w->in = db_linear_new(w->params, "in", 6, 16, true);
  w->out = db_linear_new(w->params, "out", 16, 3, true);
  unsigned n;
  db_tensor *const *weights = db_params_trained(w->params, &n);
  w->adam = db_adam(weights, n, .lr = 0.05);
  if (s->fn != custom) return;
  size_t size = 0;
  for (w->machine = machines; strcmp(w->machine->name, device) != 0;) w->machine++;
  void *image = saxpy_image(w->machine, &size);
  if (!image) skip();
  w->saxpy = saxpy_load(w->machine, w->dev[0], image, size);
  free(image);
  assert_non_null(w->saxpy);
}
static void world_free(struct world *w) {
  db_program_release(w->saxpy);
  db_release(w->data);
  db_release(w->shift);
  db_optim_free(w->adam);
  db_params_free(w->params);
  if (w->group) db_close(w->group);
  for (unsigned i = 0; i < 2; i++)
    if (w->dev[i]) db_close(w->dev[i]);
}

/* The number of compilations and schedules so far. */
static uint64_t compiled(void) {
  struct db_cache_counters c;
  db_cache_counters(&c);
  return (uint64_t)llvm_calls + c.made + c.kernels;
}

/* Runs calls `from` to `to` and stores the elements of all outputs. Returns 0 or the call's error. */
static uint64_t compiled_by_calls; /* by the last run_calls */
static int run_calls(struct world *w, const struct scenario *s, db_jit *j, int from, int to, float *out, unsigned *n) {
  int err = 0;
  compiled_by_calls = 0;
  for (int i = from; i < to && !err; i++) {
    DB_SCOPED;
    db_tensor *in[4], *t[8];
    s->inputs(w, i, in);
    if (s->fn == parallel) err = db_realize_all(in, s->nin);
    uint64_t before = compiled();
    if (!err) err = db_jit_call(j, in, t);
    compiled_by_calls += compiled() - before;
    for (unsigned k = 0; k < s->nout && !err; k++) {
      size_t count = (size_t)db_numel(t[k]);
      if (*n + count > MOST_RESULTS) err = -E2BIG;
      if (!err) err = db_read(t[k], out + *n, count * 4);
      *n += (unsigned)count;
    }
  }
  return err;
}

static void file_path(char *path, size_t cap, const char *what) {
  snprintf(path, cap, KERNELS_DIR "/../jit-%s-%d.dbj", what, (int)getpid());
}

/* ---- the other process: suite --replay SCENARIO DEVICE FILE; it prints the results ---- */

static int say(const char *what) {
  fprintf(stderr, "%s: %s\n", what, db_error());
  return 1;
}

static int other_process(char **argv) {
  const struct scenario *s = scenarios;
  while (strcmp(s->name, argv[0]) != 0) s++;
  struct world w;
  float out[MOST_RESULTS];
  unsigned n = 0, nin, nout;
  db_jit *j = db_jit_load(argv[2], NULL, 0);
  if (!j) return say("load");
  db_jit_counts(j, &nin, &nout);
  if (nin != s->nin || nout != s->nout) return say("other counts");
  world_new(&w, s, argv[1], false);
  if (run_calls(&w, s, j, FIRST, LAST - 2, out, &n)) return say("call");
  uint64_t by_calls = compiled_by_calls;
  /* it also continues after saving it here */
  char again[512];
  snprintf(again, sizeof again, "%s.again", argv[2]);
  struct db_named named[2] = {{"in.weight", NULL}, {"shift", NULL}};
  unsigned count = s->fn == parallel ? 2 : s->fn == train;
  for (unsigned i = 0; i < count; i++) named[i].tensor = db_jit_param(j, named[i].name);
  if (db_jit_save(j, again, named, count)) return say("save again");
  db_jit_free(j);
  if (!(j = db_jit_load(again, w.dev, s->ndevices))) return say("load again");
  unlink(again);
  if (run_calls(&w, s, j, LAST - 2, LAST, out, &n)) return say("call again");
  if (j->program.ngrids != (s->fn == various && strcmp(argv[1], "CPU") != 0)) return say("other grids that vary");
  by_calls += compiled_by_calls;
  if (count) {
    if (db_read(db_jit_param(j, "in.weight"), out + n, 96 * 4)) return say("weights");
    n += 96;
  }
  int axis;
  if (count == 2 && (db_sharding(db_jit_param(j, "in.weight"), &axis) != 2 || axis != DB_REPLICATE ||
                     db_sharding(db_jit_param(j, "shift"), &axis) != 2 || axis != 0))
    return say("other sharding");
  db_jit_free(j);
  world_free(&w);
  if (by_calls || (compiled() && s->fn != parallel)) { /* parallel's inputs are made by db_shard, which compiles */
    fprintf(stderr, "%d calls of LLVM, schedules and kernels: %llu, %llu of them by the program's calls\n", llvm_calls,
            (unsigned long long)compiled(), (unsigned long long)by_calls);
    return 1;
  }
  if (db_shutdown()) return say("shutdown");
  return fwrite(out, sizeof *out, n, stdout) == n ? 0 : 1;
}

/* Gets its results from a process without a kernel cache and without an assembler. */
static unsigned replay_elsewhere(const struct scenario *s, const char *device, const char *path, float *out) {
  int pipe_[2];
  assert_int_equal(pipe(pipe_), 0);
  pid_t pid = fork();
  if (!pid) {
    dup2(pipe_[1], 1);
    close(pipe_[0]);
    setenv("CACHE", "0", 1);
    if (s->fn != parallel) setenv("PTXAS", "/nonexistent", 1); /* db_shard may compile copies of parts */
    unsetenv("XDG_CACHE_HOME");
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) {
      self[length] = 0;
      execl(self, self, "--replay", s->name, device, path, (char *)NULL);
    }
    _exit(127);
  }
  close(pipe_[1]);
  size_t n = 0;
  for (ssize_t got; (got = read(pipe_[0], (char *)out + n, MOST_RESULTS * sizeof *out - n)) > 0;) n += (size_t)got;
  close(pipe_[0]);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("%s on %s: status 0x%x", s->name, device, (unsigned)status);
  return (unsigned)(n / sizeof *out);
}

/* Captures, and saves after FIRST calls. */
static db_jit *capture(struct world *w, const struct scenario *s, const char *path) {
  float out[MOST_RESULTS];
  unsigned n = 0;
  db_jit *j = db_jit_new(s->fn, w, s->nin, s->nout);
  assert_non_null(j);
  OK(run_calls(w, s, j, 0, FIRST, out, &n));
  struct db_named named[16];
  unsigned count = 0;
  for (; (s->fn == train || s->fn == parallel) && count < db_params_count(w->params); count++)
    named[count] = (struct db_named){db_params_get(w->params, count)->name, db_params_get(w->params, count)->tensor};
  if (s->fn == parallel) named[count++] = (struct db_named){"shift", w->shift};
  OK(db_jit_save(j, path, named, count));
  return j;
}

static void another_process_is_unaffected(void **state) {
  FOR_DEVICES for (unsigned k = 0; k < SCENARIOS; k++) {
    const struct scenario *s = &scenarios[k];
    char path[512];
    file_path(path, sizeof path, s->name);
    struct world w;
    world_new(&w, s, DEVICE_NAME, true);
    db_jit *j = capture(&w, s, path);
    if (s->fn == stages) assert_true(j->program.unplanned > j->program.peak);
    float want[MOST_RESULTS], got[MOST_RESULTS];
    unsigned n = 0;
    OK(run_calls(&w, s, j, FIRST, LAST, want, &n));
    if (s->fn == train || s->fn == parallel) {
      must_read(db_params_find(w.params, "in.weight")->tensor, want + n, 96 * 4);
      n += 96;
    }
    assert_int_equal(replay_elsewhere(s, DEVICE_NAME, path, got), n);
    for (unsigned i = 0; i < n; i++)
      if (memcmp(&got[i], &want[i], 4) != 0)
        fail_msg("%s on %s: result %u is %g, not %g", s->name, DEVICE_NAME, i, (double)got[i], (double)want[i]);
    db_jit_free(j);
    world_free(&w);
    unlink(path);
  }
}

/* ---- invalid files ---- */

struct bytes {
  uint8_t *p;
  size_t n;
};

static struct bytes contents(const char *path) {
  struct bytes b;
  void *p;
  char err[256];
  if (read_file(path, &p, &b.n, err, sizeof err)) fail_msg("%s", err);
  b.p = p;
  return b;
}
static void put(const char *path, const void *p, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, p, n), n);
  close(fd);
}
static void fix_sum(struct bytes b) {
  uint32_t crc = (uint32_t)crc32_z(0, b.p, b.n - 4);
  for (unsigned i = 0; i < 4; i++) b.p[b.n - 4 + i] = (uint8_t)(crc >> 8 * i);
}

static void refused(const char *path, const char *says) {
  db_jit *j = db_jit_load(path, NULL, 0);
  if (j) fail_msg("it was loaded, not refused with \"%s\"", says);
  assert_contains(db_error(), says);
  assert_contains(db_error(), path);
}

/* Writes the file with a modified program text and a correct checksum. */
static void rewrite(const char *path, struct bytes file, const char *from, const char *to) {
  struct safetensors s;
  char err[256], *text = NULL;
  if (safetensors_parse(file.p, file.n, &s, err, sizeof err)) fail_msg("%s", err);
  for (size_t i = 0; i < s.n; i++) {
    struct safetensor *t = &s.tensor[i];
    if (strcmp(t->name, ".program") != 0) continue;
    const char *place = memmem(t->data, t->bytes, from, strlen(from));
    if (!place) fail_msg("\"%s\" is not in the program", from);
    size_t before = (size_t)(place - (const char *)t->data), n = t->bytes - strlen(from) + strlen(to);
    text = malloc(n + 1);
    memcpy(text, t->data, before);
    memcpy(text + before, to, strlen(to));
    memcpy(text + before + strlen(to), place + strlen(from), t->bytes - before - strlen(from));
    t->data = text, t->bytes = n, t->dim[0] = (int64_t)n;
  }
  size_t length;
  char *head = safetensors_header(&s, &length);
  OK(safetensors_write(path, &s, head, length));
  free(head);
  free(text);
  safetensors_free(&s);
  struct bytes b = contents(path);
  fix_sum(b);
  put(path, b.p, b.n);
  free(b.p);
}

/* The error message for a program text with one wrong fact. */
struct lie {
  const char *from, *to, *says;
};
static const struct lie lies[] = {
    {"\"version\":3,", "\"version\":1,", "program: not supported: version 1"},
    {"captured program", "captured kitten", "'doorbell captured kitten'"},
    {"\"stream\":", "\"river\":", "program: stream is not a number"},
    {"\"isa\":\"", "\"isa\":\"other", "when the program was saved"},
    {"\"features\":\"", "\"features\":\"magic ", "a processor with magic, which this one does not have"},
    {"\"name\":\"CPU\"", "\"name\":\"EMU+AMD:gfx1\"", "device 0, EMU+AMD:gfx1"},
    {"\"name\":\"CPU\"", "\"name\":\"C\\u0001U\"", "devices[0]: name is not a text"},
    {"\"min\":1", "\"min\":33", "variables[0]: min is not a number from 0 to 32"},
    {"\"name\":\"n\"", "\"name\":\"n.\"", "'n.' is not the name of a variable"},
    {"\"shape\":[[[1,0]]]", "\"shape\":[[[1,1]]]", "inputs[0]: a size uses variable 1, but there are only 1"},
    {"\"shape\":[[[1,0]]]", "\"shape\":[[[-1,0]]]", "inputs[0]: a size may be negative"},
    {"\"shape\":[[[1,0]]]", "\"shape\":[[[1,0,0,0,0,0,0,0]]]", "inputs[0]: a term of a size is not a product"},
    {"\"shape\":[[[1,0]]]", "\"shape\":[[[1,0]],281474976710656,281474976710656]", "too many elements"},
    {"\"dtype\":\"f32\"", "\"dtype\":\"f33\"", "not supported: elements of type 'f33'"},
    {"\"device\":0", "\"device\":1", "device is not a number from 0 to 0"},
    {"\"kind\":\"input\"", "\"kind\":\"output\"", "'output' is not a kind of memory"},
    {"\"input\":0", "\"input\":2", "input is not a number from 0 to 1"},
    {"\"kind\":\"input\",\"device\":0,\"bytes\":128", "\"kind\":\"input\",\"device\":0,\"bytes\":129",
     "it is not on the device of input 0, or is larger"},
    {"\"contents\":\".memory.", "\"contents\":\".memery.", "the file has no tensor '.memery."},
    {"\"memory\":", "\"memory\":4", "is not a number from 0 to"},
    {"\"first\":0", "\"first\":1", "bytes from offset 4 are not within memory"},
    {"\"image\":\".kernel.0\"", "\"image\":\".kernel.9\"", "kernels[0]: the file has no code object '.kernel.9'"},
    {"\"grid\":[", "\"grid\":[0,", "grid does not consist of three numbers"},
    {"\"buffer\":true", "\"buffer\":false", "is a number"},
    {"\"buffer\":true", "\"buffer\":1", "buffer is neither true nor false"},
    {"\"kernel\":0", "\"kernel\":99", "commands["},
    {"\"arguments\":[", "\"arguments\":[[99,0,4,0],", "commands[0]: argument 0 uses memory 99, but"},
    {"\"arguments\":[[0,0,", "\"arguments\":[[0,1,", "bytes from offset 1, which are not within memory 0"},
    {"\"arguments\":[[", "\"arguments\":[[0,0,0,0],[", "parameters, but 4 arguments"},
    {"\"variables\":[0]", "\"variables\":[1]", "variable 1 does not exist; there are 1"},
    {"\"commands\":[", "\"commands\":[{},", "commands[0]: device is not a number"},
    {"\"commands\":", "\"comands\":", "commands is not a list"},
    {"}]", "}", "not JSON"},
};

#define PARTS "[{\"device\":0,\"size\":3},{\"device\":1,\"size\":4}]"
static const struct lie lies_of_groups[] = {
    {"\"axis\":0", "\"axis\":2", "inputs[0]: axis is neither null nor a number less than 2"},
    {"\"axis\":0", "\"oxis\":0", "inputs[0]: axis is neither"},
    {"\"size\":3", "\"size\":4", "inputs[0]: its parts have 8 elements along axis 0, which has 7"},
    {"\"size\":3", "\"size\":-3", "inputs[0]: size is not a number"},
    {"\"size\":3", "\"zise\":3", "inputs[0]: size is not a number"},
    {"\"parts\":" PARTS, "\"parts\":[]", "inputs[0]: parts is not a list of 1 to 2"},
    {"\"parts\":" PARTS, "\"parts\":7", "inputs[0]: parts is not a list of 1 to 2"},
    {"\"parts\":[{", "\"parts\":[{},{},{", "inputs[0]: parts is not a list of 1 to 2"},
    {"\"parts\":[{\"device\":0,", "\"parts\":[{\"device\":1,", "inputs[0]: two parts are on device 1"},
    {"\"device\":1,\"size\":4", "\"device\":2,\"size\":4", "inputs[0]: device is not a number from 0 to 1"},
    {"\"variables\":[],\"inputs\":[{\"dtype\":\"f32\",\"shape\":[7,",
     "\"variables\":[{\"name\":\"n\",\"min\":7,\"max\":7}],\"inputs\":[{\"dtype\":\"f32\",\"shape\":[[[1,0]],",
     "inputs[0]: it is split along axis 0, which has a symbolic size"},
    {"\"part\":0", "\"part\":2", "part is not a number from 0 to 1"},
    {"\"part\":0", "\"part\":1", "it is not on the device of input"},
    {"\"parts\":[{\"device\":0,\"memory\":", "\"parts\":[{\"device\":0,\"memory\":9999",
     "outputs[0].parts[0]: memory is not a number from 0 to"},
    {"\"size\":3,\"memory\":", "\"size\":3,\"memery\":", "outputs[1].parts[0]: it has elements but no memory"},
    {"\"size\":3,\"memory\":", "\"size\":3,\"part\":", "outputs[1].parts[0]: it has elements but no memory"},
    {"\"first\":0", "\"first\":9", "outputs[0].parts[0]: 4 bytes from offset 36 are not within memory"},
};

/* Modifies the file's text in each of the given ways; it must be rejected with the given message. */
static void tell(const char *path, const struct lie *lie, size_t n) {
  char other[540];
  struct bytes b = contents(path);
  snprintf(other, sizeof other, "%s.lie", path);
  for (size_t i = 0; i < n; i++) {
    rewrite(other, b, lie[i].from, lie[i].to);
    db_jit *j = db_jit_load(other, NULL, 0);
    if (j) fail_msg("%s -> %s was believed", lie[i].from, lie[i].to);
    if (!strstr(db_error(), lie[i].says) || !strstr(db_error(), other))
      fail_msg("%s -> %s: \"%s\" does not contain \"%s\"", lie[i].from, lie[i].to, db_error(), lie[i].says);
  }
  rewrite(other, b, "\"version\":3,", "\"version\": 3,"); /* a rewritten file that is correct is accepted */
  db_jit *j = db_jit_load(other, NULL, 0);
  if (!j) fail_msg("%s", db_error());
  db_jit_free(j);
  free(b.p);
  unlink(other);
}

/* The command's output about the file. */
static void show(const char *path, char *shown, size_t cap) {
  char line[600];
  snprintf(line, sizeof line, "%s jit %s", DOORBELL, path);
  FILE *f = popen(line, "r");
  assert_non_null(f);
  shown[fread(shown, 1, cap - 1, f)] = 0;
  assert_int_equal(pclose(f), 0);
}

static void false_fields_are_refused(void **state) {
  char path[512], shown[8192];
  struct world w;
  const struct scenario *s = &scenarios[2];
  file_path(path, sizeof path, "lies");
  world_new(&w, s, "CPU", true);
  db_jit_free(capture(&w, s, path));
  show(path, shown, sizeof shown);
  assert_contains(shown, "variable n: 1 to 32\n");
  assert_contains(shown, "input 0: f32 [n] on CPU\n");
  assert_contains(shown, "output 4: f32 [0, 3] on CPU\n");
  assert_contains(shown, "128 bytes  input 0\n");
  assert_contains(shown, "found elsewhere, assigned\n");
  assert_contains(shown, "with n\n");
  tell(path, lies, sizeof lies / sizeof *lies);
  unlink(path);
  world_free(&w);
}

static void groups_in_files(void **state) {
  char path[512], shown[1 << 16];
  struct world w;
  const struct scenario *s = &scenarios[SCENARIOS - 1];
  file_path(path, sizeof path, "groups");
  world_new(&w, s, "CPU", true);
  db_jit *j = capture(&w, s, path);
  db_tensor *unused = db_shard(w.data, w.dev, 2, 0);
  assert_true(db_jit_save(j, path, &(struct db_named){"x", unused}, 1) < 0);
  assert_contains(db_error(), "the captured function does not use parameter 'x'");
  db_release(unused);
  db_jit_free(j);
  show(path, shown, sizeof shown);
  assert_contains(shown, "input 0: f32 [7, 6] on CPU (3), CPU:1 (4), split along axis 0\n");
  assert_contains(shown, "input 2: f32 [3] on CPU, CPU:1, all of it on each\n");
  assert_contains(shown, "output 1: f32 [7, 3] on CPU (3), CPU:1 (4), split along axis 0\n");
  assert_contains(shown, "input 0, part 1\n");
  struct bytes b = contents(path); /* other readers find the contents of each device once */
  struct safetensors found;
  char err[256];
  unsigned whole = 0;
  if (safetensors_parse(b.p, b.n, &found, err, sizeof err)) fail_msg("%s", err);
  for (size_t i = 0; i < found.n; i++)
    if (*found.tensor[i].name != '.') {
      whole++;
      const db_tensor *t = db_params_find(w.params, found.tensor[i].name)->tensor;
      assert_int_equal(found.tensor[i].rank, t->rank);
      assert_memory_equal(found.tensor[i].dim, t->dim, t->rank * sizeof *t->dim);
    }
  assert_int_equal(whole, 4);
  safetensors_free(&found);
  free(b.p);
  tell(path, lies_of_groups, sizeof lies_of_groups / sizeof *lies_of_groups);

  assert_null(db_jit_load(path, (db_device *[]){w.dev[0], w.dev[0]}, 2));
  assert_contains(db_error(), "the same");
  assert_contains(db_error(), path);
  j = db_jit_load(path, (db_device *[]){w.dev[1], w.dev[0]}, 2);
  if (!j) fail_msg("%s", db_error());
  {
    DB_SCOPED;
    db_tensor *in[3], *t[4], *first = db_jit_param(j, "shift");
    db_device *turned[2] = {w.dev[1], w.dev[0]};
    s->inputs(&w, 1, in);
    assert_int_equal(db_jit_call(j, in, t), -EINVAL);
    assert_contains(db_error(), "input 0 is on 2 devices, CPU to CPU:1, but was captured on 2 devices, CPU:1 to CPU");
    for (int i = 0; i < 3; i++) in[i] = db_shard(in[i], turned, 2, i < 2 ? 0 : DB_REPLICATE);
    db_tensor *other = in[0];
    in[0] = db_shard(other, turned, 2, 1);
    assert_int_equal(db_jit_call(j, in, t), -EINVAL);
    assert_contains(db_error(), "input 0 is split along axis 1 into other parts than at capture, along axis 0");
    in[0] = db_to(other, w.dev[0]);
    assert_int_equal(db_jit_call(j, in, t), -EINVAL);
    assert_contains(db_error(), "input 0 is on CPU, but was captured on 2 devices");
    in[0] = other;
    db_assign(first, 4.0); /* assigned from outside: the program uses the new value */
    OK(db_realize(first));
    OK(db_jit_call(j, in, t));
    EXPECT_FLOATS(t[2], 3, 2.5, 1, 3, 2.5, 1, 3, 2.5, 1, 3, 2.5, 1, 3, 2.5, 1);
    EXPECT_FLOATS(first, 3, 2.5, 1, 3, 2.5, 1, 3, 2.5, 1, 3, 2.5, 1, 3, 2.5, 1);
    assert_ptr_equal(db_device_of(db_part(t[1], 0)), w.dev[1]);
    assert_int_equal(db_dim(db_part(t[1], 1), 0), 4);
  }
  db_jit_free(j);
  unlink(path);
  world_free(&w);
}

static const struct lie lies_of_sizes[] = {
    {"\"taken\":1", "\"taken\":0", "outputs[2]: a size uses n, which is not a variable of the program"},
    {"\"shape\":[1,3],\"axis\":0,\"parts\":[{\"device\":0,\"size\":0},",
     "\"shape\":[1,3],\"axis\":0,\"parts\":[{\"device\":0,\"size\":1},",
     "inputs[0]: its parts have 2 elements along axis 0, which has 1"},
    {"\"shape\":[1,3],\"axis\":0,\"parts\":[{\"device\":0,\"size\":0},{\"device\":1,\"size\":1,",
     "\"shape\":[1,[[0,0]]],\"axis\":0,\"parts\":[{\"device\":0,\"size\":0},{\"device\":1,\"size\":1,",
     "outputs[0]: it is on several devices and has a symbolic size"},
};

/* All rows are on one of two devices; also sizes that change. */
static int one_row(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct world *w = ctx;
  db_assign(w->shift, db_add(w->shift, in[0]));
  out[0] = db_mul(in[0], 2);
  out[1] = w->shift;
  out[2] = db_mul(in[1], 3);
  return 0;
}
static void parts_without_elements(void **state) {
  char path[512];
  struct world w;
  file_path(path, sizeof path, "row");
  world_new(&w, &scenarios[SCENARIOS - 1], "CPU", true);
  db_release(w.shift);
  w.shift = db_from(((float[]){1, 2, 3}), DB_F32, w.dev[0], 1, 3);
  OK(db_reshard(w.shift, w.dev, 2, 0));
  db_jit *j = db_jit_new(one_row, &w, 2, 3);
  for (int i = 0; i < 6; i++) {
    DB_SCOPED;
    db_tensor *in[2], *t[3];
    if (i == 4) {
      OK(db_jit_save(j, path, &(struct db_named){"row", w.shift}, 1));
      db_jit_free(j);
      tell(path, lies_of_sizes, sizeof lies_of_sizes / sizeof *lies_of_sizes);
      j = db_jit_load(path, NULL, 0);
      if (!j) fail_msg("%s", db_error());
    }
    in[0] = db_shard(db_from(((float[]){1, 10, 100}), DB_F32, w.dev[0], 1, 3), w.dev, 2, 0);
    in[1] = db_shrink(w.data, 0, db_bind("n", 1, 32, 1 + i));
    OK(db_jit_call(j, in, t));
    EXPECT_FLOATS(t[0], 2, 20, 200);
    EXPECT_FLOATS(t[1], (float)(2 + i), (float)(12 + 10 * i), (float)(103 + 100 * i));
    float got[32];
    OK(db_read(t[2], got, (size_t)(1 + i) * 4));
    for (int k = 0; k <= i; k++) assert_float_equal(got[k], 3 * k, 0);
  }
  EXPECT_FLOATS(db_jit_param(j, "row"), 7, 62, 603);
  db_jit_free(j);
  unlink(path);
  world_free(&w);
}

static const struct lie lies_of_launches[] = {
    {"\"launch\":[", "\"launch\":[[1,0],", "launch is not a list of at most 4 elements"},
    {"\"launch\":[[1,0],", "\"launch\":[", "launch has 3 arguments for 4 parameters"},
    {"\"launch\":[[1,0],", "\"launch\":[[1,9],", "argument 0 of kernel saxpy is buffer 9, but there are only"},
    {"\"launch\":[[1,0],", "\"launch\":[[0,0],", "argument 0 of the launch does not have the kind of its parameter"},
    {"\"launch\":[[1,0],", "\"launch\":[[1,0,0],", "argument 0 of the launch does not consist of a kind and a number"},
    {"\"local\":false", "\"local\":true", "argument 0 of the launch does not have the kind of its parameter"},
    {"\"entry\":\"saxpy\"", "\"entry\":\"sexpy\"", "sexpy"},
    {"\"entry\":\"saxpy\"", "\"entry\":7", "entry is not a text"},
    {"\"extents\":[null,null,null],\"entry\"",
     "\"extents\":[{\"times\":1,\"per\":1,\"terms\":[[1,0]]},null,null],\"entry\"",
     "a grid's size depends on a variable that the kernel does not have"},
};
static const struct lie other_parameters = {"\"size\":4,", "\"size\":8,", "has other parameters than its launch"};

/* Launches of one program share its image; the object must have the launch's parameters. */
static void kernels_of_the_user(void **state) {
  FOR_DEVICES {
    char path[512], shown[8192];
    struct world w;
    const struct scenario *s = &scenarios[SCENARIOS - 2];
    file_path(path, sizeof path, "launches");
    world_new(&w, s, DEVICE_NAME, true);
    db_jit_free(capture(&w, s, path));
    show(path, shown, sizeof shown);
    assert_contains(shown, "saxpy");
    struct bytes b = contents(path);
    struct jit_file f;
    char err[256];
    unsigned launches = 0, images = 0;
    OK(jit_file_parse(b.p, b.n, &f, err, sizeof err));
    for (size_t i = 0; i < f.nkernels; i++) {
      launches += f.kernels[i].arguments != NULL;
      images += f.kernels[i].arguments && jit_image_number(&f, i) == i;
    }
    assert_int_equal(launches, 2);
    assert_int_equal(images, 1);
    jit_file_free(&f);
    free(b.p);
    tell(path, lies_of_launches, sizeof lies_of_launches / sizeof *lies_of_launches);
    if (w.machine->file) tell(path, &other_parameters, 1);
    unlink(path);
    world_free(&w);
  }
}

static void cut_and_changed_files(void **state) {
  char path[512], other[540];
  struct world w;
  const struct scenario *s = &scenarios[2];
  file_path(path, sizeof path, "cut");
  snprintf(other, sizeof other, "%s.cut", path);
  world_new(&w, s, "CPU", true);
  db_jit_free(capture(&w, s, path));
  struct bytes b = contents(path);
  for (size_t n = 0; n < b.n; n += n < 600 || n + 600 > b.n ? 13 : 251) {
    put(other, b.p, n);
    refused(other, "");
  }
  for (size_t at = 0; at < b.n; at += at < 600 || at + 600 > b.n ? 7 : 251) {
    b.p[at] ^= (uint8_t)(1 << at % 8);
    put(other, b.p, b.n);
    refused(other, "");
    b.p[at] ^= (uint8_t)(1 << at % 8);
  }
  b.p[b.n / 2] ^= 1;
  put(other, b.p, b.n);
  refused(other, "the file is damaged");
  b.p[b.n / 2] ^= 1;
  refused("/nonexistent/file.dbj", "No such file");
  refused("/", "not a regular file");
  OK(db_save(strcat(other, ".safetensors"), &(struct db_named){"x", w.data}, 1));
  refused(other, "not a captured program");
  unlink(other);
  other[strlen(other) - strlen(".safetensors")] = 0;
  unlink(other);
  unlink(path);
  free(b.p);
  world_free(&w);
}

static void save_fails(db_jit *j, const char *path, const struct db_named *params, unsigned n, const char *says) {
  assert_true(db_jit_save(j, path, params, n) < 0);
  assert_contains(db_error(), says);
}

static void mistakes(void **state) {
  char path[512];
  struct world w;
  const struct scenario *s = &scenarios[2];
  file_path(path, sizeof path, "mistakes");
  world_new(&w, s, "CPU", true);
  db_jit *j = db_jit_new(s->fn, &w, s->nin, s->nout);
  float out[MOST_RESULTS];
  unsigned n = 0;
  save_fails(j, path, NULL, 0, "nothing is captured");
  OK(run_calls(&w, s, j, 0, 1, out, &n));
  save_fails(j, path, NULL, 0, "nothing is captured");
  OK(run_calls(&w, s, j, 1, 3, out, &n));
  save_fails(NULL, path, NULL, 0, "NULL");
  save_fails(j, NULL, NULL, 0, "NULL");
  save_fails(j, path, NULL, 1, "NULL");
  save_fails(j, "/nonexistent/x", NULL, 0, "No such file");
  struct db_named named[2] = {{"a", w.shift}, {"a", w.shift}};
  save_fails(j, path, named, 2, "two parameters have the name 'a'");
  named[1] = (struct db_named){".hidden", w.shift};
  save_fails(j, path, named, 2, "'.hidden' is not a name");
  named[1] = (struct db_named){"b", db_params_find(w.params, "in.weight")->tensor};
  save_fails(j, path, named, 2, "parameter 'b'");
  named[1] = (struct db_named){"b", NULL};
  save_fails(j, path, named, 2, "parameter 'b'");
  OK(db_jit_save(j, path, named, 1));
  assert_null(db_jit_param(j, "a")); /* not loaded */
  db_jit_free(j);

  db_device *two[2] = {w.dev[0], w.dev[0]}, *none[1] = {NULL}, *amd[1] = {open_device(EMULATED)};
  assert_null(db_jit_load(path, two, 2));
  assert_contains(db_error(), "the program needs 1 devices, but 2 are given");
  assert_null(db_jit_load(path, none, 1));
  assert_contains(db_error(), "it is NULL");
  assert_null(db_jit_load(path, amd, 1));
  assert_contains(db_error(), "has gfx1100");
  assert_null(db_jit_load(NULL, NULL, 0));
  db_close(amd[0]);
  j = db_jit_load(path, w.dev, 1);
  if (!j) fail_msg("%s", db_error());
  assert_null(db_jit_param(j, "b"));
  assert_contains(db_error(), "no parameter 'b'");
  assert_int_equal(db_jit_reset(j), -EINVAL);
  {
    DB_SCOPED; /* inputs are checked like those of a program captured here, from the first call on */
    db_tensor *in[2] = {db_ones(DB_F32, w.dev[0], 3), db_ones(DB_F32, w.dev[0], 4)}, *t[5];
    assert_int_equal(db_jit_call(j, in, t), -EINVAL);
    assert_contains(db_error(), "input 0 has shape [3]");
    in[0] = db_shrink(w.data, 0, db_bind("n", 1, 32, 7)), in[1] = db_ones(DB_I32, w.dev[0], 4);
    assert_int_equal(db_jit_call(j, in, t), -EINVAL);
    assert_contains(db_error(), "input 1 has type i32");
    in[1] = db_full(10, DB_F32, w.dev[0], 4);
    OK(db_assign(db_jit_param(j, "a"), 1.0) ? 0 : -1); /* assigned from outside: the program uses the new value */
    OK(db_realize(db_jit_param(j, "a")));
    OK(db_jit_call(j, in, t));
    EXPECT_FLOATS(t[2], 11, 11, 11, 11);
    EXPECT_FLOATS(db_jit_param(j, "a"), 11, 11, 11, 11);
  }
  db_jit_free(j);
  unlink(path);
  world_free(&w);
}

/* Writes the fuzzer's seeds. */
static int write_seeds(const char *folder) {
  for (unsigned k = 0; k < SCENARIOS; k++) {
    char path[512];
    struct world w;
    snprintf(path, sizeof path, "%s/%s", folder, scenarios[k].name);
    world_new(&w, &scenarios[k], k ? EMULATED : "CPU", true);
    db_jit_free(capture(&w, &scenarios[k], path));
    world_free(&w);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && !strcmp(argv[1], "--replay")) return other_process(argv + 2);
  if (argc == 3 && !strcmp(argv[1], "--seeds")) return write_seeds(argv[2]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_process_is_unaffected),
      cmocka_unit_test(false_fields_are_refused),
      cmocka_unit_test(groups_in_files),
      cmocka_unit_test(parts_without_elements),
      cmocka_unit_test(kernels_of_the_user),
      cmocka_unit_test(cut_and_changed_files),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
