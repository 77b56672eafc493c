/* rulegen IN.rules OUT.c: compiles a file of rewrite rules to C: a function a rule; one that tries them all, where tables over the root's
 * op and type and the first two sources' ops and types leave only those that may match; and the patterns as data, for tests.
 *
 * The notation is defined at the head of graph/rules/fold.rules. Every mistake is reported as FILE:LINE: message, and nothing is written. */
#include "graph/dtype.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum op {
#define OP(name, cls, arity, comm, doc) OP_##name,
#include "graph/ops.def"
#undef OP
  OP_COUNT
};
static const struct {
  const char *name, *cls;
  int arity, comm;
} ops[] = {
#define OP(name, cls, arity, comm, doc) {#name, #cls, arity, comm},
#include "graph/ops.def"
#undef OP
};
static const char *const types[] = {
#define X(e, name, bytes, cls) name,
    DTYPES(X)
#undef X
};
static const char type_classes[] = {
#define X(e, name, bytes, cls) cls,
    DTYPES(X)
#undef X
};
static const char *const type_enums[] = {
#define X(e, name, bytes, cls) "DT_" #e,
    DTYPES(X)
#undef X
};

static const char *file, *text, *at;
static FILE *out;

static unsigned line_of(const char *p) {
  unsigned n = 1;
  for (const char *s = text; s < p; s++) n += *s == '\n';
  return n;
}

__attribute__((noreturn, format(printf, 2, 3))) static void die(const char *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "%s:%u: ", file, line_of(p));
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  exit(1);
}

static void *must(void *p) {
  if (!p) {
    fprintf(stderr, "rulegen: out of memory\n");
    exit(1);
  }
  return p;
}
static char *copy(const char *s, size_t n) { return must(strndup(s, n)); }

/* ---- reading ---------------------------------------------------------------------------------------------------------------------- */
static void skip(void) {
  for (;;) {
    while (isspace((unsigned char)*at)) at++;
    if (at[0] != '/' || at[1] != '/') return;
    while (*at && *at != '\n') at++;
  }
}
static bool ident_char(char c) { return isalnum((unsigned char)c) || c == '_'; }
static char *ident(void) {
  const char *b = at;
  while (ident_char(*at)) at++;
  return copy(b, (size_t)(at - b));
}

enum kind { ANY, VARIABLE, CONSTANT, LITERAL, NODE, CODE };
struct term {
  enum kind kind;
  const char *where;
  char *name;        /* VARIABLE, CONSTANT, NODE with name@: bound name; CODE: the C text; LITERAL: the number */
  char *type;        /* what follows ':' */
  bool op[OP_COUNT]; /* NODE: which ops */
  unsigned nops;
  int arity;
  char *bracket; /* what stands between [ and ] */
  bool rest;     /* ends with ... */
  struct term *src[16];
  unsigned nsrc;
};

static struct {
  char *name;
  bool op[OP_COUNT];
} sets[32];
static unsigned nsets;
static struct {
  char *name, *code;
} givens[8]; /* names that every rule of the file has */
static unsigned ngivens;

/* Up to the matching closer, C strings and characters respected. */
static char *balanced(char open, char close) {
  const char *start = at;
  int depth = 0;
  char quote = 0;
  for (; *at; at++) {
    if (quote) {
      if (*at == '\\' && at[1])
        at++;
      else if (*at == quote)
        quote = 0;
    } else if (*at == '"' || *at == '\'')
      quote = *at;
    else if (*at == open)
      depth++;
    else if (*at == close && --depth == 0) {
      at++;
      return copy(start + 1, (size_t)(at - start) - 2);
    }
  }
  die(start, "no closing '%c'", close);
}

static void add_op(bool *set, const char *name, const char *where) {
  for (unsigned i = 0; i < OP_COUNT; i++)
    if (!strcmp(ops[i].name, name)) {
      set[i] = true;
      return;
    }
  bool found = false;
  for (unsigned i = 0; i < OP_COUNT; i++)
    if (!strcmp(ops[i].cls, name)) set[i] = found = true;
  for (unsigned i = 0; i < nsets && !found; i++)
    if (!strcmp(sets[i].name, name)) {
      for (unsigned k = 0; k < OP_COUNT; k++) set[k] |= sets[i].op[k];
      found = true;
    }
  if (!found) die(where, "no op or set of ops is called %s", name);
}

static void read_ops(bool *set) {
  const char *where = at;
  if (*at == '_' && !ident_char(at[1])) {
    at++;
    memset(set, 1, OP_COUNT * sizeof *set);
  } else if (*at == '{') {
    at++;
    for (skip(); *at != '}'; skip()) {
      if (!ident_char(*at)) die(at, "expected an op or '}'");
      const char *w = at;
      add_op(set, ident(), w);
    }
    at++;
  } else if (ident_char(*at))
    add_op(set, ident(), where);
  else
    die(at, "expected an op after '('");
}

static char *read_type(void) {
  if (*at != ':') return NULL;
  const char *b = ++at;
  while (ident_char(*at) || *at == '|') at++;
  if (at == b) die(b, "expected a type after ':'");
  return copy(b, (size_t)(at - b));
}

static struct term *read_term(bool replacement) {
  skip();
  struct term *t = must(calloc(1, sizeof *t));
  t->where = at;
  if (*at == '#') {
    at++;
    const char *b = at;
    if (*at == '-' || isdigit((unsigned char)*at)) {
      t->kind = LITERAL;
      if (*at == '-') at++;
      while (isalnum((unsigned char)*at) || *at == '.' || ((*at == '-' || *at == '+') && strchr("pPeE", at[-1]))) at++;
      t->name = copy(b, (size_t)(at - b));
      char *end;
      strtod(t->name, &end);
      if (*end || end == t->name) die(b, "#%s is not a number", t->name);
    } else if (ident_char(*at)) {
      t->kind = CONSTANT;
      t->name = ident();
      if (replacement) die(b, "#%s binds a constant; in a replacement write %s", t->name, t->name);
      if (!strcmp(t->name, "_")) t->name = NULL;
    } else
      die(b, "expected a name or a number after '#'");
    t->type = read_type();
    return t;
  }
  if (*at == '{' && replacement) {
    t->kind = CODE;
    t->name = balanced('{', '}');
    return t;
  }
  if (ident_char(*at)) {
    if (isdigit((unsigned char)*at)) die(at, "a bare number; constants are written #%s", ident());
    t->kind = VARIABLE;
    t->name = ident();
    if (!strcmp(t->name, "_")) {
      if (replacement) die(t->where, "_ stands for nothing in a replacement");
      t->kind = ANY;
    }
    if (*at == '@') {
      if (replacement) die(at, "@ binds a name and belongs in a pattern");
      at++;
      skip();
      if (*at != '(') die(at, "expected '(' after %s@", t->name);
    } else {
      t->type = read_type();
      return t;
    }
  }
  if (*at != '(') die(at, *at ? "unexpected '%c'" : "unexpected end of file", *at);
  const char *open = at++;
  t->kind = NODE;
  skip();
  read_ops(t->op);
  t->arity = -2;
  for (unsigned i = 0; i < OP_COUNT; i++) {
    if (!t->op[i]) continue;
    t->nops++;
    t->arity = t->arity == -2 || t->arity == ops[i].arity ? ops[i].arity : -1;
  }
  t->type = read_type();
  if (*at == '[') t->bracket = balanced('[', ']');
  for (skip(); *at != ')'; skip()) {
    if (!*at) die(open, "no closing ')'");
    if (!strncmp(at, "...", 3)) {
      at += 3;
      t->rest = true;
      skip();
      if (*at != ')') die(at, "... must be the last source");
      break;
    }
    if (t->nsrc == 16) die(at, "more than 16 sources");
    t->src[t->nsrc++] = read_term(replacement);
  }
  at++;
  if (t->arity >= 0 && !t->rest && (int)t->nsrc != t->arity) {
    for (unsigned i = 0; i < OP_COUNT; i++)
      if (t->op[i]) die(open, "%s has %d source%s, not %u", ops[i].name, t->arity, t->arity == 1 ? "" : "s", t->nsrc);
  }
  if (replacement && t->nops != 1) die(open, "a replacement needs one op");
  if (replacement && t->rest) die(open, "... belongs in a pattern");
  if (!replacement && t->bracket) die(open, "[...] belongs in a replacement; test ->aux and ->arg in the condition");
  return t;
}

/* A number as both kinds of constants take it: exact as an integer where it is written as one. */
static void write_number(const char *s) {
  double v = strtod(s, NULL);
  bool hex = s[s[0] == '-'] == '0' && (s[1 + (s[0] == '-')] | 32) == 'x';
  bool whole = !strchr(s, '.') && !strpbrk(s, hex ? "pP" : "eE");
  unsigned long long i = whole ? strtoull(s[0] == '-' ? s + 1 : s, NULL, 0) : (unsigned long long)(long long)v;
  fprintf(out, "%s(int64_t)%#llxu, %a", whole && s[0] == '-' ? "-" : "", i, v);
}

/* ---- writing ----------------------------------------------------------------------------------------------------------------------- */
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

/* && tests of type t on C expression e */
static void write_type_test(const char *t, const char *e, const char *where) {
  if (!t) return;
  fprintf(out, " && (");
  char *all = copy(t, strlen(t)), *save = NULL;
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
      while (i < DT_COUNT && strcmp(types[i], p)) i++;
      if (i == DT_COUNT) die(where, "no type or class of types is called %s", p);
      fprintf(out, "%s->dtype == %s", e, type_enums[i]);
    }
  }
  fprintf(out, ")");
  free(all);
}

static bool commutes(const struct term *t) {
  bool any = false;
  for (unsigned i = 0; i < OP_COUNT; i++) any |= t->op[i] && ops[i].comm;
  if (!any || t->nsrc != 2) return false;
  return t->src[0]->kind != ANY || t->src[1]->kind != ANY;
}

/* Tests on one source that need no descent, and its binding. */
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

/* The root's order of sources is the function's argument. */
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
    /* a name the pattern repeats is bound by its first occurrence, which stands to the left */
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
    if (!strcmp(types[i], t)) {
      fprintf(out, "%s", type_enums[i]);
      return;
    }
  if (!is_bound(t) && strcmp(t, "root")) die(where, "%s is neither a type nor a name of the pattern", t);
  fprintf(out, "%s->dtype", t);
}

/* The source whose type numbers beside it take, or -1. */
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

/* like: the number of the variable whose type an untyped number takes; 0: the root's. */
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

/* x: a, y: b   a SINK of x, a, y, b; false when there is no such list here. */
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
    skip();
    if (*at != ',') {
      at = end;
      fprintf(out, "}, %u)", 2 * n + 2);
      return true;
    }
    at++;
    skip();
  }
}

/* name = TERM   a name for a part of the replacement; false when there is none here. */
static bool write_binding(void) {
  const char *where = at;
  char *name = ident();
  skip();
  if (!*name || *at != '=' || at[1] == '>') {
    at = where;
    return false;
  }
  if (is_bound(name)) die(where, "%s is bound already", name);
  at++;
  skip();
  unsigned line = line_of(at);
  struct term *t = read_term(true);
  fprintf(out, "struct uop *%s =\n#line %u \"%s\"\n", name, line, file);
  write_replacement(t, 0);
  fprintf(out, ";\nif (%s) {\n", name);
  ndepth++;
  bind(name, where);
  return true;
}

struct rule {
  struct term *pattern;
  const char *begin;
  size_t length;
};

static void write_rule(struct rule *r, unsigned index) {
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
  skip();
  if (!strncmp(at, "&&", 2)) {
    at += 2;
    skip();
    const char *b = at;
    while (*at && strncmp(at, "=>", 2)) at++;
    if (!*at) die(b, "a condition without =>");
    fprintf(out, "if (\n#line %u \"%s\"\n%.*s\n) {\n", line_of(b), file, (int)(at - b), b);
    ndepth++;
  }
  if (strncmp(at, "=>", 2)) die(at, "expected && or => after the pattern");
  at += 2;
  skip();
  while (write_binding()) skip();
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

static void write_text(const char *s, size_t n) {
  fputc('"', out);
  bool space = false;
  for (size_t i = 0; i < n; i++) {
    if (s[i] == '/' && i + 1 < n && s[i + 1] == '/')
      while (i < n && s[i] != '\n') i++;
    if (i == n) break;
    if (isspace((unsigned char)s[i])) {
      space = true;
      continue;
    }
    if (space) fputc(' ', out);
    space = false;
    if (s[i] == '"' || s[i] == '\\') fputc('\\', out);
    fputc(s[i], out);
  }
  fputc('"', out);
}

static char *rest_of_line(void) {
  while (*at == ' ' || *at == '\t') at++;
  const char *b = at;
  while (*at && *at != '\n') at++;
  const char *e = at;
  while (e > b && isspace((unsigned char)e[-1])) e--;
  return copy(b, (size_t)(e - b));
}

/* ---- the table of patterns ----------------------------------------------------------------------------------------------------------- */
/* Bit mask of the types that a test admits. */
static uint32_t type_mask(const char *t, const char *where) {
  if (!t) return ~0u >> (32 - DT_COUNT);
  uint32_t mask = 0;
  char *all = copy(t, strlen(t)), *save = NULL;
  for (char *p = strtok_r(all, "|", &save); p; p = strtok_r(NULL, "|", &save)) {
    uint32_t had = mask;
    for (unsigned i = 0; i < DT_COUNT; i++) {
      char c = type_classes[i];
      if (!strcmp(p, types[i]) || (!strcmp(p, "int") && (c == 'i' || c == 'u')) || (!strcmp(p, "sint") && c == 'i') ||
          (!strcmp(p, "uint") && c == 'u') || (!strcmp(p, "float") && c == 'f'))
        mask |= 1u << i;
    }
    if (mask == had) die(where, "no type or class of types is called %s", p);
  }
  free(all);
  return mask;
}

static void write_terms(const struct term *t) {
  static const char *const kinds[] = {"ANY", "ANY", "CONST", "LITERAL", "NODE"};
  unsigned number = 0;
  if (t->name && t->kind != LITERAL) {
    for (unsigned i = 0; i < nbound; i++)
      if (!strcmp(bound[i], t->name) && strcmp(t->name, "_")) number = i + 1;
    if (!number && strcmp(t->name, "_")) bound[nbound++] = t->name, number = nbound;
  }
  double v = t->kind == LITERAL ? strtod(t->name, NULL) : 0;
  uint64_t mask[2] = {0};
  for (unsigned i = 0; i < OP_COUNT && t->kind == NODE; i++)
    if (t->op[i]) mask[i / 64] |= UINT64_C(1) << (i % 64);
  fprintf(out, "{RULE_%s, %u, %u, %d, %#x, {%#llx, %#llx}, %a},\n", kinds[t->kind], number, t->nsrc, t->rest,
          type_mask(t->type, t->where), (unsigned long long)mask[0], (unsigned long long)mask[1], v);
  for (unsigned i = 0; i < t->nsrc; i++) write_terms(t->src[i]);
}

/* ---- the dispatcher ------------------------------------------------------------------------------------------------------------------ */
/* One way to try a rule: with the root's first two sources in this order. */
struct way {
  unsigned rule, order;
  bool both;
  const struct term *pattern;
};

static bool admits(const struct term *source, unsigned op) {
  if (!source || source->kind == ANY || source->kind == VARIABLE) return true;
  return source->kind == NODE ? source->op[op] : op == OP_CONST;
}

static const struct term *source_of(const struct way *w, unsigned i) {
  unsigned from = w->order && i < 2 ? !i : i;
  return from < w->pattern->nsrc ? w->pattern->src[from] : NULL;
}

/* A table of bit masks of ways, by what the root or a source has. */
static void write_filter(const char *name, unsigned op, const struct way *way, unsigned n, unsigned entries,
                         bool (*may)(const struct way *w, unsigned entry)) {
  fprintf(out, "static const uint64_t %s_%s[%u][%u] = {", name, ops[op].name, entries, (n + 63) / 64);
  for (unsigned e = 0; e < entries; e++) {
    fprintf(out, "{");
    for (unsigned word = 0; word < (n + 63) / 64; word++) {
      uint64_t mask = 0;
      for (unsigned i = word * 64; i < n && i < word * 64 + 64; i++)
        if (may(&way[i], e)) mask |= UINT64_C(1) << (i % 64);
      fprintf(out, "%#llx,", (unsigned long long)mask);
    }
    fprintf(out, "},");
  }
  fprintf(out, "};\n");
}
static bool may_type(const struct way *w, unsigned t) {
  return type_mask(w->pattern->type, w->pattern->where) >> t & 1;
}
static bool may_first(const struct way *w, unsigned op) { return admits(source_of(w, 0), op); }
static bool may_second(const struct way *w, unsigned op) { return admits(source_of(w, 1), op); }
static bool may_first_type(const struct way *w, unsigned t) {
  const struct term *s = source_of(w, 0);
  return !s || type_mask(s->type, s->where) >> t & 1;
}

/* Sources a node of this op has for certain. */
static int sure_sources(unsigned op) { return ops[op].arity < 0 ? 0 : ops[op].arity; }

static void write_tables(unsigned op, const struct way *way, unsigned n) {
  write_filter("type", op, way, n, DT_COUNT, may_type);
  if (sure_sources(op) > 0) {
    write_filter("first", op, way, n, OP_COUNT, may_first);
    write_filter("from", op, way, n, DT_COUNT, may_first_type);
  }
  if (sure_sources(op) > 1) write_filter("second", op, way, n, OP_COUNT, may_second);
}

static void write_case(unsigned op, const struct way *way, unsigned n) {
  fprintf(out, "case OP_%s:\n", ops[op].name);
  const char *o = ops[op].name;
  for (unsigned word = 0; word < (n + 63) / 64; word++) {
    fprintf(out, "m = type_%s[root->dtype][%u]", o, word);
    if (sure_sources(op) > 0)
      fprintf(out, " & first_%s[root->src[0]->op][%u] & from_%s[root->src[0]->dtype][%u]", o, word, o, word);
    if (sure_sources(op) > 1) fprintf(out, " & second_%s[root->src[1]->op][%u]", o, word);
    fprintf(out, ";\nfor (; m; m &= m - 1)\nswitch (__builtin_ctzll(m)) {\n");
    for (unsigned i = word * 64; i < n && i < word * 64 + 64; i++) {
      fprintf(out, "case %u: if ((r = rule_%u(g, ctx, root", i % 64, way[i].rule);
      if (way[i].both) fprintf(out, ", %u", way[i].order);
      fprintf(out, "))) return r; break;\n");
    }
    fprintf(out, "}\n");
  }
  fprintf(out, "return NULL;\n");
}

static void generate(void) {
  static struct rule rules[4096];
  unsigned n = 0;
  char *name = NULL;
  fprintf(out, "/* Generated by rulegen from %s. */\n#include \"graph/rules.h\"\n", file);
  for (skip(); *at; skip()) {
    const char *where = at;
    if (*at == '(' || strchr("@:", *at)) {
      if (!name) die(where, "a rule before `set NAME`");
      if (n == 4096) die(where, "more than 4096 rules");
      struct rule *r = &rules[n];
      r->begin = at;
      r->pattern = read_term(false);
      if (r->pattern->kind != NODE) die(where, "a pattern starts with '('");
      write_rule(r, n++);
    } else if (*at == '#') {
      at++;
      char *word = ident();
      if (strcmp(word, "include")) die(where, "#%s is not a directive; there is #include", word);
      fprintf(out, "#include %s\n", rest_of_line());
    } else if (ident_char(*at)) {
      char *word = ident();
      if (*at == '@') {
        at = where;
        if (!name) die(where, "a rule before `set NAME`");
        struct rule *r = &rules[n];
        r->begin = at;
        r->pattern = read_term(false);
        write_rule(r, n++);
      } else if (!strcmp(word, "set")) {
        skip();
        if (name) die(where, "a second `set` in one file");
        name = ident();
        if (!*name) die(where, "expected a name after `set`");
      } else if (!strcmp(word, "let")) {
        skip();
        if (nsets == 32) die(where, "more than 32 sets of ops");
        sets[nsets].name = ident();
        skip();
        if (!*sets[nsets].name || *at != '=') die(where, "expected let NAME = {OPS}");
        at++;
        skip();
        read_ops(sets[nsets].op);
        nsets++;
      } else if (!strcmp(word, "given")) {
        skip();
        if (ngivens == sizeof givens / sizeof *givens) die(where, "more than %u given names", ngivens);
        givens[ngivens].name = ident();
        skip();
        if (!*givens[ngivens].name || *at != '=') die(where, "expected given NAME = {C}");
        at++;
        skip();
        if (*at != '{') die(at, "expected '{' after given %s =", givens[ngivens].name);
        givens[ngivens++].code = balanced('{', '}');
      } else
        die(where, "%s is neither a rule nor a directive (set, let, given, #include)", word);
    } else
      die(where, "unexpected '%c'", *at);
  }
  if (!name) die(at, "no `set NAME`");
  if (!n) die(at, "no rules");

  static struct way ways[OP_COUNT][256];
  static unsigned nways[OP_COUNT];
  for (unsigned op = 0; op < OP_COUNT; op++) {
    for (unsigned i = 0; i < n; i++) {
      if (!rules[i].pattern->op[op]) continue;
      bool both = commutes(rules[i].pattern);
      for (unsigned order = 0; order < (both && ops[op].comm ? 2 : 1); order++) {
        if (nways[op] == 256) die(rules[i].begin, "too many rules for %s", ops[op].name);
        ways[op][nways[op]++] = (struct way){i, order, both, rules[i].pattern};
      }
    }
    if (nways[op]) write_tables(op, ways[op], nways[op]);
  }
  fprintf(out, "static struct uop *apply(struct graph *g, void *ctx, struct uop *root) {\nstruct uop *r;\nuint64_t m;\n"
               "switch (root->op) {\n");
  for (unsigned op = 0; op < OP_COUNT; op++)
    if (nways[op]) write_case(op, ways[op], nways[op]);
  fprintf(out, "default: return NULL;\n}\n}\n\n");
  for (unsigned i = 0; i < n; i++) {
    nbound = 0;
    fprintf(out, "static const struct rule_term pattern_%u[] = {\n", i);
    write_terms(rules[i].pattern);
    fprintf(out, "};\n");
  }
  for (unsigned op = 0; op < OP_COUNT; op++) {
    bool any = false;
    for (unsigned i = 0; i < n; i++) {
      if (!rules[i].pattern->op[op]) continue;
      if (!any) fprintf(out, "static const uint16_t by_%s[] = {", ops[op].name);
      any = true;
      fprintf(out, "%u, ", i);
    }
    if (any) fprintf(out, "UINT16_MAX};\n");
  }
  fprintf(out, "static const struct rule rules[] = {\n");
  for (unsigned i = 0; i < n; i++) {
    fprintf(out, "{");
    write_text(rules[i].begin, rules[i].length);
    fprintf(out, ", %u, %s_%u, pattern_%u},\n", line_of(rules[i].begin), commutes(rules[i].pattern) ? "either" : "rule",
            i, i);
  }
  fprintf(out, "};\nstatic struct rule_stats stats[%u];\n", n);
  fprintf(
      out,
      "extern const struct ruleset rules_%s;\nconst struct ruleset rules_%s = {\"%s\", \"%s\", rules, %u, apply, {\n",
      name, name, name, file, n);
  for (unsigned op = 0; op < OP_COUNT; op++) {
    bool any = false;
    for (unsigned i = 0; i < n; i++) any |= rules[i].pattern->op[op];
    if (any) fprintf(out, "[OP_%s] = by_%s,\n", ops[op].name, ops[op].name);
  }
  fprintf(out, "}, stats};\n");
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: rulegen IN.rules OUT.c\n");
    return 2;
  }
  file = argv[1];
  FILE *in = fopen(file, "r");
  if (!in) {
    perror(file);
    return 1;
  }
  size_t cap = 1 << 20, n;
  char *buf = must(malloc(cap));
  n = fread(buf, 1, cap - 1, in);
  if (n == cap - 1) {
    fprintf(stderr, "%s: larger than %zu bytes\n", file, cap);
    return 1;
  }
  buf[n] = 0;
  fclose(in);
  text = at = buf;
  char *code = NULL;
  size_t size = 0;
  out = must(open_memstream(&code, &size));
  generate();
  fclose(out);
  FILE *f = fopen(argv[2], "w");
  if (!f || fwrite(code, 1, size, f) != size || fclose(f)) {
    perror(argv[2]);
    return 1;
  }
  return 0;
}
