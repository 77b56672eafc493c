/* What the trainings share: options, devices, processes, steps, checkpoints and the progress bar.
 *
 * On several devices (DEV, DEV:1, ...) each device has all the weights and processes its share of every batch. Under
 * mpirun -n K every process trains on its share, with the mean of all gradients. */
#ifndef DOORBELL_EXAMPLES_TRAINING_H
#define DOORBELL_EXAMPLES_TRAINING_H
#include "frontend/nn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct training {
  const char *word[4]; /* arguments that are no options */
  unsigned nwords;
  const char *checkpoint; /* a .safetensors file, or NULL */
  bool full;              /* the published sizes */
  int64_t steps, batch;
  unsigned ndevices;
  int rank, size;     /* rank of this process, number of processes */
  db_device **device; /* devices of this process */
  db_device *all;     /* the device, or the group of devices */
  db_params *p;
  db_optim *optim;
  db_tensor *const *weights;
  unsigned nweights;
  db_tensor *(*loss)(void *net, db_tensor *x, db_tensor *target);
  void *net;
};

static inline int failed(void) { return fprintf(stderr, "%s\n", db_error()), 1; }
/* Memory, filled with zeros; the example ends if there is none. */
static inline void *allocate(size_t bytes) {
  // NOLINTNEXTLINE(clang-analyzer-optin.taint.TaintedAlloc): callers bound what they read
  void *p = calloc(bytes ? bytes : 1, 1);
  if (p) return p;
  fprintf(stderr, "out of memory\n");
  exit(1);
}

/* Joins the processes of mpirun. Returns an exit status. */
static inline int training_world(struct training *t) {
  t->rank = db_world_rank(), t->size = db_world_size();
  return t->size < 0 ? failed() : 0;
}
/* Opens n devices, DEV, DEV:1 and so on, and makes the tree of parameters. Returns an exit status. */
static inline int training_devices(struct training *t, unsigned n) {
  char name[256];
  t->device = allocate(n * sizeof(db_device *));
  for (; t->ndevices < n; t->ndevices++) {
    if (t->ndevices) snprintf(name, sizeof name, "%s:%u", db_device_name(t->device[0]), t->ndevices);
    if (!(t->device[t->ndevices] = db_open(t->ndevices ? name : NULL))) return failed();
  }
  t->all = n > 1 ? db_group(t->device, n) : db_device_retain(t->device[0]);
  t->p = t->all ? db_params_new(t->all, 1) : NULL;
  return t->p ? 0 : failed();
}

/* Reads options and opens DEV, DEV:1 and so on. Returns an exit status. */
static inline int training_open(struct training *t, int argc, char **argv, const char *usage) {
  int64_t devices = 1, *number;
  for (int i = 1; i < argc; i++) {
    number = !strcmp(argv[i], "--devices") ? &devices
             : !strcmp(argv[i], "--steps") ? &t->steps
             : !strcmp(argv[i], "--batch") ? &t->batch
                                           : NULL;
    bool known = true;
    if (!strcmp(argv[i], "--full"))
      t->full = true;
    else if (!strcmp(argv[i], "--checkpoint") && i + 1 < argc)
      t->checkpoint = argv[++i];
    else if (number && i + 1 < argc)
      known = (*number = atoll(argv[++i])) > 0 && *number <= INT32_MAX;
    else if ((known = argv[i][0] != '-' && t->nwords < 4))
      t->word[t->nwords++] = argv[i];
    if (!known)
      return fprintf(stderr,
                     "%s\nusage: %s [--steps N] [--batch N] [--devices N] [--checkpoint FILE.safetensors] [--full]\n",
                     argv[i], usage),
             2;
  }
  if (training_world(t)) return 1;
  if (devices > DB_GROUP_MAX || t->batch % (devices * t->size))
    return fprintf(stderr, "a batch of %lld cannot be shared by %d processes with %lld devices each\n",
                   (long long)t->batch, t->size, (long long)devices),
           2;
  return training_devices(t, (unsigned)devices);
}

/* Ends a setup: makes the optimizer of all parameters. */
static inline int training_begin(struct training *t, double weight_decay) {
  t->weights = db_params_trained(t->p, &t->nweights);
  t->optim = db_adamw(t->weights, t->nweights, .lr = 1e-3, .weight_decay = weight_decay);
  if (t->optim && !t->rank) printf("%lld parameters on %s\n", (long long)db_params_numel(t->p), db_device_name(t->all));
  return t->optim ? 0 : failed();
}

static inline void training_close(struct training *t) {
  db_optim_free(t->optim);
  db_params_free(t->p);
  db_close(t->all);
  for (unsigned i = 0; i < t->ndevices; i++) db_close(t->device[i]);
  free(t->device);
}

/* Rows of a batch, on the devices of this process: each has its share of them. */
static inline db_tensor *training_share(const struct training *t, db_tensor *rows) {
  return t->ndevices > 1 ? db_shard(rows, t->device, t->ndevices, 0) : rows;
}

/* One step. It is captured, so that everything happens on the devices. */
static inline int training_step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct training *t = ctx;
  db_tensor *loss = t->loss(t->net, in[0], in[1]);
  out[0] = db_world_all_reduce(DB_REDUCE_MEAN, loss);
  unsigned n = 0;
  db_tensor **also = allocate((db_params_count(t->p) + 1) * sizeof(db_tensor *));
  also[n++] = out[0];
  for (size_t i = 0; i < db_params_count(t->p); i++) /* running statistics */
    if (!db_params_get(t->p, i)->trained) also[n++] = db_params_get(t->p, i)->tensor;
  int err = db_backward(loss);
  if (!err) err = db_world_mean_grads(t->weights, t->nweights);
  if (!err) err = db_optim_step_with(t->optim, also, n);
  db_optim_zero_grad(t->optim);
  free(also);
  return err;
}

/* On a terminal, draws a progress bar; otherwise prints a line after the first step and after every tenth part of all
 * steps. */
static inline void show_progress(const struct training *t, const char *what, int64_t done, int64_t all,
                                 const char *text) {
  static const char bar[] = "##############################";
  if (t->rank) return;
  int filled = (int)(30 * done / all);
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r%s [%-30.*s] %lld/%lld %s%s", what, filled, bar, (long long)done, (long long)all, text,
            done == all ? "\n" : "");
  if (!isatty(STDERR_FILENO) && (done == 1 || done == all || done % (all / 10 ? all / 10 : 1) == 0))
    printf("%s %lld/%lld %s\n", what, (long long)done, (long long)all, text), fflush(stdout);
}

/* Trains from the checkpoint, if there is one. batch stores the rows `first` to `end` of the batch of a step. Saves a
 * checkpoint after every `every` steps and at the end. Returns an exit status. */
static inline int training_run(struct training *t, double lr, int64_t every,
                               void (*batch)(const struct training *t, int64_t step, int64_t first, int64_t end,
                                             db_tensor **x, db_tensor **target)) {
  db_jit *step = db_jit_new(training_step, t, 2, 1);
  struct db_checkpoint all = {.params = t->p, .optim = {t->optim}, .jit = {step}};
  char text[96];
  if (!step) return failed();
  if (t->checkpoint && !access(t->checkpoint, F_OK)) {
    if (db_checkpoint_load(t->checkpoint, &all)) return failed();
    if (!t->rank) printf("continuing after step %lld\n", (long long)all.step);
  }
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int64_t first = all.step; all.step < t->steps; all.step++) {
    DB_SCOPED;
    db_tensor *in[2], *loss;
    double v;
    batch(t, all.step, t->batch * t->rank / t->size, t->batch * (t->rank + 1) / t->size, &in[0], &in[1]);
    for (int k = 0; k < 2; k++) in[k] = training_share(t, in[k]);
    if (db_optim_set_lr(t->optim, db_lr_cosine(lr, lr / 10, t->steps, all.step)) || db_jit_call(step, in, &loss) ||
        db_item(loss, &v))
      return failed();
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
    snprintf(text, sizeof text, "loss %.3f, %.1f samples/s", v, (double)((all.step + 1 - first) * t->batch) / seconds);
    show_progress(t, "step", all.step + 1, t->steps, text);
    bool last = all.step + 1 == t->steps;
    if (!t->checkpoint || t->rank || (!last && (all.step + 1) % every)) continue;
    struct db_checkpoint saved = all;
    saved.step++;
    if (db_checkpoint_save(t->checkpoint, &saved)) return failed();
  }
  db_jit_free(step);
  return 0;
}
#endif
