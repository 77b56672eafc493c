/* Recorders, and recordings that replay. */
#ifndef DOORBELL_HCQ_RECORDING_H
#define DOORBELL_HCQ_RECORDING_H
#include "ring.h"
#include "words.h"

/* ---- recorders ---- */

/* One place that a slot's value goes to. at: in host memory, or, while recording, a dword of q->words when in_words. */
struct hcq_patch {
  union {
    uint8_t *at;
    size_t word;
  };
  uint64_t add; /* to the slot's value */
  uint16_t slot;
  uint8_t bytes; /* 1 to 8 */
  bool in_words;
  bool upper_first; /* two dwords, the upper one before the lower */
  bool is_buffer;   /* else a value */
  bool is_count;    /* a component of a grid: not 0 */
};

struct db_queue { /* a recorder */
  db_device *dev;
  struct hcq_ring *ring;
  struct words words;
  uint32_t *cuts; /* word offsets at which a long recording may be split into indirect buffers */
  unsigned ncuts, cuts_cap;
  struct hcq_object **refs;
  unsigned nrefs, refs_cap;
  uint64_t batch;          /* identifies what is being recorded, for hcq_object.mark */
  struct hcq_chunk *chunk; /* kernel arguments go here */
  uint32_t chunk_used;
  struct hcq_chunk *full; /* filled by this recording */
  db_program *last_program;
  struct { /* the backend's: a launch that the next one may be appended to, when words and batch are still the same */
    void *launch;
    size_t words;
    uint64_t batch;
  } chain;
  struct hcq_waits waits;
  size_t vary_offset[2]; /* of a copy's destination and source in their buffers */
  unsigned vary[3];      /* slots of the command being recorded: {value}, {destination, source} or the grid's */
  struct hcq_patch *patches;
  unsigned npatches, patches_cap;
  uint64_t nkernels, ncopies;
  int error;
  char *error_text;
  bool internal;               /* of the device itself */
  bool profiled;               /* commands are stamped and reported (profile_queue.c) */
  struct hcq_profile *profile; /* the stamps of what is being recorded, a reference; NULL: none yet */
};

/* ---- recordings that replay ---- */

struct hcq_slot {
  uint64_t value;    /* address, for a buffer */
  db_buffer *buffer; /* retained */
  uint32_t first, n; /* of the patches */
  bool known;        /* value is what the patches hold */
  bool is_buffer, is_count;
  uint64_t most; /* the largest value that fits its patches */
};

struct db_recording {
  struct hcq_object object;
  db_device *dev;
  struct hcq_ring *ring;
  db_buffer *memory; /* the packets */
  size_t nwords;
  unsigned npackets;
  uint32_t *cuts;
  unsigned ncuts;
  struct hcq_chunk *chunks; /* kernel arguments */
  struct hcq_object **refs;
  unsigned nrefs;
  struct hcq_patch *patches; /* by slot */
  unsigned npatches;
  struct hcq_slot *slots;
  unsigned nslots; /* numbers in use are below this */
  uint64_t last;   /* timeline value of the last run */
  uint64_t nkernels, ncopies;
  db_program *last_program;
  struct hcq_waits waits;
  struct hcq_profile *profile; /* a reference; NULL: its commands are not timed */
};

/* ---- queue.c ---- */

/* Tells launches of a process apart: what is being recorded, and where in it. */
static inline uint64_t hcq_launch_id(const db_queue *q) { return q->batch << 24 | (q->nkernels & 0xffffff); }
/* Keeps object alive until what is being recorded has finished. */
int hcq_queue_hold(db_queue *q, struct hcq_object *object);
/* Empties the recorder without submitting. */
void hcq_queue_reset(db_queue *q);
db_queue *hcq_queue_new(db_device *dev, enum db_queue_kind kind, unsigned index, bool internal);
/* What slot (0: nothing is noted) sets: bytes at the dwords from `word` on of q->words, or at host memory. */
void hcq_patch_words(db_queue *q, unsigned slot, size_t word, struct hcq_patch like);
void hcq_patch_memory(db_queue *q, unsigned slot, void *at, struct hcq_patch like);

/* ---- profile_queue.c ---- */
/* A recorder whose commands are timed if the environment asks for it. */
db_queue *hcq_queue_profiled(db_device *dev, enum db_queue_kind kind, unsigned index);
/* Before and after a command of a recorder with `profiled`. program NULL: the command copies `bytes` bytes. */
int hcq_profile_begin(db_queue *q);
int hcq_profile_end(db_queue *q, db_program *program, unsigned args, uint64_t bytes);
/* What is being recorded keeps no stamps any more. */
void hcq_profile_drop(db_queue *q);
/* The hardware has the commands. p may be NULL. Called before the submission's objects can be released. */
void hcq_profile_submitted(struct hcq_profile *p);
/* Reports the last run of a recording, which has finished, and makes the object that reports the next one when it is
 * released. */
struct hcq_object *hcq_profile_run(struct hcq_profile *p);
#endif
