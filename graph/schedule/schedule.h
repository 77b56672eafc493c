/* Turns a lazy tensor graph into a list of kernels, copies, exchanges and launches of user's kernels (CUSTOM).
 *
 * A kernel's ast is SINK(STORE(INDEX(PARAM 0, index), value)...). PARAM k is item->bufs[k], outputs first. Index
 * expressions and values are written over RANGE nodes: AXIS_LOOP for output axes, numbered from 0, outer to inner, and
 * AXIS_REDUCE under their REDUCE. The kernel computes its stores for every combination of its LOOP ranges, in any
 * order. If it reads one of its outputs, it reads at the index that it writes. A LOOP range that some REDUCE does not
 * depend on is AXIS_SERIAL: it runs inside one work-item, so that the REDUCE is evaluated only once (softmax reduces a
 * row, then walks the row again). An AXIS_ORDERED range is run in ascending order by one work-item, because it reads
 * what earlier iterations wrote (sums at positions that an index selects). Where atomic operations combine values with
 * those in memory, the aux of the STORE is the op, and iterations may run in any order. Padding is LOAD(INDEX(p, index,
 * valid), 0). A LOAD may be part of an index (GATHER). No movement ops remain.
 *
 * A kernel may consist of phases, SINK(SINK(STORE...)..., RANGE...) with aux 1: for each combination of the RANGEs,
 * the SINKs run one after the other, each over its own additional ranges. The RANGEs are LOOP; the last one may be
 * ORDERED. Phases pass values on in LOCAL memory, which is private to a work-item if there are no rounds (below).
 * Iterations of the last LOOP may overlap: an element that is stored twice gets the same value. A condition of a store
 * to LOCAL memory says which elements are needed.
 *
 * If the last of these RANGEs is ORDERED, it counts rounds. Stores that depend on it are made in each round, the others
 * after the last one. LOCAL memory whose sources do not include it is carried from round to round; before the first
 * round it contains the identity element of the operation in its aux. In a kernel with rounds, work-items may share
 * LOCAL memory: a phase begins after all stores of the phase before it.
 *
 * Sizes may contain VARs. Memory is allocated for their largest values; values are packed according to their current
 * values. */
#ifndef DOORBELL_GRAPH_SCHEDULE_H
#define DOORBELL_GRAPH_SCHEDULE_H
#include "../uop.h"

/* X(name, text): why a value is written to memory. */
#define SCHEDULE_REASONS(X)                                                                                            \
  X(ROOT, "the caller asks for it")                                                                                    \
  X(CONTIGUOUS, "the caller asks for a contiguous copy of it")                                                         \
  X(COPIED, "it is copied to another device")                                                                          \
  X(EXCHANGED, "it is exchanged with other processes")                                                                 \
  X(LAUNCHED, "a kernel that the user brings uses it")                                                                 \
  X(ASSIGNED, "it is assigned")                                                                                        \
  X(INDEX, "it is an expensive or reduced index")                                                                      \
  X(PARTIAL, "it holds the partial results of a long reduction")                                                       \
  X(ALIGNED, "its rows begin at aligned addresses and lie along a sum, as matrix instructions need them")              \
  X(CHANNELS, "its channels are adjacent, so that several are loaded at once")                                         \
  X(BYTES, "its bytes, or their sums, are parts of a sum of products that matrix instructions compute")                \
  X(SHARED, "several uses share a reduction")                                                                          \
  X(NESTED, "another reduction uses a reduction and would repeat it")                                                  \
  X(REPEATED, "an expanded axis would repeat a reduction")                                                             \
  X(PADDED, "most elements of its kernel are padding")                                                                 \
  X(CROWDED, "its kernel has other reductions that cannot share its loops")                                            \
  X(WIDE, "its kernel reads the maximum number of buffers")                                                            \
  X(DEEP, "its expression has the maximum depth")                                                                      \
  X(EXPENSIVE, "it is expensive and used several times")                                                               \
  X(JOINED, "separate kernels compute its pieces")                                                                     \
  X(SCATTERED, "it is read or written at positions that an index selects")                                             \
  X(OVERWRITTEN, "its kernel writes other elements of the memory that it reads")
enum schedule_reason {
#define X(e, text) SCHEDULE_##e,
  SCHEDULE_REASONS(X)
#undef X
};
const char *schedule_reason_text(enum schedule_reason why);

struct schedule_item {
  /* SEND begins an exchange between processes, RECEIVE ends it. The items between them run while it is in progress. */
  enum { SCHEDULE_KERNEL, SCHEDULE_COPY, SCHEDULE_SEND, SCHEDULE_RECEIVE, SCHEDULE_CUSTOM } kind;
  /* KERNEL: the SINK. CUSTOM: a SINK of a STORE for each result, of a CUSTOM over a LOAD of each input. Otherwise
   * NULL. */
  struct uop *ast;
  struct uop *exchange; /* SEND, RECEIVE: the EXCHANGE */
  /* KERNEL, CUSTOM: BUFFER nodes by PARAM slot; COPY: destination, source; SEND: source; RECEIVE: destination */
  struct uop **bufs;
  int64_t *offset; /* KERNEL: start of each PARAM in its buffer, in elements; a multiple of 256 bytes */
  unsigned nbufs, noutputs;
  struct uop **vars; /* the VARs that the ast depends on, in the order of the kernel's arguments */
  unsigned nvars;
  size_t first;              /* KERNEL: number of the first item that has the same ast */
  unsigned device;           /* device slot that the item runs on */
  enum schedule_reason *why; /* for each output */
  bool swaps; /* copies all of bufs[1], which is not needed afterwards, to bufs[0]; exchanging their memory is
                 equivalent */
};
/* The scheduler's model of a machine: rough figures to weigh work against memory traffic and launches. */
struct schedule_machine {
  int64_t groups;   /* workgroups that keep the whole machine busy; the work-items of one can share a sum */
  int64_t side;     /* adjacent results that a workgroup computes in parallel: a wave, a vector */
  double access_ns; /* latency of a memory access that the next one depends on */
  int64_t columns;  /* columns that a workgroup sums together, reading each row of a matrix in order; 0: side */
  int64_t scratch; /* bytes of LOCAL memory in which phases of a kernel may pass on values; 0: kernels have no phases */
  int64_t
      phase_items; /* work-items that share this memory and compute columns in rounds; 0: one, all columns at once */
  int64_t phase_registers; /* bytes of registers in which they pass on values that do not fit in scratch; 0: none */
  double launch_ns, bytes_per_ns, flops_per_ns;
  double compares_per_ns; /* comparisons of an index with a position, each with a choice and a sum */
  double stream_per_ns;   /* bytes per ns that one workgroup reads while the others are idle */
  int64_t tile; /* rows and columns of results that a workgroup computes by matrix instructions; 0: it has none */
  int64_t block_rows, block_columns; /* of results that a workgroup computes without them; 0: products are not split */
  int64_t tile_memory;  /* bytes of LOCAL memory for the tiles that these instructions read; 0: they read no tiles */
  int64_t tile_rows;    /* rows of the smallest block of results that phases compute with all instructions of a kind */
  uint32_t tile_types;  /* types of their operands: bits of enum dtype */
  uint32_t phase_types; /* those of them that kernels of phases multiply so */
  uint32_t large_types; /* those of them for which copies of operands pay for large products only, because products
                         * without the instructions are fast, too */
  uint32_t straight_types; /* those of them whose operands' rows in memory have to lie along the sum for fast copies */
  /* Narrow types in which phases that compute all columns at once pass on values that are rounded to them, because
   * instructions multiply them faster than wider ones. */
  uint32_t passed_types;
  double tile_flops_per_ns;
  int64_t align;            /* bytes at whose multiples rows of their operands have to begin for fast copies; 0: any */
  uint32_t unaligned_types; /* types of matrices that are copied as fast if their rows begin at any element, unless
                             * only rows of the one with the result's columns lie along the sum */
  int64_t channel_align; /* bytes of adjacent channels that work-items load at once; 0: convolutions copy no operands */
  enum {
    ATOMICS_NONE,
    ATOMICS_EXACT, /* where the result does not depend on the order: integers */
    ATOMICS_ANY    /* also sums of f32 and f64 */
  } atomics;       /* use of atomic operations in memory */
  /* Sums of products of bytes that are computed faster than those of i32. */
  enum {
    BYTES_NONE,
    BYTES_ANY,   /* of any two of u8 and i8 */
    BYTES_EQUAL, /* of two u8 or two i8 */
    BYTES_MIXED  /* of an u8 and an i8 */
  } bytes;
  bool overwrites; /* kernels write results over operands that are not needed afterwards */
  bool skips;      /* iterations of a sum whose products are all 0 by a condition on indices take no time */
};

struct schedule {
  struct graph *graph; /* owns every node below */
  struct schedule_item *items;
  size_t nitems;
  struct uop **outputs; /* per root: its value, a BUFFER, possibly under movement ops that cost nothing */
  size_t noutputs;
  struct uop **temporaries; /* BUFFERs that hold no root */
  size_t ntemporaries;
};
/* Schedules the roots. *next_buffer is the first unused BUFFER id; it is advanced past the ids of the BUFFERs made
 * here. Returns 0, or a negative errno with a message in err. Free *out with schedule_free. */
int graph_schedule(struct uop *const *roots, unsigned nroots, int64_t *next_buffer, struct schedule *out, char *err,
                   size_t errcap);
/* The same for given machines: machine_of returns the model of a device slot's machine. If machine_of or its result is
 * NULL, a typical host is assumed. */
int graph_schedule_on(const struct schedule_machine *(*machine_of)(unsigned device), struct uop *const *roots,
                      unsigned nroots, int64_t *next_buffer, struct schedule *out, char *err, size_t errcap);
/* The same for roots in a graph that becomes the schedule's, or is freed if there is an error. */
int graph_schedule_within(struct graph *g, const struct schedule_machine *(*machine_of)(unsigned device),
                          struct uop *const *roots, unsigned nroots, int64_t *next_buffer, struct schedule *out,
                          char *err, size_t errcap);
void schedule_free(struct schedule *s);
#endif
