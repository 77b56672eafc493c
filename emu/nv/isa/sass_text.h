/* SASS as text: the functions that print a row's lists (sass_print.c) and the special cases that lists cannot express
 * (sass_special.c). */
#ifndef DOORBELL_EMU_NV_SASS_TEXT_H
#define DOORBELL_EMU_NV_SASS_TEXT_H
#include <inttypes.h>
#include "sass_table.h"

struct text {
  const struct sass_inst *in;
  char *buf;
  size_t cap, len;
  bool bad;     /* a value has no text */
  bool operand; /* at least one operand was written */
  bool jumps;   /* the last operand is a code address, in target */
  uint64_t target;
};

/* The position of a source operand. */
enum sass_place { AT_24, AT_32, AT_64, NUMBER, CONSTANT };
enum sass_place sass_place_of(char letter, unsigned form);

__attribute__((format(printf, 2, 3))) void sass_put(struct text *t, const char *fmt, ...);
void sass_next_operand(struct text *t);
void sass_put_target(struct text *t, uint64_t target);
void sass_put_hex(struct text *t, uint64_t v);
void sass_put_signed(struct text *t, int64_t v);
void sass_put_offset(struct text *t, int64_t v); /* "+0x10", or nothing for 0 */
void sass_put_float(struct text *t, double v);
void sass_put_register(struct text *t, unsigned n, bool uniform);
void sass_put_at(struct text *t, unsigned at, bool uniform); /* prints the register whose number is at a bit position */
void sass_put_predicate(struct text *t, unsigned n, bool not, bool uniform);
/* Prints a source as the list's letter and flags specify. part follows the register, for uniform registers inside
 * bars. */
void sass_put_source(struct text *t, char letter, const char *flags, size_t n, const char *part);
void sass_put_address(struct text *t, const char *p, const char *end);
/* Whether an address has its uniform register as a descriptor in the text: always from sm_90 on, before only if the
 * register holds a cache policy (bit 101). */
bool sass_prints_descriptor(const struct sass_inst *in);
/* Returns the text of ENUM(name) for the value of a field. */
const char *sass_name_of(struct text *t, const char *name, size_t len, const char **bits);
double sass_from_f32(uint32_t bits);
double sass_from_f64_high(uint32_t bits);
double sass_from_f16(uint32_t bits);

/* Calls the function of "*name". */
void sass_special(struct text *t, const char *name, size_t n);
#endif
