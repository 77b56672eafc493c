/* Internal to rulegen: the data that a rule file is read into, and the writers. */
#ifndef DOORBELL_GRAPH_RULEGEN_H
#define DOORBELL_GRAPH_RULEGEN_H
#include "graph/dtype.h"
#include <stdio.h>

enum op {
#define OP(name, cls, arity, comm, doc) OP_##name,
#include "graph/ops.def"
#undef OP
  OP_COUNT
};
extern const struct op_row {
  const char *name, *cls;
  int arity, comm;
} ops[OP_COUNT];
extern const struct type_row {
  const char *name, *symbol;
  char cls;
} types[DT_COUNT];

/* ---- read.c: one file as text, and the current position ---- */
extern const char *file, *text, *at;
unsigned line_of(const char *p);
__attribute__((noreturn, format(printf, 2, 3))) void die(const char *p, const char *fmt, ...); /* FILE:LINE: message */
void *check_memory(void *p);
char *copy_text(const char *s, size_t n);
void skip_blanks(void); /* blanks and comments */
bool ident_char(char c);
char *ident(void);
char *read_balanced(char open, char close); /* text up to the matching closer; skips C strings and characters */

enum kind { ANY, VARIABLE, CONSTANT, LITERAL, NODE, CODE };
struct term {
  enum kind kind;
  const char *where;
  char *name;        /* VARIABLE, CONSTANT, NODE with name@: the name; CODE: the C text; LITERAL: the number */
  char *type;        /* text after ':' */
  bool op[OP_COUNT]; /* NODE: the accepted ops */
  unsigned nops;
  int arity;
  char *bracket; /* text between [ and ] */
  bool rest;     /* ends with ... */
  struct term *src[16];
  unsigned nsrc;
};
struct term *read_term(bool replacement);
void read_ops(bool *set);
void name_ops(const char *where);                        /* reads a let NAME = {OPS} after `let` */
uint32_t type_mask(const char *type, const char *where); /* mask of the types that type accepts; NULL accepts all */

/* ---- write.c: a rule as a C function ---- */
extern FILE *out;
struct rule {
  struct term *pattern;
  const char *begin;
  size_t length;
};
void write_rule(struct rule *r, unsigned index); /* reads the rest of the rule, after its pattern */
void give_name(const char *where);               /* reads a given NAME = {C} after `given` */
bool commutes(const struct term *t);             /* whether its two sources are tried in both orders */
#endif
