/* Writes each rule as a C function that tests the pattern and the condition and builds the replacement. */
#include "rulegen.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

FILE *out;

static struct {
  char *name, *code;
} givens[8]; /* names defined by `given`, for every rule of the file */
static unsigned ngivens;

/* Writes a number as the integer and the float argument of rule_const; the integer is exact if the number is written as
 * one. */
static void write_number(const char *s) {
  double v = strtod(s, NULL);
  bool hex = s[s[0] == '-'] == '0' && (s[1 + (s[0] == '-')] | 32) == 'x';
  bool whole = !strchr(s, '.') && !strpbrk(s, hex ? "pP" : "eE");
  unsigned long long i = whole ? strtoull(s[0] == '-' ? s + 1 : s, NULL, 0) : (unsigned long long)(long long)v;
  fprintf(out, "%s(int64_t)%#llxu, %a", whole && s[0] == '-' ? "-" : "", i, v);
}
static const char *bound[64]; /* names seen so far in this rule */
static unsigned nbound, ntemp, ndepth;

static bool is_bound(const char *name) {
  for (unsigned i = 0; i < nbound; i++)
    if (!strcmp(bound[i], name)) return true;
  return false;
}
static void bind(const char *name, const char *where) {
  static const char *const taken[] = {"g", "ctx", "root"};
  for (unsigned i = 0; i < 3; i++)
    if (!strcmp(taken[i], name)) die(where, "%s already has a meaning", name);
  if (nbound == 64) die(where, "more than 64 names in a rule");
  bound[nbound++] = name;
}

/* Writes && tests that C expression e has type t. */
static void write_type_test(const char *t, const char *e, const char *where) {
  if (!t) return;
  fprintf(out, " && (");
  char *all = copy_text(t, strlen(t)), *save = NULL;
  bool first = true;
  for (char *p = strtok_r(all, "|", &save); p; p = strtok_r(NULL, "|", &save), first = false) {
    if (!first) fprintf(out, " || ");
    if (!strcmp(p, "int"))
      fprintf(out, "dtype_is_int(%s->dtype)", e);
    else if (!strcmp(p, "sint"))
      fprintf(out, "dtype_info[%s->dtype].cls == 'i'", e);
    else if (!strcmp(p, "uint"))
      fprintf(out, "dtype_info[%s->dtype].cls == 'u'", e);
    else if (!strcmp(p, "float"))
      fprintf(out, "dtype_is_float(%s->dtype)", e);
    else {
      unsigned i = 0;
      while (i < DT_COUNT && strcmp(types[i].name, p)) i++;
      if (i == DT_COUNT) die(where, "unknown type or class of types: %s", p);
      fprintf(out, "%s->dtype == %s", e, types[i].symbol);
    }
  }
  fprintf(out, ")");
  free(all);
}

bool commutes(const struct term *t) {
  bool any = false;
  for (unsigned i = 0; i < OP_COUNT; i++) any |= t->op[i] && ops[i].comm;
  if (!any || t->nsrc != 2) return false;
  return t->src[0]->kind != ANY || t->src[1]->kind != ANY;
}

/* Writes the tests on one source that do not look at its own sources. */
static void write_leaf_tests(const struct term *t, const char *e) {
  switch (t->kind) {
  case NODE:
    if (t->nops == 1) {
      for (unsigned i = 0; i < OP_COUNT; i++)
        if (t->op[i]) fprintf(out, " && %s->op == OP_%s", e, ops[i].name);
    } else if (t->nops < OP_COUNT) {
      fprintf(out, " && (");
      for (unsigned i = 0, n = 0; i < OP_COUNT; i++)
        if (t->op[i]) fprintf(out, "%s%s->op == OP_%s", n++ ? " || " : "", e, ops[i].name);
      fprintf(out, ")");
    }
    if (t->rest && t->nsrc)
      fprintf(out, " && %s->nsrc >= %u", e, t->nsrc);
    else if (!t->rest && t->arity < 0)
      fprintf(out, " && %s->nsrc == %u", e, t->nsrc);
    break;
  case LITERAL:

    fprintf(out, " && rule_const_is(%s, ", e);
    write_number(t->name);
    fprintf(out, ")");
    break;
  case CONSTANT: fprintf(out, " && %s->op == OP_CONST", e); break;
  default: break;
  }
  if ((t->kind == VARIABLE || t->kind == CONSTANT) && t->name && is_bound(t->name))
    fprintf(out, " && %s == %s", e, t->name);
  write_type_test(t->type, e, t->where);
}

static void write_bindings(const struct term *t, const char *e) {
  if (!t->name || t->kind == LITERAL || is_bound(t->name)) return;
  bind(t->name, t->where);
  fprintf(out, "struct uop *%s __attribute__((unused)) = %s;\n", t->name, e);
}

/* Writes the match of t's sources. The order of the root's sources is an argument of the generated function. */
static void write_match(const struct term *t, const char *e, bool is_root) {
  char name[16][16], order[16] = "order";
  bool both = commutes(t);
  if (!is_root) snprintf(order, sizeof order, "o%u", ntemp++);
  if (both && !is_root) {
    bool always = true;
    for (unsigned i = 0; i < OP_COUNT; i++) always &= !t->op[i] || ops[i].comm;
    if (always)
      fprintf(out, "for (unsigned %s = 0; %s < 2; %s++) {\n", order, order, order);
    else
      fprintf(out, "for (unsigned %s = 0; %s < (op_info[%s->op].commutative ? 2 : 1); %s++) {\n", order, order, e,
              order);
    ndepth++;
  }
  for (unsigned i = 0; i < t->nsrc; i++) {
    snprintf(name[i], sizeof name[i], "s%u", ntemp++);
    if (both)
      fprintf(out, "struct uop *%s __attribute__((unused)) = %s->src[%s%s];\n", name[i], e, i ? "!" : "", order);
    else
      fprintf(out, "struct uop *%s __attribute__((unused)) = %s->src[%u];\n", name[i], e, i);
  }
  for (unsigned i = 0; i < t->nsrc; i++) {
    const struct term *s = t->src[i];
    /* a repeated name is bound by its leftmost occurrence */
    fprintf(out, "if (1");
    write_leaf_tests(s, name[i]);
    fprintf(out, ") {\n");
    ndepth++;
    write_bindings(s, name[i]);
  }
  for (unsigned i = 0; i < t->nsrc; i++)
    if (t->src[i]->kind == NODE) write_match(t->src[i], name[i], false);
}

static void write_type_value(const char *t, const char *where) {
  for (unsigned i = 0; i < DT_COUNT; i++)
    if (!strcmp(types[i].name, t)) {
      fprintf(out, "%s", types[i].symbol);
      return;
    }
  if (!is_bound(t) && strcmp(t, "root")) die(where, "%s is neither a type nor a name of the pattern", t);
  fprintf(out, "%s->dtype", t);
}

/* The source whose type the untyped numbers beside it take, or -1. */
static int typed_sibling(const struct term *t, unsigned op) {
  int sibling = -1;
  bool wanted = false;
  for (unsigned i = t->nsrc; i-- > (op == OP_WHERE ? 1u : 0u);) {
    if (t->src[i]->kind == LITERAL)
      wanted |= !t->src[i]->type;
    else
      sibling = (int)i;
  }
  return wanted ? sibling : -1;
}

/* like: number of the variable likeN whose type an untyped number takes; 0: the root's type. */
static void write_replacement(const struct term *t, unsigned like) {
  static unsigned nlike;
  switch (t->kind) {
  case VARIABLE:
    if (!is_bound(t->name) && strcmp(t->name, "root")) die(t->where, "the pattern does not bind %s", t->name);
    if (t->type) die(t->where, "a type cannot be given to %s here", t->name);
    fprintf(out, "%s", t->name);
    break;
  case LITERAL:
    fprintf(out, "rule_const(g, ");
    if (!t->type && like)
      fprintf(out, "like%u->dtype", like);
    else
      write_type_value(t->type ? t->type : "root", t->where);
    fprintf(out, ", ");
    write_number(t->name);
    fprintf(out, ")");
    break;
  case CODE: fprintf(out, "(%s)", t->name); break;
  case NODE: {
    unsigned op = 0;
    while (!t->op[op]) op++;
    if (!t->type && (op == OP_CAST || op == OP_BITCAST)) die(t->where, "%s needs a type here", ops[op].name);
    int sibling = typed_sibling(t, op);
    unsigned mine = sibling < 0 ? 0 : ++nlike;
    if (mine) {
      fprintf(out, "({\nstruct uop *like%u = ", mine);
      write_replacement(t->src[sibling], 0);
      fprintf(out, ";\n!like%u ? NULL : ", mine);
    }
    fprintf(out, "rule_node(g, OP_%s, ", ops[op].name);
    if (t->type)
      write_type_value(t->type, t->where);
    else
      fprintf(out, "DT_COUNT");
    char *comma = t->bracket ? strchr(t->bracket, ',') : NULL;
    if (comma) *comma++ = 0;
    fprintf(out, ", %s, %s, (struct uop *[]){", t->bracket ? t->bracket : "0", comma ? comma : "0");
    for (unsigned i = 0; i < t->nsrc; i++) {
      if (i) fprintf(out, ", ");
      if (mine && (int)i == sibling)
        fprintf(out, "like%u", mine);
      else
        write_replacement(t->src[i], mine);
    }
    fprintf(out, "%s}, %u)%s", t->nsrc ? "" : "NULL", t->nsrc, mine ? ";\n})" : "");
    break;
  }
  default: die(t->where, "not a replacement");
  }
}

/* Writes the list `x: a, y: b` as a SINK of x, a, y, b. Returns false if the text here is not such a list. */
static bool write_flows(void) {
  for (unsigned n = 0;; n++) {
    const char *where = at;
    char *name = ident();
    if (*at != ':') {
      if (n) die(where, "expected a name and ':' after ','");
      at = where;
      return false;
    }
    at++;
    if (!is_bound(name)) die(where, "the pattern does not bind %s", name);
    fprintf(out, n ? ", %s, " : "rule_node(g, OP_SINK, DT_VOID, 0, 0, (struct uop *[]){%s, ", name);
    write_replacement(read_term(true), 0);
    const char *end = at;
    skip_blanks();
    if (*at != ',') {
      at = end;
      fprintf(out, "}, %u)", 2 * n + 2);
      return true;
    }
    at++;
    skip_blanks();
  }
}

/* Writes `name = TERM`, a name for a part of the replacement. Returns false if the text here is not a definition. */
static bool write_binding(void) {
  const char *where = at;
  char *name = ident();
  skip_blanks();
  if (!*name || *at != '=' || at[1] == '>') {
    at = where;
    return false;
  }
  if (is_bound(name)) die(where, "%s is bound already", name);
  at++;
  skip_blanks();
  unsigned line = line_of(at);
  struct term *t = read_term(true);
  fprintf(out, "struct uop *%s =\n#line %u \"%s\"\n", name, line, file);
  write_replacement(t, 0);
  fprintf(out, ";\nif (%s) {\n", name);
  ndepth++;
  bind(name, where);
  return true;
}
void write_rule(struct rule *r, unsigned index) {
  struct term *p = r->pattern;
  nbound = ntemp = ndepth = 0;
  bool both = commutes(p);
  fprintf(out, "static struct uop *rule_%u(struct graph *g, void *ctx, struct uop *root%s) {\n", index,
          both ? ", unsigned order" : "");
  for (unsigned i = 0; i < ngivens; i++) {
    bind(givens[i].name, p->where);
    fprintf(out, "__auto_type %s __attribute__((unused)) = %s;\n", givens[i].name, givens[i].code);
  }
  fprintf(out, "if (1");
  write_leaf_tests(p, "root");
  fprintf(out, ") {\n");
  ndepth++;
  if (p->name) write_bindings(p, "root");
  write_match(p, "root", true);
  skip_blanks();
  if (!strncmp(at, "&&", 2)) {
    at += 2;
    skip_blanks();
    const char *b = at;
    while (*at && strncmp(at, "=>", 2)) at++;
    if (!*at) die(b, "a condition without =>");
    fprintf(out, "if (\n#line %u \"%s\"\n%.*s\n) {\n", line_of(b), file, (int)(at - b), b);
    ndepth++;
  }
  if (strncmp(at, "=>", 2)) die(at, "expected && or => after the pattern");
  at += 2;
  skip_blanks();
  while (write_binding()) skip_blanks();
  unsigned line = line_of(at);
  fprintf(out, "struct uop *result =\n#line %u \"%s\"\n", line, file);
  if (!write_flows()) write_replacement(read_term(true), 0);
  fprintf(out, ";\nif (result) return result;\n");
  for (unsigned i = 0; i < ndepth; i++) fprintf(out, "}\n");
  fprintf(out, "return NULL;\n}\n\n");
  if (both)
    fprintf(out,
            "static struct uop *either_%u(struct graph *g, void *ctx, struct uop *root) {\n"
            "struct uop *r = rule_%u(g, ctx, root, 0);\n"
            "return r || !op_info[root->op].commutative ? r : rule_%u(g, ctx, root, 1);\n}\n\n",
            index, index, index);
  r->length = (size_t)(at - r->begin);
}

void give_name(const char *where) {
  skip_blanks();
  if (ngivens == sizeof givens / sizeof *givens) die(where, "more than %u given names", ngivens);
  givens[ngivens].name = ident();
  skip_blanks();
  if (!*givens[ngivens].name || *at != '=') die(where, "expected given NAME = {C}");
  at++;
  skip_blanks();
  if (*at != '{') die(at, "expected '{' after given %s =", givens[ngivens].name);
  givens[ngivens++].code = read_balanced('{', '}');
}
