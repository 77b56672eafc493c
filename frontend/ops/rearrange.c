/* Splits, merges and permutes axes by name: "b (h d) s -> b h s d". */
#include "../tensor/call.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32 };

struct pattern { /* one side of the text: named axes in groups; a group is one axis of the tensor */
  unsigned n, groups;
  char name[MAX_RANK][NAME];
  unsigned group[MAX_RANK]; /* the group of each name */
};

/* Reads one side of the text up to `end`. Returns false if the call has failed. */
static bool read_side(struct call *c, const char *s, const char *end, struct pattern *p) {
  bool open = false;
  *p = (struct pattern){0};
  while (s < end) {
    if (isspace((unsigned char)*s)) {
      s++;
    } else if (*s == '(' && !open) {
      open = true, s++;
    } else if (*s == ')' && open) {
      open = false, s++;
      p->groups++;
    } else if (isalpha((unsigned char)*s) || *s == '_' || (*s == '1' && !isalnum((unsigned char)s[1]))) {
      size_t k = 1;
      while (s + k < end && (isalnum((unsigned char)s[k]) || s[k] == '_')) k++;
      if (p->n == MAX_RANK || k >= NAME || p->groups == MAX_RANK)
        return call_fail(c, "more than %d axes, or a name of %d letters: \"%.*s\"", MAX_RANK, NAME, (int)k, s), false;
      memcpy(p->name[p->n], s, k);
      p->group[p->n++] = p->groups;
      if (!open) p->groups++;
      s += k;
    } else {
      return call_fail(c, "'%c' names no axis", *s), false;
    }
  }
  return !open || (call_fail(c, "a parenthesis is not closed"), false);
}

static int find_name(const struct pattern *p, const char *name) {
  for (unsigned i = 0; i < p->n; i++)
    if (!strcmp(p->name[i], name)) return (int)i;
  return -1;
}

/* Reads sizes such as "h=4 d=8". Returns false if the call has failed. */
static bool read_sizes(struct call *c, const char *s, const struct pattern *p, int64_t *dim) {
  while (*s) {
    char name[NAME];
    unsigned n = 0;
    while (isspace((unsigned char)*s)) s++;
    if (!*s) break;
    while (n + 1 < NAME && (isalnum((unsigned char)*s) || *s == '_')) name[n++] = *s++;
    name[n] = 0;
    char *end = NULL;
    int64_t size = n && *s == '=' ? strtoll(s + 1, &end, 10) : -1;
    int at = find_name(p, name);
    if (!end || end == s + 1 || size < 0 || at < 0)
      return call_fail(c, "the size \"%s\" is not NAME=SIZE of an axis on the left", name), false;
    dim[at] = size;
    s = end;
  }
  return true;
}

db_tensor *db_rearrange_at(DB_AT, db_tensor *x, const char *text, const char *sizes) {
  struct call c;
  struct pattern from, to;
  int64_t dim[MAX_RANK], joined[MAX_RANK];
  unsigned order[MAX_RANK], n = 0;
  if (!call_begin(&c, "rearrange", file, line, 1, &x)) return c.result;
  const char *arrow = text ? strstr(text, "->") : NULL;
  if (!arrow) return call_fail(&c, "%s: the text is not \"AXES -> AXES\"", SHAPE(*x));
  if (!read_side(&c, text, arrow, &from) || !read_side(&c, arrow + 2, arrow + strlen(arrow), &to)) return c.result;
  if (from.groups != x->rank)
    return call_fail(&c, "the input is %s, but \"%.*s\" has %u axes", SHAPE(*x), (int)(arrow - text), text,
                     from.groups);
  for (unsigned i = 0; i < from.n; i++) dim[i] = strcmp(from.name[i], "1") ? -1 : 1;
  if (sizes && !read_sizes(&c, sizes, &from, dim)) return c.result;
  for (unsigned g = 0; g < from.groups; g++) { /* at most one size per group is inferred */
    int64_t known = 1;
    int open = -1;
    bool good = true;
    for (unsigned i = 0; i < from.n; i++) {
      if (from.group[i] != g) continue;
      if (dim[i] < 0)
        good &= open < 0, open = (int)i;
      else
        good &= !__builtin_mul_overflow(known, dim[i], &known);
    }
    if (good && open >= 0 && known > 0 && x->dim[g] % known == 0) dim[open] = x->dim[g] / known, known = x->dim[g];
    if (!good || (open >= 0 && dim[open] < 0) || known != x->dim[g])
      return call_fail(&c, "%s: the sizes of axis %u are ambiguous, or their product is not %lld", SHAPE(*x), g,
                       (long long)x->dim[g]);
  }
  for (unsigned i = 0; i < from.n; i++)
    if (strcmp(from.name[i], "1") && (find_name(&from, from.name[i]) != (int)i || find_name(&to, from.name[i]) < 0))
      return call_fail(&c, "\"%s\" is not named once on each side of \"%s\"", from.name[i], text);
  struct expr e = expr_reshape(expr_of(x), from.n, dim);
  for (unsigned i = 0; i < to.groups; i++) joined[i] = 1;
  for (unsigned i = 0; i < to.n; i++) {
    if (!strcmp(to.name[i], "1")) continue;
    int at = find_name(&from, to.name[i]);
    if (at < 0 || find_name(&to, to.name[i]) != (int)i)
      return call_fail(&c, "\"%s\" is not named once on each side of \"%s\"", to.name[i], text);
    order[n++] = (unsigned)at;
    joined[to.group[i]] *= dim[at];
  }
  for (unsigned i = 0; i < from.n; i++)
    if (!strcmp(from.name[i], "1")) order[n++] = i;
  return call_end(&c, expr_reshape(expr_permute(e, order), to.groups, joined));
}
