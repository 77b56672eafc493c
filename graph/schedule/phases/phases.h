/* Internal to this folder: kernels of phases before they are units. */
#ifndef DOORBELL_GRAPH_PHASES_H
#define DOORBELL_GRAPH_PHASES_H
#include "../scheduler.h"

enum {
  MOST_MEMBERS = 24, /* at most MAX_PHASE_MEMORIES of compiler/plan/codegen.h */
  MOST_NUMBERS = 96, /* ranges of a kernel */
  MOST_COPIES = 64,
  NO_ROW = UINT8_MAX,
  NO_KERNEL = UINT32_MAX,
};

/* What becomes of a unit. */
enum phase_role {
  ROLE_NONE,       /* it stays as it is */
  ROLE_RECOMPUTED, /* every kernel that needs its result computes it again, for the rows that it needs */
  ROLE_RESULT,     /* it reads such results, and one kernel computes it */
};

/* A unit that a kernel of phases computes for each block of rows. */
struct member {
  uint32_t unit;
  uint8_t row[MAX_RANK];  /* by range of the unit: the number of the row range that it is, or NO_ROW */
  bool passed;            /* other members read its result in LOCAL memory */
  bool written;           /* its result is written to memory */
  bool inlined;           /* the only member that reads its result computes it */
  uint32_t limited;       /* bit mask of ranges whose columns are left out if they are outside the limit */
  int64_t length, stride; /* elements of a row of the result; distance of rows in LOCAL memory, in elements */
};

/* A kernel of phases. It computes blocks of rows; the row ranges number the rows. */
struct phased {
  struct member member[MOST_MEMBERS]; /* in descending order of their units: readers before writers */
  unsigned n, nrows;
  int64_t size[MAX_RANK]; /* of the row ranges */
  unsigned blocked;       /* the row range that is divided into blocks */
  int64_t block;          /* rows of a block */
  int64_t most_rows;      /* of a block that LOCAL memory of a host holds; 0: not known */
  int64_t columns, chunk; /* limited columns, and those that are left out together; chunk 0: no column is left out */
  bool upward;            /* the columns up to a block's last row are needed; otherwise those from its first row on */
  int64_t round;          /* columns that are computed in a round; 0: all columns at once */
  int64_t slices;         /* of rows of sums, of which each workgroup computes one; 0, 1: it computes whole rows */
  bool apart;             /* other kernels compute the values of rows that its members read */
};

/* A copy of memory whose rows are padded. */
struct padded_copy {
  struct uop *from, *to;
  int64_t row; /* elements of a row, without padding */
};

struct phaser {
  struct scheduler *s;
  uint8_t *role;    /* by unit */
  uint32_t *kernel; /* by unit with ROLE_RESULT: the kernel that computes it, or NO_KERNEL */
  struct phased *phased;
  size_t n, capacity;
  struct padded_copy copy[MOST_COPIES];
  unsigned ncopies;
};

/* The number of chunks of the limited columns; the last one may be partial. */
static inline int64_t phases_chunks(const struct phased *k) { return (k->columns + k->chunk - 1) / k->chunk; }

/* Bytes that are not written, for each byte that is read or written, so that recomputing is worthwhile. */
static const double PHASES_MUCH_MORE = 1.5;

static inline struct uop *result_of(const struct unit *u) { return u->store[0].index->src[0]; }
static inline double bytes_of(const struct uop *buffer) {
  return (double)buffer->src[0]->arg.i * dtype_info[buffer->dtype].size;
}

/* phases.c */
const struct version *phases_version(const struct phaser *p, struct uop *buffer); /* NULL: out of memory */
bool phases_is_recomputed(const struct phaser *p, const struct uop *load);
bool phases_computes(const struct phased *k, uint32_t unit);
/* The unit with a role that computes what `load` loads, or NO_UNIT. */
uint32_t phases_writer(const struct phaser *p, const struct uop *load);
struct member *phases_member(struct phased *k, uint32_t unit); /* NULL if the kernel does not compute it */
/* The number of range r among u's ranges, or MAX_RANK if it belongs to a reduction. */
unsigned phases_own(const struct unit *u, const struct uop *r);

/* Adds a unit at a place in their order. */
bool phases_insert_unit(struct phaser *p, uint32_t at, const struct unit *u);

/* Whether the unit sums products of two factors whose elements each occur in many products. */
bool phases_contracts(const struct unit *u);

/* rows.c */
/* Finds, for each range of unit `from`, the range that indexes it in a load of its result. Returns false if the load is
 * not along such ranges. */
bool phases_match(const struct unit *from, const struct uop *load, struct uop **as);
/* Divides a range of the unit that takes the place of two ranges of a recomputed result that it reads, or one of that
 * result that takes the place of two. Returns whether there was one. */
bool phases_split_merged(struct phaser *p, uint32_t unit);
/* Makes k the kernel that computes a unit; apart: without the values of rows that it reads. Returns false if its rows
 * cannot be computed block by block. */
bool phases_begin(struct phaser *p, struct phased *k, uint32_t unit, bool apart);
/* Lets kernel k compute everything that another one computes, if both have the same rows and need a common result.
 * Returns false, and changes nothing, if that cannot be. */
bool phases_merge(struct phaser *p, struct phased *k, const struct phased *other);
/* Chooses the range that is divided into blocks, and the rows of a block. */
bool phases_choose_block(struct phaser *p, struct phased *k);
/* Adds rows to a block of few rows on a host, once it is decided that phases are worth it. */
void phases_widen_block(struct phased *k);

/* columns.c */
/* Finds the columns that each block of rows does not need. */
void phases_limit_columns(struct phaser *p, struct phased *k);
/* Whether some columns of the unit's result may be found to be 0. */
bool phases_may_limit(const struct unit *u);
/* Whether a range of member m's unit counts limited columns. */
bool phases_is_limited(struct phaser *p, struct phased *k, const struct member *m, const struct uop *range);

/* costs.c */
/* Whether matrix instructions of the machine can compute the unit's sums of products. */
bool phases_use_tiles(const struct schedule_machine *m, const struct unit *u);
/* Whether kernel `kernel`, and all that compute results in common with it, directly or through others, are worthwhile.
 * Sets grouped[i] to 2 for each of these kernels. */
bool phases_pay(struct phaser *p, size_t kernel, uint8_t *grouped);

/* unit.c */
/* Makes a unit of the kernel, in place of the last of its results. */
bool phases_make_unit(struct phaser *p, struct phased *k);

/* A unit that is built from the units that a kernel of phases computes. */
struct maker {
  struct phaser *p;
  struct phased *k;
  struct graph *g;
  struct uop *range[MOST_NUMBERS]; /* ranges of the kernel */
  unsigned nranges;
  struct uop *around[MAX_RANK]; /* the ranges that the phases share */
  unsigned naround;
  struct uop *row[MAX_RANK];       /* by number of a row range: its value in the kernel */
  struct uop *first, *in;          /* the block's first row; the row's number in its block */
  struct uop *local[MOST_MEMBERS]; /* by member */
  struct {
    struct uop *chunk, *in;
  } limited[MOST_NUMBERS / 2]; /* the two ranges of each limited one */
  unsigned nlimited;
};

/* Substitutions of a unit's ranges. */
struct renamed {
  struct uop *from[MOST_NUMBERS], *to[MOST_NUMBERS];
  unsigned n;
};

static inline const struct unit *phase_unit_of(const struct maker *m, const struct member *x) {
  return &m->p->s->unit[x->unit];
}
struct uop *phase_new_range(struct maker *m, struct uop *bound, enum axis_kind kind);
void phase_rename_range(struct renamed *r, struct uop *from, struct uop *to);
struct uop *phase_renamed(struct maker *m, struct uop *u, const struct renamed *r);

/* padding.c */
/* Lets the kernels that compute columns in rounds load operands of products from copies with aligned rows. */
void phases_pad(struct phaser *p);

/* blocks.c */
/* Whether the kernel computes all columns at once, or can compute them in rounds, and whether there is room for the
 * rows that matrix instructions of a whole workgroup compute. Without such instructions there is. */
enum phases_fit { FITS_NOT, FITS_ROUNDS, FITS_TILES };
enum phases_fit phases_fit(struct phaser *p, struct phased *k);
/* Whether the kernel can compute its columns in rounds. Chooses the rows of a block, the columns of a round, and the
 * slices. */
bool phases_choose_rounds(struct phaser *p, struct phased *k);

/* rounds.c */
/* Adds the stores of all phases, which compute a block of columns in each round. */
void phases_make_rounds(struct maker *m, struct unit *out, struct store *passed);
#endif
