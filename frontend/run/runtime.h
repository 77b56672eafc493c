/* The process-wide runtime that ties the graph, the compiler and the queue layer together: the environment, open
 * devices, memory, loaded programs. One lock guards all of it and the tensors. */
#ifndef DOORBELL_FRONTEND_RUN_RUNTIME_H
#define DOORBELL_FRONTEND_RUN_RUNTIME_H
#include "../doorbell.h"
#include "../../compiler/compiler.h"
#include "../../graph/bind.h"
#include "../../graph/schedule/schedule.h"
#include "../../graph/shard/shard.h"
#include "../../graph/uop.h"
#include "../../hcq/error.h"
#include <pthread.h>

_Static_assert((int)DB_BOOL == DT_BOOL && (int)DB_U8 == DT_U8 && (int)DB_I64 == DT_I64 && (int)DB_F64 == DT_F64,
               "public and graph element types have one numbering");

/* ---- env.c: the environment, read once ---- */
struct env {
  int debug;
  bool noopt, spec, cache, jit;
  bool any_order;   /* sums of floats need not be in the same order in every run */
  bool tf32;        /* products of f32 may be computed in tf32 */
  bool launched;    /* started as one of several processes */
  bool profile;     /* write a trace or a record */
  bool code;        /* the record has how kernels are compiled */
  bool rewrites;    /* and each rewrite */
  const char *plan; /* plans given by hand, or NULL */
  bool *plan_marks; /* one for each line of plan: set if a kernel was compiled that the line names */
  int beam;         /* width of the search; 0: no search, but known plans are used; -1: neither */
};
/* Returns 0, or -EINVAL with a message that names the variable and its value. */
int env_get(const struct env **out);

/* ---- machine.c ---- */
struct schedule_machine machine_of_target(const struct target *t, bool any_order, bool tf32);

/* ---- runtime.c: device slots, memory by BUFFER id, loaded programs. Called with rt.lock held ---- */

enum {
  SLOTS = 64,
  SLOT_NUMBERS = 250 /* numbers of slots, followed by those of groups of slots */,
  NO_SLOT = -1,
  SLOT_QUEUES = 4 /* maximum number of queues used per kind */
};

struct storage {        /* the memory of one BUFFER node */
  struct storage *next; /* in its hash bucket */
  int64_t id;
  db_buffer *buffer;
  size_t bytes, size;     /* allocated size, requested size */
  struct value *assigned; /* while realizing: the last assign seen that overwrites it */
  uint64_t written;       /* the contents are valid when the compute queue's timeline reaches this value; 0: at once */
  uint32_t refs;
  uint8_t slot;
  bool pinned;                  /* host memory that every device addresses */
  bool borrowed;                /* memory that was not allocated here, and is not kept for reuse */
  void (*give_back)(void *ctx); /* called when it is not used any more; or NULL */
  void *ctx;
};

struct runtime {
  pthread_mutex_t lock;
  struct graph *graph;
  uint64_t graphs; /* number of graphs made so far; a node pointer is valid while this has not changed */
  struct compiler *compiler;
  struct binder *binder;
  int64_t next_buffer;
  struct uop **sizes; /* nodes of the tokens for symbolic sizes */
  uint32_t *size_slot, nsizes, size_slots;
  bool holding;   /* nodes are held outside of values: graph_collect must do nothing */
  bool oversized; /* the call in progress made an expression with too many elements; the shape of the first one: */
  struct shape_text {
    char s[128];
  } oversized_shape;
  struct value *values; /* all existing values */
  uint64_t serials;     /* number of values made so far */
  size_t nvalues, collect_at;
  struct slot *slots[SLOTS];
  struct slot_group *groups[SLOT_NUMBERS - SLOTS];
  struct storage **buckets;
  size_t nbuckets, nstorages;
  struct storage *unused; /* released memory of others, for storages_give_back */
  void (*watch)(void *ctx, const struct db_command *command);
  void *watch_ctx;
};
extern struct runtime rt;

/* Makes the graph and the compiler if they do not exist. Returns 0 or a negative errno. */
int runtime_init(void);
/* Why compiled kernels are not kept on disk, or NULL. */
const char *runtime_no_disk(void);
/* $XDG_CACHE_HOME/doorbell or ~/.cache/doorbell, created if necessary. Returns NULL if it cannot be used;
 * runtime_no_disk() then gives the reason. */
const char *cache_directory(char *buf, size_t cap);
/* The folder of the kernel cache, or NULL. Valid after runtime_init. */
const char *runtime_cache_dir(void);
/* Checks whether the compiler could store its last kernel; reports a failure with DEBUG=1. */
void runtime_check_disk(const struct env *env);
/* The slot of a device (NULL: the default device), which is opened if necessary. Takes a reference on the slot. Returns
 * a negative errno on failure. */
int slot_of(db_device *dev);
db_device *slot_device(unsigned slot);
const struct target *slot_target(unsigned slot);
const struct schedule_machine *slot_machine(unsigned slot); /* NULL if the slot has no device */
/* Values and storages hold references on their slot. Dropping the last one closes the device, unless it is the default
 * device. */
void slot_retain(unsigned slot);
void slot_release(unsigned slot);
/* The slots of a group, or NULL if slot is a single device. Groups have numbers above the devices' slots and are
 * accepted wherever a function does not require a single device. */
const struct shard_group *slot_group(unsigned slot);
/* The slot of the group of these devices, or a negative errno. Takes a reference. */
int slot_of_devices(db_device *const *devices, unsigned n);
/* The last value submitted on the compute queue's timeline. */
uint64_t *slot_submitted(unsigned slot);
/* Whether a's queues can address b's memory (db_reaches). They can always address its signals. */
bool slots_reach(unsigned a, unsigned b);
/* The device's first recorder of a kind, made on first use. */
db_queue *slot_queue(unsigned slot, enum db_queue_kind kind);
/* The recorder with this index among those of a kind, and their number. */
db_queue *slot_queue_at(unsigned slot, enum db_queue_kind kind, unsigned index);
unsigned slot_queues(unsigned slot, enum db_queue_kind kind);
db_program *slot_program(unsigned slot, const struct kernel *kernel);
/* The same without caching: the caller owns the only reference. */
db_program *slot_load(unsigned slot, const struct kernel *kernel);

/* Allocates memory on slot, reusing freed memory if possible. Reuse is safe because submissions on a device are
 * ordered. */
struct storage *storage_new(unsigned slot, int64_t id, size_t bytes);
/* The same in pinned host memory. */
struct storage *storage_new_pinned(unsigned slot, int64_t id, size_t bytes);
/* The same over existing memory, with a reference of its own on buffer. If give_back is not NULL, storages_give_back
 * calls give_back(ctx) after the release. */
struct storage *storage_over(unsigned slot, int64_t id, db_buffer *buffer, size_t bytes, void (*give_back)(void *ctx),
                             void *ctx);
/* Returns the memory of others that storages used and that were released. Waits until its devices are idle; memory of a
 * device that cannot finish is never returned. Call it without the lock: the owners' functions may release tensors. */
void storages_give_back(void);
struct storage *storage_find(int64_t id);
/* Changes the id. Nodes with the old id no longer find the memory. */
void storage_rename(struct storage *s, int64_t id);
void storage_release(struct storage *s);
/* Records that the last submission may have written to it. */
void storage_written(struct storage *s);
/* Returns -EIO with the reason if a lost device lost its contents, else 0. */
int storage_check(const struct storage *s);

/* ---- object.c: small zeroed objects; called with rt.lock held ---- */
void *object_new(size_t size);
void object_free(void *object, size_t size); /* size: as passed to object_new */
void objects_free(void);                     /* frees the objects kept for reuse */
#endif
