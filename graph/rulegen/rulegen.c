/* rulegen IN.rules OUT.c compiles a file of rewrite rules to C. The output contains:
 * - a function for each rule;
 * - a function that tries all rules. Tables indexed by the root's op and type, by the ops of its first two sources and
 * by the type of its first source exclude rules that cannot match;
 * - the patterns as data, for tests.
 *
 * The notation is defined at the top of graph/rules/fold.rules. Every mistake is reported as FILE:LINE: message, and
 * then nothing is written. */
#include "rulegen.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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
  return copy_text(b, (size_t)(e - b));
}

/* ---- the table of patterns ------------------------------------------------------------------- */
static void write_terms(const struct term *t, const char **bound, unsigned *nbound) {
  static const char *const kinds[] = {"ANY", "ANY", "CONST", "LITERAL", "NODE"};
  unsigned number = 0;
  if (t->name && t->kind != LITERAL) {
    for (unsigned i = 0; i < *nbound; i++)
      if (!strcmp(bound[i], t->name) && strcmp(t->name, "_")) number = i + 1;
    if (!number && strcmp(t->name, "_")) bound[(*nbound)++] = t->name, number = *nbound;
  }
  double v = t->kind == LITERAL ? strtod(t->name, NULL) : 0;
  uint64_t mask[2] = {0};
  for (unsigned i = 0; i < OP_COUNT && t->kind == NODE; i++)
    if (t->op[i]) mask[i / 64] |= UINT64_C(1) << (i % 64);
  fprintf(out, "{RULE_%s, %u, %u, %d, %#x, {%#llx, %#llx}, %a},\n", kinds[t->kind], number, t->nsrc, t->rest,
          type_mask(t->type, t->where), (unsigned long long)mask[0], (unsigned long long)mask[1], v);
  for (unsigned i = 0; i < t->nsrc; i++) write_terms(t->src[i], bound, nbound);
}

/* ---- the dispatcher -------------------------------------------------------------------------- */
/* One way to try a rule: with the root's first two sources in a given order. */
struct way {
  unsigned rule, order;
  bool both;
  const struct term *pattern;
};

static bool term_admits_op(const struct term *source, unsigned op) {
  if (!source || source->kind == ANY || source->kind == VARIABLE) return true;
  return source->kind == NODE ? source->op[op] : op == OP_CONST;
}

static const struct term *source_of(const struct way *w, unsigned i) {
  unsigned from = w->order && i < 2 ? !i : i;
  return from < w->pattern->nsrc ? w->pattern->src[from] : NULL;
}

/* Writes a table of bit masks of ways, indexed by an op or a type of the root or of a source. */
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
static bool may_first(const struct way *w, unsigned op) { return term_admits_op(source_of(w, 0), op); }
static bool may_second(const struct way *w, unsigned op) { return term_admits_op(source_of(w, 1), op); }
static bool may_first_type(const struct way *w, unsigned t) {
  const struct term *s = source_of(w, 0);
  return !s || type_mask(s->type, s->where) >> t & 1;
}

/* The number of sources that every node of this op has. */
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

enum { MOST_RULES = 4096, MOST_WAYS = 256 };
static struct rule rules[MOST_RULES];
static unsigned nrules;
static const char *set_name;

static void read_rule(const char *where) {
  if (!set_name) die(where, "a rule before `set NAME`");
  if (nrules == MOST_RULES) die(where, "more than %d rules", MOST_RULES);
  struct rule *r = &rules[nrules];
  r->begin = at = where;
  r->pattern = read_term(false);
  if (r->pattern->kind != NODE) die(where, "a pattern starts with '('");
  write_rule(r, nrules++);
}

static void read_directive(const char *where, const char *word) {
  if (!strcmp(word, "set")) {
    skip_blanks();
    if (set_name) die(where, "a second `set` in one file");
    set_name = ident();
    if (!*set_name) die(where, "expected a name after `set`");
  } else if (!strcmp(word, "let"))
    name_ops(where);
  else if (!strcmp(word, "given"))
    give_name(where);
  else
    die(where, "%s is neither a rule nor a directive (set, let, given, #include)", word);
}

/* Reads the file, and writes a function for each rule. */
static void read_file(void) {
  for (skip_blanks(); *at; skip_blanks()) {
    const char *where = at;
    if (*at == '(' || strchr("@:", *at)) {
      read_rule(where);
    } else if (*at == '#') {
      at++;
      char *word = ident();
      if (strcmp(word, "include")) die(where, "#%s is not a directive; the only one is #include", word);
      fprintf(out, "#include %s\n", rest_of_line());
    } else if (ident_char(*at)) {
      char *word = ident();
      if (*at == '@') /* a name for the pattern behind it */
        read_rule(where);
      else
        read_directive(where, word);
    } else
      die(where, "unexpected '%c'", *at);
  }
  if (!set_name) die(at, "`set NAME` is missing");
  if (!nrules) die(at, "no rules");
}

/* Writes apply(), which tries the rules of a node's op in the order of the file. */
static void write_apply(void) {
  static struct way ways[OP_COUNT][MOST_WAYS];
  static unsigned nways[OP_COUNT];
  for (unsigned op = 0; op < OP_COUNT; op++) {
    for (unsigned i = 0; i < nrules; i++) {
      if (!rules[i].pattern->op[op]) continue;
      bool both = commutes(rules[i].pattern);
      for (unsigned order = 0; order < (both && ops[op].comm ? 2 : 1); order++) {
        if (nways[op] == MOST_WAYS) die(rules[i].begin, "too many rules for %s", ops[op].name);
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
}

static bool has_rules(unsigned op) {
  for (unsigned i = 0; i < nrules; i++)
    if (rules[i].pattern->op[op]) return true;
  return false;
}

/* Writes what tests and statistics read: the patterns, the rules of each op, the rules' texts. */
static void write_ruleset(void) {
  for (unsigned i = 0; i < nrules; i++) {
    const char *bound[64];
    unsigned nbound = 0;
    fprintf(out, "static const struct rule_term pattern_%u[] = {\n", i);
    write_terms(rules[i].pattern, bound, &nbound);
    fprintf(out, "};\n");
  }
  for (unsigned op = 0; op < OP_COUNT; op++) {
    if (!has_rules(op)) continue;
    fprintf(out, "static const uint16_t by_%s[] = {", ops[op].name);
    for (unsigned i = 0; i < nrules; i++)
      if (rules[i].pattern->op[op]) fprintf(out, "%u, ", i);
    fprintf(out, "UINT16_MAX};\n");
  }
  fprintf(out, "static const struct rule rules[] = {\n");
  for (unsigned i = 0; i < nrules; i++) {
    fprintf(out, "{");
    write_text(rules[i].begin, rules[i].length);
    fprintf(out, ", %u, %s_%u, pattern_%u},\n", line_of(rules[i].begin), commutes(rules[i].pattern) ? "either" : "rule",
            i, i);
  }
  fprintf(out, "};\nstatic struct rule_stats stats[%u];\n", nrules);
  fprintf(
      out,
      "extern const struct ruleset rules_%s;\nconst struct ruleset rules_%s = {\"%s\", \"%s\", rules, %u, apply, {\n",
      set_name, set_name, set_name, file, nrules);
  for (unsigned op = 0; op < OP_COUNT; op++)
    if (has_rules(op)) fprintf(out, "[OP_%s] = by_%s,\n", ops[op].name, ops[op].name);
  fprintf(out, "}, stats};\n");
}

static void generate(void) {
  fprintf(out, "/* Generated by rulegen from %s. */\n#include \"graph/rules.h\"\n", file);
  read_file();
  write_apply();
  write_ruleset();
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
  char *buf = check_memory(malloc(cap));
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
  out = check_memory(open_memstream(&code, &size));
  generate();
  fclose(out);
  FILE *f = fopen(argv[2], "w");
  if (!f || fwrite(code, 1, size, f) != size || fclose(f)) {
    perror(argv[2]);
    return 1;
  }
  return 0;
}
