/* Reads rule files: words, terms, sets of ops, and types. */
#include "rulegen.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const struct op_row ops[OP_COUNT] = {
#define OP(name, cls, arity, comm, doc) {#name, #cls, arity, comm},
#include "graph/ops.def"
#undef OP
};
const struct type_row types[DT_COUNT] = {
#define X(e, name, bytes, cls) {name, "DT_" #e, cls},
    DTYPES(X)
#undef X
};
const char *file, *text, *at;

unsigned line_of(const char *p) {
  unsigned n = 1;
  for (const char *s = text; s < p; s++) n += *s == '\n';
  return n;
}

__attribute__((noreturn, format(printf, 2, 3))) void die(const char *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "%s:%u: ", file, line_of(p));
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  exit(1);
}

void *check_memory(void *p) {
  if (!p) {
    fprintf(stderr, "rulegen: out of memory\n");
    exit(1);
  }
  return p;
}
char *copy_text(const char *s, size_t n) { return check_memory(strndup(s, n)); }

void skip_blanks(void) {
  for (;;) {
    while (isspace((unsigned char)*at)) at++;
    if (at[0] != '/' || at[1] != '/') return;
    while (*at && *at != '\n') at++;
  }
}
bool ident_char(char c) { return isalnum((unsigned char)c) || c == '_'; }
char *ident(void) {
  const char *b = at;
  while (ident_char(*at)) at++;
  return copy_text(b, (size_t)(at - b));
}

static struct {
  char *name;
  bool op[OP_COUNT];
} sets[32];
static unsigned nsets;

/* Returns the text up to the matching closer; closers inside C strings and characters do not count. */
char *read_balanced(char open, char close) {
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
      return copy_text(start + 1, (size_t)(at - start) - 2);
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
  if (!found) die(where, "unknown op or set of ops: %s", name);
}

void read_ops(bool *set) {
  const char *where = at;
  if (*at == '_' && !ident_char(at[1])) {
    at++;
    memset(set, 1, OP_COUNT * sizeof *set);
  } else if (*at == '{') {
    at++;
    for (skip_blanks(); *at != '}'; skip_blanks()) {
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
  return copy_text(b, (size_t)(at - b));
}

/* #NAME or #NUMBER, after the '#'. */
static void read_constant(struct term *t, bool replacement) {
  const char *b = at;
  if (*at == '-' || isdigit((unsigned char)*at)) {
    t->kind = LITERAL;
    if (*at == '-') at++;
    while (isalnum((unsigned char)*at) || *at == '.' || ((*at == '-' || *at == '+') && strchr("pPeE", at[-1]))) at++;
    t->name = copy_text(b, (size_t)(at - b));
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
}

/* A name, or NAME@ before a node. Returns whether a node follows. */
static bool read_name(struct term *t, bool replacement) {
  if (isdigit((unsigned char)*at)) die(at, "a constant is written #%s", ident());
  t->kind = VARIABLE;
  t->name = ident();
  if (!strcmp(t->name, "_")) {
    if (replacement) die(t->where, "_ is not possible in a replacement");
    t->kind = ANY;
  }
  if (*at != '@') {
    t->type = read_type();
    return false;
  }
  if (replacement) die(at, "@ binds a name and belongs in a pattern");
  at++;
  skip_blanks();
  if (*at != '(') die(at, "expected '(' after %s@", t->name);
  return true;
}

static void read_sources(struct term *t, const char *open, bool replacement) {
  for (skip_blanks(); *at != ')'; skip_blanks()) {
    if (!*at) die(open, "no closing ')'");
    if (!strncmp(at, "...", 3)) {
      at += 3;
      t->rest = true;
      skip_blanks();
      if (*at != ')') die(at, "... must be the last source");
      break;
    }
    if (t->nsrc == 16) die(at, "more than 16 sources");
    t->src[t->nsrc++] = read_term(replacement);
  }
  at++;
}

static void read_node(struct term *t, bool replacement) {
  const char *open = at++;
  t->kind = NODE;
  skip_blanks();
  read_ops(t->op);
  t->arity = -2;
  for (unsigned i = 0; i < OP_COUNT; i++) {
    if (!t->op[i]) continue;
    t->nops++;
    t->arity = t->arity == -2 || t->arity == ops[i].arity ? ops[i].arity : -1;
  }
  t->type = read_type();
  if (*at == '[') t->bracket = read_balanced('[', ']');
  read_sources(t, open, replacement);
  if (t->arity >= 0 && !t->rest && (int)t->nsrc != t->arity) {
    for (unsigned i = 0; i < OP_COUNT; i++)
      if (t->op[i]) die(open, "%s has %d source%s, not %u", ops[i].name, t->arity, t->arity == 1 ? "" : "s", t->nsrc);
  }
  if (replacement && t->nops != 1) die(open, "a replacement needs one op");
  if (replacement && t->rest) die(open, "... belongs in a pattern");
  if (!replacement && t->bracket) die(open, "[...] belongs in a replacement; test ->aux and ->arg in the condition");
}

struct term *read_term(bool replacement) {
  skip_blanks();
  struct term *t = check_memory(calloc(1, sizeof *t));
  t->where = at;
  if (*at == '#') {
    at++;
    read_constant(t, replacement);
    return t;
  }
  if (*at == '{' && replacement) {
    t->kind = CODE;
    t->name = read_balanced('{', '}');
    return t;
  }
  if (ident_char(*at) && !read_name(t, replacement)) return t;
  if (*at != '(') die(at, *at ? "unexpected '%c'" : "unexpected end of file", *at);
  read_node(t, replacement);
  return t;
}
uint32_t type_mask(const char *t, const char *where) {
  if (!t) return ~0u >> (32 - DT_COUNT);
  uint32_t mask = 0;
  char *all = copy_text(t, strlen(t)), *save = NULL;
  for (char *p = strtok_r(all, "|", &save); p; p = strtok_r(NULL, "|", &save)) {
    uint32_t had = mask;
    for (unsigned i = 0; i < DT_COUNT; i++) {
      char c = types[i].cls;
      if (!strcmp(p, types[i].name) || (!strcmp(p, "int") && (c == 'i' || c == 'u')) ||
          (!strcmp(p, "sint") && c == 'i') || (!strcmp(p, "uint") && c == 'u') || (!strcmp(p, "float") && c == 'f'))
        mask |= 1u << i;
    }
    if (mask == had) die(where, "unknown type or class of types: %s", p);
  }
  free(all);
  return mask;
}

void name_ops(const char *where) {
  skip_blanks();
  if (nsets == 32) die(where, "more than 32 sets of ops");
  sets[nsets].name = ident();
  skip_blanks();
  if (!*sets[nsets].name || *at != '=') die(where, "expected let NAME = {OPS}");
  at++;
  skip_blanks();
  read_ops(sets[nsets].op);
  nsets++;
}
