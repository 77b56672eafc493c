/* Shared by the files of this folder: a contraction on the host, and the form in which it is computed. */
#ifndef DOORBELL_COMPILER_HOST_CONTRACT_H
#define DOORBELL_COMPILER_HOST_CONTRACT_H
#include "../internal.h"
#include "../matrix.h"

enum {
  SMALL_SUM = 8,         /* a shorter sum is not worth a tile's stores */
  FEW_TILES = 4,         /* data used by fewer tiles is not worth copying */
  BLOCK_BYTES = 5 << 20, /* of a block of rows: part of the third-level cache */
  KEPT_BYTES = 1 << 22,  /* of sums kept in memory, which are loaded and stored once per round */
  NEAR_BYTES = 1 << 14,  /* of a strip that stays in the first-level cache without a copy */
  LONG_SUM = 1 << 11,    /* a longer sum has rounds outside the tiles */
  LONG_TILE_SUM = 1536,  /* the same for tile registers */
  ROUND = 1 << 10,       /* maximum number of products per round */
  LEAST_ROUND = 8,       /* fraction of them that the shortest round has */
  SHORT_ROUND = 1 << 4,  /* the same if the columns are read in the order of memory */
  NEAR_CACHE = 1 << 20,  /* size of the second-level cache */
  MOST_TERMS = 8,        /* of the conditions outside which a product is 0 */
  INTEGER_STEPS = 2,     /* instructions of a vector that multiply integers and add them */
};

/* Cycles to read an element of an operand that does not fit into the second-level cache, and to copy it besides, if the
 * elements of the next product are on another page. */
#define FAR_READ 0.25
#define FAR_COPY 1.0

/* A factor of the products. */
struct operand {
  struct uop *value;
  uint64_t mask, unit; /* axes on which it depends; axes along which a load or its blocks are contiguous in memory */
  int64_t stride[MAX_AXES]; /* the largest stride among its loads */
  int64_t block[MAX_AXES];  /* block_of the only load, if plain and if it is a multiple of a vector; otherwise 0 */
  bool plain;               /* a single load without computation or conditions */
  bool masked;              /* a single load with conditions */
  const struct uop *load;   /* the only load, if it has no conditions and is at most converted to another type */
  double work;              /* cycles to compute an element of a vector */
  struct windows windows;
};

/* Conditions over the same axes outside which a product is 0, and the fraction of positions where they hold. */
struct support {
  uint64_t axes;
  double part;
};

/* A way to compute the contraction. columns_only, rows_only: axes that only one operand has, without the tile's. */
struct form {
  unsigned columns; /* index of the operand */
  int column, row;  /* axes of the tile; row is -1 if there is none */
  int64_t lanes, vectors, height;
  uint64_t columns_only, rows_only;
  uint64_t together; /* axes of columns_only along which columns are copied at once */
  bool pack_columns, whole, pack_rows;
  bool far_rows;     /* rows of more loops are copied together than the second-level cache holds */
  bool in_order;     /* columns are read where they are, and the vectors of the rounds are adjacent in memory */
  bool short_rounds; /* all tiles use a few far rows of the columns' matrix before the next ones are read */
  bool by_rows; /* rows are copied in strips, and all columns of a workgroup at once, instead of the other way round */
  double copy_columns, copy_rows, cycles; /* copy_columns, copy_rows: of making each copy once; cycles: of everything */
};

/* What multiplies: tile registers, instructions that sum several products in each lane, or multiply-adds. */
enum multiplier { BY_TILES, BY_DOTS, BY_VECTORS };

struct contraction {
  struct codegen *k;
  enum multiplier by;
  struct operand x[2];
  int64_t element; /* bytes per copied element: 4, or 8 for f64 */
  bool packs[2];   /* whether PACK can copy it */
  bool keeps;      /* whether sums can be kept in memory */
  uint64_t unit;   /* axes along which the output is contiguous */
  uint64_t near;   /* axes along which outputs are at most MOST_STRIDE elements apart */
  bool updates;    /* computing the outputs from the sums loads other arguments */
  struct uop *store;
  uint64_t sum; /* reduced axes */
  int64_t depth, outputs;
  const struct matrix *matrix; /* NULL: tiles are multiplied by vector instructions */
  struct support support[MOST_TERMS];
  unsigned nsupports;
  struct form form;
  uint64_t rounds; /* reduced axes outside the tiles */
};

/* The number of workgroups along the axes beside the tile's, and the tiles of rows and strips of columns per
 * workgroup. All workgroups have the same number of tiles and strips, so these are padded. */
struct shares {
  int64_t of[MAX_AXES], tiles, strips;
};

static inline bool is_loop(const struct codegen *k, unsigned a) { return k->axes[a].kind == AXIS_LOOP; }
static inline int64_t size_of(const struct codegen *k, int a) { return a < 0 ? 1 : k->axes[a].size; }
static inline uint64_t bit(int a) { return a < 0 ? 0 : UINT64_C(1) << a; }
static inline bool has(uint64_t mask, int a) { return a >= 0 && mask >> a & 1; }
static inline int64_t divide(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* The number of products that an instruction sums in each lane or element. */
static inline int64_t together_of(const struct contraction *c) { return c->matrix ? c->matrix->k : 1; }

/* The number of products whose factors have the bytes of an element in a copy. */
static inline int64_t per_element(const struct contraction *c) {
  return c->matrix ? c->element / dtype_info[c->matrix->in].size : 1;
}

/* The rows that an instruction multiplies at once. */
static inline int64_t rows_of(const struct contraction *c) { return c->matrix ? c->matrix->m : 1; }

/* Whether rounds of the sum are outside the tiles. */
static inline bool has_rounds(const struct contraction *c, const struct form *f) {
  return c->rounds || f->short_rounds || (c->depth > (c->by == BY_TILES ? LONG_TILE_SUM : LONG_SUM) && c->keeps);
}
static inline int64_t round_of(const struct form *f) { return f->short_rounds ? SHORT_ROUND : ROUND; }

/* The number of positions of the axes together. */
static inline int64_t extent(const struct codegen *k, uint64_t axes) {
  int64_t n = 1;
  for (; axes; axes &= axes - 1) n *= k->axes[__builtin_ctzll(axes)].size;
  return n;
}

/* The loops of the outputs. other_loops: those of which the tile has no part. */
static inline uint64_t loops(const struct codegen *k) {
  uint64_t m = 0;
  for (unsigned a = 0; a < k->naxes; a++)
    if (is_loop(k, a) && k->axes[a].size > 1) m |= UINT64_C(1) << a;
  return m;
}
static inline uint64_t other_loops(const struct contraction *c) {
  return loops(c->k) & ~bit(c->form.column) & ~bit(c->form.row);
}

/* find.c */
/* Reads the current kernel. Returns false if it is not a contraction, or not of a type that tile registers multiply. */
bool contraction_find(struct contraction *c, enum multiplier by);
/* The factor of the axis in the address of an INDEX, in elements. */
int64_t index_coefficient(const struct codegen *k, const struct uop *index, unsigned axis);

/* cost.c */
/* Sets the form to the one with the least cost, if that is less than the form's cycles or if these are 0. */
void form_choose(struct contraction *c);
double form_checking(const struct contraction *c, const struct form *f, bool rows_padded);
double form_masking(const struct contraction *c, const struct form *f, int64_t vectors, int64_t height);
int form_paired(const struct contraction *c, const struct form *f);
int form_run(const struct contraction *c, const struct form *f);
uint64_t form_rows_together(const struct contraction *c, const struct form *f);
double operand_elements(const struct operand *x, uint64_t axes); /* the number of distinct ones along the axes */
bool operand_is_window(const struct operand *x, uint64_t sum, int axis);
bool operand_is_far(const struct contraction *c, const struct operand *x);

/* inner.c */
/* Plans tiles with vectors along the sum if they take fewer cycles than the form. Sets *done to whether they do. */
bool inner_products(struct view *p, const struct contraction *c, bool *done);

/* shares.c */
struct shares contraction_shares(struct contraction *c);
#endif
