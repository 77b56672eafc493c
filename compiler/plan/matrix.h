/* The matrix instructions of matrix.def, and which bits of lanes and registers their operands' coordinates are. */
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
  PARTS_MEMORY,
  PARTS_TILE_PAIRS,
  PARTS_TILE_WORDS
};

struct matrix {
  const char *name, *machine;
  uint16_t m, n, k;
  enum dtype in, out;
  unsigned cycles;
  const char *intrinsic;
  enum matrix_parts parts;
  const char *bits[3][2]; /* by operand: of its first and second coordinate */
};

/* Consecutive bits of a coordinate that are bits of the lane's number, or of the element's. */
struct matrix_run {
  bool lane;
  uint8_t coordinate, at; /* its lowest bit there */
  uint8_t n, bit[8];      /* which bit of the lane or element each one is */
};
enum { MATRIX_RUNS = 8, LANE_BITS = 7 }; /* of the lane's number among those of an instruction */

extern const struct matrix matrices[];
extern const unsigned matrix_count;

bool matrix_on(const struct matrix *x, const struct target *t); /* whether the machine has it */
/* The row of that name, n characters; -1: none. */
int matrix_named(const char *name, size_t n);
/* The runs of an operand's coordinates, those of the first one before those of the second. */
unsigned matrix_runs(const struct matrix *x, enum matrix_operand o, struct matrix_run *out);
/* Elements of an operand in a lane's registers. */
unsigned matrix_elements(const struct matrix *x, enum matrix_operand o);
bool matrix_in_memory(const struct matrix *x); /* whether its operands lie in workgroup memory */
/* Lanes that execute one instruction together: those of a wave, or of several. */
unsigned matrix_lanes(const struct matrix *x, unsigned wave);
/* The kernel's matrix instruction; NULL: it has none. */
const struct uop *matrix_of(const struct codegen *k);

/* The axes that a MATRIX step made of an operand's coordinate: bits of lanes and elements, highest first. */
unsigned matrix_axes(const struct codegen *k, enum matrix_operand o, unsigned coordinate, struct axis_name *out);

/* A sum of products, as an instruction computes it. */
struct matrix_product {
  struct uop *reduce, *operand[2];
  struct uop *when; /* only there the product counts; NULL: everywhere */
  double factor;    /* of every product */
};
/* Fills in operand, when and factor for p->reduce. False: x does not compute it. */
bool matrix_product(const struct codegen *k, const struct matrix *x, struct matrix_product *p, char *why, size_t cap);
#endif
