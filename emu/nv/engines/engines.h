/* Private to the engines of an emulated NVIDIA GPU: channels, and what the host engine and the class engines share. */
#ifndef DOORBELL_EMU_NV_ENGINES_H
#define DOORBELL_EMU_NV_ENGINES_H
#include <pthread.h>
#include "../../../hcq/nv/counters.h"
#include "../../../hcq/nv/methods.h"
#include "../../../hcq/nv/pma/pma_wire.h"
#include "../../../hcq/nv/qmd.h"
#include "../../exec/sites.h"
#include "../../race.h"
#include "channel.h"
#include "../exec/sm.h"

/* Error numbers of notifiers. Source: NVIDIA open-gpu-kernel-modules, nverror.h (ROBUST_CHANNEL_*). */
enum nv_xid { NV_XID_GR_EXCEPTION = 13, NV_XID_MMU_FAULT = 31, NV_XID_PBDMA = 32, NV_XID_GR_CLASS = 69 };

enum nv_status {
  NV_DONE,
  NV_BLOCKED, /* waits for a semaphore: execute the same method again later */
  NV_IDLE,    /* no work until the doorbell rings */
  NV_DEAD,    /* the channel is freed, or its group has stopped because of an error */
};

enum {
  NV_SETS = 4,
  NV_GROUPS = 5,
  NV_METHODS = 4096, /* number of methods that a header can encode */
  NV_SUBCHANNELS = 8,
  NV_CLASSES_MAX = 16,
  NV_PENDING_MAX = 64,
  NV_USERD_REFERENCE = 0x48, /* clc86f.h, Nvc86fControl */
  NV_CLASS_INLINE_KEPLER = 0xa140,
  NV_CLASS_INLINE_BLACKWELL = 0xcd40,
};

/* The decoded code of one address space. */
struct nv_space {
  struct vm *vm;
  struct code_cache *code;
  unsigned refs;
  struct nv_space *next;
};

enum { NV_GPCS_MAX = 32, NV_PMM_REGISTERS = 8 };
/* PC sampling (pma.c). The lock guards everything. */
struct nv_pma {
  pthread_mutex_t lock;
  uint32_t router[NV_GPCS_MAX], word_65c[2 * NV_GPCS_MAX], control, sampling;
  uint16_t credits[NV_GPCS_MAX];
  const struct nv_channel_group *context; /* the one that is sampled, or NULL */
  struct nv_pma_sm {
    uint32_t monitor[NV_PMM_REGISTERS];
    bool streams;     /* decided when a grid begins */
    uint32_t dropped; /* samples, since its last record */
    unsigned n;       /* bytes of data that are not in a record yet */
    uint8_t data[PMA_DATA_BYTES + 8];
  } *sm;
  uint8_t *ring;
  uint64_t size, put, got; /* put, got: bytes written and read, without wrap-around */
  bool overflow;
};

struct nv_engines {
  struct nv_engines_config config;
  pthread_mutex_t lock; /* guards lists, errors, and the creation of method tables */
  struct nv_channel *channels;
  struct nv_space *spaces;
  const struct nv_method **methods[NV_SETS][NV_GROUPS]; /* indexed by address / 4, created when first used */
  struct sm_core **cores;                               /* of the pool's workers; each worker creates its own */
  pthread_t watcher;
  bool watching; /* guarded by lock */
  atomic_bool quit;
  atomic_uint watcher_futex;
  atomic_uint unknown_rings;                      /* number of rings that match no channel */
  uint32_t qmd_bits[QMD_VERSIONS][QMD_MAX_WORDS]; /* the bits that some field covers */
  _Atomic uint64_t instructions, warps, ctas, launches, bytes_loaded, bytes_stored;
  pthread_mutex_t counters_lock;
  struct emu_detail counted;
  struct emu_kernel_stats *kernel;
  size_t nkernels;
  struct emu_notes notes; /* guarded by counters_lock, as those above */
  struct {                /* perf.c */
    pthread_mutex_t lock;
    atomic_bool on;
    uint64_t (*counts)[NV_COUNTERS_COUNT]; /* by SM; guarded by lock */
    atomic_uint started;                   /* the value of the last START */
  } perf;
  struct nv_pma pma;
};

struct nv_channel_group {
  struct nv_engines *e;
  atomic_bool scheduled, dead;
  bool failing;                  /* guarded by lock: error is set */
  struct nv_channel_error error; /* the error that stopped the group; complete before dead is set */
};

enum nv_client { NV_CLIENT_HOST, NV_CLIENT_GRAPHICS, NV_CLIENT_COPY };
/* A write to inline memory that is waiting for its data. */
struct nv_inline_write {
  uint64_t va;
  uint32_t pitch, line, lines; /* bytes per line, number of lines */
  uint64_t at, bytes;          /* bytes of data: received, expected */
  struct race_task *task;      /* NULL if the machine is not strict */
};

struct nv_channel;
struct nv_object;
/* Executes what a method does in addition to storing its value. Called only for valid methods without reserved bits. */
typedef enum nv_status nv_action_fn(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value);
/* The context of an engine: the values of its methods. */
struct nv_object {
  uint32_t class;
  enum nv_client client;
  unsigned group; /* column of the method table */
  const struct nv_method *const *methods;
  nv_action_fn *action;
  struct nv_inline_write write;
  uint32_t r[NV_METHODS];
};
static inline uint32_t nv_reg(const struct nv_object *o, uint32_t method) { return o->r[method / 4]; }
/* Returns the value in two methods. The first method holds the upper half, unless noted otherwise. */
static inline uint64_t nv_reg64(const struct nv_object *o, uint32_t upper, uint32_t lower) {
  return (uint64_t)o->r[upper / 4] << 32 | o->r[lower / 4];
}

/* A QMD with dependencies: the current value of its dependence counter, and whether it has been scheduled. */
struct nv_pending {
  uint64_t va;
  uint32_t count;
  bool scheduled;
};

enum nv_object_kind {
  NV_OBJECT_HOST,
  NV_OBJECT_COMPUTE,
  NV_OBJECT_INLINE,
  NV_OBJECT_COPY,
  NV_OBJECT_COUNTERS,
  NV_OBJECTS
};

struct nv_channel {
  struct nv_channel_desc d;
  struct nv_engines *e;
  struct nv_channel_group *group;
  struct nv_channel *next;
  struct nv_space *space;
  pthread_t thread;
  atomic_bool quit; /* ends the thread */
  atomic_bool stop; /* abandons grids: set by quit, dead or a request */
  atomic_bool busy; /* the thread is in the host engine */
  atomic_bool launching;
  atomic_uint wake_futex;
  atomic_bool asleep;
  _Atomic uint32_t put; /* GPPut at the last ring */
  _Atomic uint32_t allowed[NV_CLASSES_MAX];

  uint32_t get;
  uint64_t segment_va, extended_base;  /* address of the current pushbuffer */
  uint32_t segment_at, segment_dwords; /* position in it and its size */
  uint32_t header, left;               /* current method: its header and the number of data dwords that are left */
  uint32_t method, value;              /* method being executed, */
  const struct nv_object *executing;   /* object that executes it; NULL if none does */
  uint64_t executed;                   /* number of methods and GP entries executed */
  struct race_queue *race;             /* NULL if the machine is not strict */
  uint32_t put_taken;                  /* GPPut up to which a strict channel works */
  struct vm_range fetch, data;
  struct nv_object *object[NV_OBJECTS]; /* created when first bound */
  struct nv_object *bound[NV_SUBCHANNELS];

  bool triggered; /* PM_TRIGGER was executed, and no grid since */
  struct sm_core *core;
  uint32_t inline_qmd[QMD_MAX_WORDS];
  struct nv_pending pending[NV_PENDING_MAX];
  unsigned npending;
};
static inline bool nv_channel_stopped(const struct nv_channel *ch) {
  return atomic_load_explicit(&ch->stop, memory_order_relaxed);
}

/* ---- engines.c ---- */
/* Wakes channels: memory was written that one may wait for. */
void nv_semaphore_released(void);
/* Stops ch's group with an error: writes the notifiers and the log. Only the first error counts. Returns NV_DEAD. */
enum nv_status nv_channel_fail(struct nv_channel *ch, const struct nv_channel_error *error);
/* Creates an object of a class with its methods. Returns NULL if the class is not known or if out of memory. */
struct nv_object *nv_object_new(struct nv_engines *e, uint32_t class, enum nv_client client, nv_action_fn *action);

/* Waits for idle: all earlier work has finished and is visible to later work. */
void nv_idle(struct nv_channel *ch);
/* Ends a task of the channel. If it raced, stops the channel with an error. */
enum nv_status nv_task_end(struct nv_channel *ch, struct race_task *t);

/* ---- host.c ---- */
/* Executes at most budget methods. */
enum nv_status nv_host_run(struct nv_channel *ch, uint64_t budget);
/* Writes the current position, such as "channel 3, GP entry 5, pushbuffer 0x7f0000 dword 12, subchannel 1 SEND_PCAS_A =
 * 0x1234". */
void nv_position(const struct nv_channel *ch, char *buf, size_t cap);
/* Stops the channel because of a bad method, with the error number of the engine that executes it. */
enum nv_status nv_method_error(struct nv_channel *ch, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum nv_status nv_page_fault(struct nv_channel *ch, const char *what, uint64_t va, unsigned access);
/* Returns the host pointer for an access of the channel, or NULL after a page fault or, if va is not aligned, after
 * nv_method_error. */
void *nv_memory(struct nv_channel *ch, const char *what, uint64_t va, uint64_t size, uint64_t align, unsigned access);
/* Returns the host pointer of va and limits *n to the bytes in one mapping. Returns NULL after a page fault. */
void *nv_span(struct nv_channel *ch, struct vm_range *range, const char *what, uint64_t va, uint64_t *n,
              unsigned access);

/* ---- host_methods.c, compute.c, i2m.c, copy.c, perf.c ---- */
nv_action_fn nv_host_action, nv_compute_action, nv_inline_action, nv_copy_action, nv_perf_action;
/* The methods that the compute class shares with the inline-to-memory class. */
enum nv_status nv_inline_launch(struct nv_channel *ch, struct nv_object *o, uint32_t launch);
enum nv_status nv_inline_data(struct nv_channel *ch, struct nv_object *o, uint32_t value);

/* ---- semaphore.c ---- */
enum nv_reduction {
  NV_RED_NONE,
  NV_RED_ADD,
  NV_RED_MIN,
  NV_RED_MAX,
  NV_RED_INC,
  NV_RED_DEC,
  NV_RED_AND,
  NV_RED_OR,
  NV_RED_XOR,
};
struct nv_semaphore {
  const char *what;
  uint64_t va, payload;
  bool wide;      /* the payload has 64 bits */
  bool timestamp; /* writes 16 bytes: payload (upper half 0 unless wide) and time in ns */
  enum nv_reduction reduction;
  bool is_signed;
  bool early; /* does not wait for earlier work */
};
enum nv_status nv_semaphore_release(struct nv_channel *ch, const struct nv_semaphore *s);
/* Convert operation numbers: NV_SEM_RED_* of the host engine and the copy class; QMD_REDUCTION_* of the compute class
 * and of QMDs. */
enum nv_reduction nv_reduction_of_host(unsigned op);
static inline enum nv_reduction nv_reduction_of_qmd(unsigned op) { return (enum nv_reduction)(op + 1); }

/* ---- qmd_launch.c ---- */
/* Executes a PCAS action on the QMD at va. */
enum nv_status nv_qmd_action(struct nv_channel *ch, struct nv_object *o, uint64_t va, unsigned action);
enum nv_status nv_qmd_schedule(struct nv_channel *ch, struct nv_object *o, uint64_t va);
/* Returns the layout of the class's QMDs. */
enum qmd_version nv_qmd_version(const struct nv_object *o);

/* ---- grid.c ---- */
/* Runs all clusters of g; with sequential, one after the other. */
enum nv_status nv_grid_run(struct nv_channel *ch, struct sm_grid *g, bool sequential);

/* ---- perf.c ---- */
int nv_perf_init(struct nv_engines *e); /* returns 0, or -1 if out of memory */
void nv_perf_free(struct nv_engines *e);
/* Returns which counters count (the value of START in hcq/nv/counters.h); 0: none. */
unsigned nv_perf_counting(struct nv_engines *e);
/* Adds what an SM executed to its counters. Both have detail. */
void nv_perf_add(struct nv_engines *e, uint32_t sm, const struct sm_stats *before, const struct sm_stats *after);

/* ---- pma.c; channel.h has what the kernel module calls ---- */
int nv_pma_init(struct nv_engines *e); /* returns 0, or -1 if out of memory */
void nv_pma_free(struct nv_engines *e);
void nv_pma_forget(struct nv_channel_group *g); /* the group is freed: it is not sampled any more */
/* Returns whether the next grid of the channel is sampled; then it runs on one thread. */
bool nv_pma_begin(struct nv_channel *ch);
void nv_pma_sample(struct nv_engines *e, uint32_t sm, const struct sm_sample *s);
/* The grid has ended: writes the remaining samples of every SM as one record, which is shorter than the others. */
void nv_pma_end(struct nv_engines *e);

/* ---- counters.c ---- */
void nv_counters_add(struct nv_engines *e, uint64_t pgm, const struct sm_stats *stats);
#endif
