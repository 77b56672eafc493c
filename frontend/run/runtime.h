/* The process-wide runtime that ties the graph, the compiler and the queue layer together: the environment, open
 * devices, memory, loaded programs. One lock covers all of it, and the tensors above. */
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
  bool launched;    /* as one of several processes */
  bool profile;     /* a trace is written */
  const char *plan; /* plans by hand, or NULL */
  int beam;         /* the width of a search; 0: no search, but plans found before are used; -1: neither */
};
/* 0, or -EINVAL with a message that names the variable and its value. */
int env_get(const struct env **out);

/* ---- machine.c ---- */
struct schedule_machine machine_of_target(const struct target *t);

/* ---- runtime.c: device slots, memory by BUFFER id, loaded programs ---- */

enum {
  SLOTS = 64,
  NUMBERS = 250 /* of slots, and above them of groups of slots */,
  NO_SLOT = -1,
  SLOT_QUEUES = 4 /* of a kind that are used at most */
};

struct storage {        /* the memory of one BUFFER node */
  struct storage *next; /* in its hash bucket */
  int64_t id;
  db_buffer *buffer;
  size_t bytes, size;     /* allocated, asked for */
  struct value *assigned; /* while assigns are looked through: one that overwrites it */
  uint64_t written; /* the value of the compute queue's timeline behind which its contents are there; 0: at once */
  uint32_t refs;
  uint8_t slot;
  bool pinned; /* host memory, which every device addresses */
};

struct runtime {
  pthread_mutex_t lock;
  struct graph *graph;
  uint64_t graphs; /* made so far: a node is known again while this is what it was */
  struct compiler *compiler;
  struct binder *binder;
  int64_t next_buffer;
  struct uop **sizes; /* of the tokens for symbolic sizes */
  uint32_t *size_slot, nsizes, size_slots;
  bool holding;   /* nodes are held beside values: the graph stays */
  bool oversized; /* the call in progress made an expression of too many elements; its first shape of that kind: */
  struct shape_text {
    char s[128];
  } oversized_shape;
  struct value *values; /* all that live */
  uint64_t serials;     /* of values made so far */
  size_t nvalues, collect_at;
  struct slot *slots[SLOTS];
  struct slot_group *groups[NUMBERS - SLOTS];
  struct storage **buckets;
  size_t nbuckets, nstorages;
  void (*watch)(void *ctx, const struct db_command *command);
  void *watch_ctx;
};
extern struct runtime rt;

/* Graph and compiler exist after this; called with the lock held. */
int runtime_init(void);
/* Why compiled kernels are not kept on disk; NULL. */
const char *runtime_no_disk(void);
/* $XDG_CACHE_HOME/doorbell or ~/.cache/doorbell, made if need be; NULL when there is no place for it: runtime_no_disk()
 * says why. */
const char *cache_directory(char *buf, size_t cap);
/* The folder that compiled kernels are kept in; NULL. Once runtime_init has been called. */
const char *runtime_cache_dir(void);
/* Looks whether the compiler could keep its last kernel; says so with DEBUG=1 where it could not. */
void runtime_check_disk(const struct env *env);
/* The slot of a device (NULL: the default device), opening it if need be; takes a reference on the slot. Negative
 * errno. */
int slot_of(db_device *dev);
db_device *slot_device(unsigned slot);
const struct target *slot_target(unsigned slot);
const struct schedule_machine *slot_machine(unsigned slot); /* NULL: no device is open there */
/* Values and storages hold references on their slot; the last one closes the device unless it is the default one. */
void slot_retain(unsigned slot);
void slot_release(unsigned slot);
/* The slots of a group, NULL for that of one device: a group has a number above theirs, and is one of them to whatever
 * is not said to want a device of its own. */
const struct shard_group *slot_group(unsigned slot);
/* The slot for a list of devices. */
int slot_of_devices(db_device *const *devices, unsigned n);
/* The last value of the compute queue's timeline that was submitted. */
uint64_t *slot_submitted(unsigned slot);
/* Whether a's queues address b's memory (db_reaches). Signals they always do. */
bool slots_reach(unsigned a, unsigned b);
/* The device's recorders, made on first use. */
db_queue *slot_queue(unsigned slot, enum db_queue_kind kind);
/* The same of another queue of that kind, and how many there are. */
db_queue *slot_queue_at(unsigned slot, enum db_queue_kind kind, unsigned index);
unsigned slot_queues(unsigned slot, enum db_queue_kind kind);
db_program *slot_program(unsigned slot, const struct kernel *kernel);
/* The same for a kernel that is not kept: the caller's reference is the only one. */
db_program *slot_load(unsigned slot, const struct kernel *kernel);

/* Memory of bytes on slot, reusing what was freed. Reuse is safe because submissions on a device are ordered after each
 * other. */
struct storage *storage_new(unsigned slot, int64_t id, size_t bytes);
/* The same in host memory. */
struct storage *storage_new_pinned(unsigned slot, int64_t id, size_t bytes);
struct storage *storage_find(int64_t id);
/* What names the memory by its old id will not find it any more. */
void storage_rename(struct storage *s, int64_t id);
void storage_release(struct storage *s);
/* What was submitted last may have written to it. */
void storage_written(struct storage *s);
/* -EIO and the reason when its contents were lost with a device. */
int storage_check(const struct storage *s);

/* ---- object.c: small objects, zeroed; lock held ---- */
void *object_new(size_t size);
void object_free(void *object, size_t size); /* the size it was made with */
void objects_free(void);                     /* those that are kept */
#endif
