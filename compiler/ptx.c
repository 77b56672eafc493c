/* PTX text without instructions that ptxas 13.0 translates to wrong code. All were found by comparing its machine code,
 * as nvdisasm prints it, with the text; with -O0 ptxas translates them correctly:
 *
 *   sub.s64 of the upper half of a product, mul.hi.u32 extended by cvt.u64.u32: ptxas negates the lower word of the
 *   other operand first and adds it in IMAD.HI. Where this word is 0, the carry is missing and the upper word of the
 *   result is one too small. Quotients by constants are such halves. a - b becomes a + ~b + 1. Versions 12.9 to 13.4.
 *
 *   add.s16x2 with a constant if only 16 bits of the result are stored: ptxas adds 0. Becomes two additions. Version
 *   13.4 is correct.
 *
 *   neg.s16 and abs.s16 of -32768 if the result is extended or compared: ptxas computes in 32 bits and omits the sign
 *   extension that follows, so the result is 32768. -a becomes ~a + 1, which it extends. Version 13.4 is correct. */
#include "internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 128 }; /* lines with these instructions are shorter */

/* The registers that hold the upper half of a product, %r and %rd, as bits by number. */
struct halves {
  uint8_t *words, *wide;
  size_t n;
};

static void mark(uint8_t *bits, size_t n, unsigned r) {
  if (r < n) bits[r / 8] |= (uint8_t)(1u << r % 8);
}
static bool marked(const uint8_t *bits, size_t n, unsigned r) { return r < n && bits[r / 8] >> r % 8 & 1; }

/* Copies the line at p to `line`, or an empty line if it is longer than LONGEST_LINE. Returns the end of the line. */
static const char *next_line(const char *p, const char *end, char line[LONGEST_LINE]) {
  const char *newline = memchr(p, '\n', (size_t)(end - p)), *after = newline ? newline + 1 : end;
  size_t n = (size_t)(after - p) < LONGEST_LINE ? (size_t)(after - p) : 0;
  memcpy(line, p, n);
  line[n] = 0;
  return after;
}

static void find_halves(const char *text, const char *end, struct halves *h) {
  char line[LONGEST_LINE];
  unsigned to, from;
  for (const char *p = text; p < end;) {
    p = next_line(p, end, line);
    if (sscanf(line, " mul.hi.u32 %%r%u,", &to) == 1) mark(h->words, h->n, to);
  }
  for (const char *p = text; p < end;) {
    p = next_line(p, end, line);
    if (sscanf(line, " cvt.u64.u32 %%rd%u, %%r%u;", &to, &from) == 2 && marked(h->words, h->n, from))
      mark(h->wide, h->n, to);
  }
}

static void write_line(FILE *f, const char *line, const char *p, size_t n, const struct halves *h) {
  unsigned to, a, b;
  if (sscanf(line, " sub.s64 %%rd%u, %%rd%u, %%rd%u;", &to, &a, &b) == 3 && marked(h->wide, h->n, a))
    fprintf(f,
            "\t{ .reg .b64 not; not.b64 not, %%rd%u; add.s64 not, %%rd%u, not; add.s64 %%rd%u, not, 1; } // sub.s64\n",
            b, a, to);
  else if (sscanf(line, " add.s16x2 %%r%u, %%r%u, %%r%u;", &to, &a, &b) == 3)
    fprintf(f,
            "\t{ .reg .b16 a<2>, b<2>; mov.b32 {a0, a1}, %%r%u; mov.b32 {b0, b1}, %%r%u; add.s16 a0, a0, b0; "
            "add.s16 a1, a1, b1; mov.b32 %%r%u, {a0, a1}; } // add.s16x2\n",
            a, b, to);
  else if (sscanf(line, " neg.s16 %%rs%u, %%rs%u;", &to, &a) == 2)
    fprintf(f, "\t{ .reg .b16 not; not.b16 not, %%rs%u; add.s16 %%rs%u, not, 1; } // neg.s16\n", a, to);
  else if (sscanf(line, " abs.s16 %%rs%u, %%rs%u;", &to, &a) == 2)
    fprintf(f,
            "\t{ .reg .b16 not; not.b16 not, %%rs%u; add.s16 not, not, 1; max.s16 %%rs%u, %%rs%u, not; } // abs.s16\n",
            a, to, a);
  else
    fwrite(p, 1, n, f);
}

bool ptx_avoid_defects(struct codegen *k, void **text, size_t *size) {
  const char *begin = *text, *end = begin + *size;
  /* A register is defined in a line of more than 8 characters, so there are fewer than *size. */
  struct halves h = {calloc(1, *size / 8 + 1), calloc(1, *size / 8 + 1), *size};
  char *out = NULL, line[LONGEST_LINE];
  size_t length = 0;
  FILE *f = h.words && h.wide ? open_memstream(&out, &length) : NULL;
  if (f) {
    find_halves(begin, end, &h);
    for (const char *p = begin, *after; p < end; p = after) {
      after = next_line(p, end, line);
      write_line(f, line, p, (size_t)(after - p), &h);
    }
    if (fclose(f)) {
      free(out);
      out = NULL;
    }
  }
  free(h.words);
  free(h.wide);
  if (!out) return codegen_fail(k, "out of memory");
  free(*text);
  *text = out, *size = length;
  return true;
}
