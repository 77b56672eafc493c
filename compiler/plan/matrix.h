/* The matrix instructions of matrix.def, and the mapping from bits of lanes and registers to their operands'
 * coordinates. */
#ifndef DOORBELL_COMPILER_MATRIX_H
#define DOORBELL_COMPILER_MATRIX_H
#include "internal.h"

enum matrix_operand { MATRIX_A, MATRIX_B, MATRIX_C };
enum matrix_parts {
  PARTS_WHOLE,
  PARTS_PAIRS,
  PARTS_WORDS,
  PARTS_SIGNED,
  PARTS_SUM_FIRST,
  PARTS_PRODUCTS,
  PARTS_BYTES,
  PARTS_EXCHANGED,
  PARTS_MEMORY,
  PARTS_TILE_PAIRS,
  PARTS_TILE_WORDS,
  PARTS_TILES
};

struct matrix {
  const char *name, *machine;
  uint16_t m, n, k;
  enum dtype in, out;
  unsigned cycles;
  const char *intrinsic;
  enum matrix_parts parts;
  const char *bits[3][2]; /* by operand: bits of its first and second coordinate */
};

/* A run of consecutive bits of a coordinate that are all bits of the lane's number, or all of the element's number. */
struct matrix_run {
  bool lane;
  uint8_t coordinate, at; /* lowest bit of the run in the coordinate */
  uint8_t n, bit[8];      /* the lane's or element's bit for each bit of the run */
};
/* LANE_BITS: of a lane's number within one instruction; MOST_ELEMENT_BITS: of an element's number */
enum { MATRIX_RUNS = 8, LANE_BITS = 7, MOST_ELEMENT_BITS = 10 };

extern const struct matrix matrices[];
extern const unsigned matrix_count;

/* The type of operand A's or B's elements. */
enum dtype matrix_in(const struct matrix *x, enum matrix_operand o);
bool matrix_on(const struct matrix *x, const struct target *t); /* whether the machine has the instruction */
/* Returns the row with that name of n characters, or -1 if there is none. */
int matrix_named(const char *name, size_t n);
/* Fills out with the runs of an operand's first coordinate, then of its second. Returns the number of runs. */
unsigned matrix_runs(const struct matrix *x, enum matrix_operand o, struct matrix_run *out);
/* The number of elements of an operand in a lane's registers. */
unsigned matrix_elements(const struct matrix *x, enum matrix_operand o);
bool matrix_reads_tile(const struct matrix *x, enum matrix_operand o); /* from workgroup memory */
bool matrix_in_memory(const struct matrix *x); /* whether it reads an operand from workgroup memory */
/* The number of lanes that execute one instruction together: one wave or several. */
unsigned matrix_lanes(const struct matrix *x, unsigned wave);
/* Adds an axis for bits of a lane's or element's number, as a part of another axis. Returns its range. */
struct uop *matrix_new_axis(struct codegen *k, const struct axis *part_of, unsigned bits, enum axis_kind kind);
/* The kernel's MMA node, or NULL if there is none. */
const struct uop *matrix_of(const struct codegen *k);

/* Fills out with the axes that a MATRIX step made of an operand's coordinate (bits of lanes and elements), the highest
 * bit first. Returns their number. */
unsigned matrix_axes(const struct codegen *k, enum matrix_operand o, unsigned coordinate, struct axis_name *out);

/* The same for the axes of all bits of an element's number, of both coordinates. */
unsigned matrix_element_axes(const struct codegen *k, enum matrix_operand o, struct axis_name *out);

/* A sum of products, as an instruction computes it. */
struct matrix_product {
  struct uop *reduce, *operand[2];
  struct uop *when; /* condition under which the product counts; NULL: always */
  double factor;    /* constant factor of every product */
};
/* Fills in operand, when and factor for p->reduce. Returns false and writes why if x cannot compute it. */
bool matrix_product(const struct codegen *k, const struct matrix *x, struct matrix_product *p, char *why, size_t cap);
#endif
