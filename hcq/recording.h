/* Recorders, and recordings that replay. */
#ifndef DOORBELL_HCQ_RECORDING_H
#define DOORBELL_HCQ_RECORDING_H
#include "ring.h"
#include "words.h"

/* ---- recorders ---- */

/* One place where a slot's value is stored. While recording, in_words selects `word`, the index of a dword in q->words;
 * otherwise `at` points into host memory. */
struct hcq_patch {
  union {
    uint8_t *at;
    size_t word;
  };
  uint64_t addend; /* added to the slot's value */
  uint16_t slot;
  uint8_t bytes; /* 1 to 8 */
  bool in_words;
  bool upper_first; /* two dwords, the upper one first */
  bool is_buffer;   /* otherwise a value */
  bool is_count;    /* a component of a grid: must not be 0 */
};

struct db_queue { /* a recorder */
  db_device *dev;
  struct hcq_ring *ring;
  struct words words;
  uint32_t *cuts; /* word offsets where a long recording may be split into indirect buffers */
  unsigned ncuts, cuts_cap;
  struct hcq_object **refs;
  unsigned nrefs, refs_cap;
  uint64_t batch;          /* identifies the current recording, for hcq_object.mark */
  struct hcq_chunk *chunk; /* current chunk for kernel arguments */
  uint32_t chunk_used;
  struct hcq_chunk *full; /* chunks that this recording has filled */
  db_program *last_program;
  uint32_t last_local; /* static and dynamic local memory of the last launch */
  struct { /* used by the backend: a launch that the next one may be chained to, if words and batch have not changed */
    void *launch;
    size_t words;
    uint64_t batch;
  } chain;
  struct hcq_waits waits;
  size_t slot_offsets[2]; /* offsets of a copy's destination and source in their buffers */
  unsigned slots[3];      /* of the current command: {value}, {destination, source}, or one per component of the grid */
  struct hcq_patch *patches;
  unsigned npatches, patches_cap;
  uint64_t nkernels, ncopies;
  int error;
  char *error_text;
  const db_thread_trace *tracing; /* the trace that has begun here; NULL if none has */
  const db_pc_sampler *sampling;  /* likewise for samples of program counters */
  db_counter_set *counting;       /* the set that counts here in pass `counted_pass`; NULL if none does */
  unsigned counted_pass;
  bool internal;               /* owned by the device */
  uint8_t profiled;            /* how commands are reported (profile_queue.c): enum hcq_profiled */
  struct hcq_profile *profile; /* timestamps of the current recording (a reference); NULL before the first */
};

/* ---- recordings that replay ---- */

struct hcq_slot {
  uint64_t value;    /* address, for a buffer */
  db_buffer *buffer; /* retained */
  uint32_t first, n; /* range in the patches */
  bool applied;      /* the patches hold value */
  bool is_buffer, is_count;
  uint64_t max_value; /* largest value that fits all its patches */
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
  struct hcq_patch *patches; /* sorted by slot */
  unsigned npatches;
  struct hcq_slot *slots;
  unsigned nslots; /* larger than every slot number in use */
  uint64_t last;   /* timeline value of the last run */
  uint64_t nkernels, ncopies;
  db_program *last_program;
  struct hcq_waits waits;
  struct hcq_profile *profile; /* a reference; NULL if its commands are not timed */
};

/* ---- queue.c ---- */

/* An identifier of a launch, unique in the process: the recording and the launch's number in it. */
static inline uint64_t hcq_launch_id(const db_queue *q) { return q->batch << 24 | (q->nkernels & 0xffffff); }
/* Keeps object alive until the current recording has finished executing. */
int hcq_queue_hold(db_queue *q, struct hcq_object *object);
__attribute__((cold)) int hcq_queue_has_no_end(db_queue *q);
/* Fails if the recording counts (profiling/counters.c), traces or samples, and the end of that was not recorded. */
static inline int hcq_queue_check_end(db_queue *q) {
  return __builtin_expect(q->counting || q->tracing || q->sampling, 0) ? hcq_queue_has_no_end(q) : 0;
}
/* Empties the recorder without submitting. */
void hcq_queue_reset(db_queue *q);
db_queue *hcq_queue_new(db_device *dev, enum db_queue_kind kind, unsigned index, bool internal);
/* Notes a place that slot sets: dwords of q->words starting at `word`, or host memory at `at`. If slot is 0, nothing is
 * noted. */
void hcq_patch_words(db_queue *q, unsigned slot, size_t word, struct hcq_patch patch);
void hcq_patch_memory(db_queue *q, unsigned slot, void *at, struct hcq_patch patch);

/* ---- profiling/counters.c ---- */

/* A counter that a device has; backends list them. */
struct hcq_counter {
  struct db_counter info;
  uint16_t block, number; /* the backend's numbers of the block and the event */
};
/* A counter of a pass: which of the block's slots counts it, and where its values are stored. */
struct hcq_counter_pick {
  const struct hcq_counter *counter;
  unsigned slot;
  uint64_t address; /* info.instances values of 64 bits */
};

/* Record db_queue_counters_begin and db_queue_counters_end. */
int hcq_counters_begin(db_queue *q, db_counter_set *set, unsigned pass);
int hcq_counters_end(db_queue *q);
/* Reads counter i of a set if `pass` counts it; the pass must have finished. Returns false otherwise. */
bool hcq_counters_read_pass(const db_counter_set *s, unsigned i, unsigned pass, uint64_t *sum);
/* Counter i of a set; NULL if i is not below their number. */
const struct db_counter *hcq_counters_info(const db_counter_set *s, unsigned i);
/* Returns the sum of the check of a pass, which has finished; 0 if the set has one pass. */
uint64_t hcq_counters_check(const db_counter_set *s, unsigned pass);

/* ---- profiling/kernel_counters.c ---- */
struct hcq_counts;
/* Makes a set of those counters of PROF_COUNTERS that the device has, and sets *pass to the pass that this process
 * counts. Returns NULL if there is nothing to count. */
db_counter_set *hcq_counters_asked(db_device *dev, unsigned *pass);
/* Reports what a set of hcq_counters_asked counted. The caller fills in the device, the kernel and the times. */
int hcq_counters_report(const db_counter_set *s, struct hcq_counts *c);

/* ---- profile_queue.c ---- */
/* What is recorded around a recorder's commands: timestamps around each, counters around kernels. */
enum hcq_profiled { HCQ_PROFILED_TIMES = 1, HCQ_PROFILED_COUNTERS = 2 };
struct hcq_launch {
  db_program *program;
  unsigned args;
  const uint32_t *grid, *block; /* 3 components each */
  uint32_t local_bytes;         /* static and dynamic local memory */
};
/* Creates a recorder whose commands are timed if the environment asks for it. */
db_queue *hcq_queue_profiled(db_device *dev, enum db_queue_kind kind, unsigned index);
/* Called before and after each command of a recorder with `profiled`. l is NULL for a copy of `bytes` bytes. */
__attribute__((cold)) int hcq_profile_begin(db_queue *q, bool is_kernel);
__attribute__((cold)) int hcq_profile_end(db_queue *q, const struct hcq_launch *l, uint64_t bytes);
/* Drops the timestamps of the current recording. */
void hcq_profile_drop(db_queue *q);
/* Called after the hardware has received the commands and before the submission's objects can be released. p may be
 * NULL. */
void hcq_profile_submitted(struct hcq_profile *p);
/* Reports the last run of a recording, which must have finished. Returns an object that reports the next run when it is
 * released. */
struct hcq_object *hcq_profile_run(struct hcq_profile *p);
#endif
