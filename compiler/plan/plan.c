/* Prints and parses plans as text, and finds the line of a text that applies to a kernel. */
#include "plan.h"
#include "matrix.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *word, *arguments;
} steps[STEP_COUNT] = {
#define STEP(name, word, arguments, loop, serial, reduce, doc) {word, arguments},
#include "steps.def"
#undef STEP
};

const char *step_word(enum step_kind kind) { return steps[kind].word; }
const char *step_arguments(enum step_kind kind) { return steps[kind].arguments; }

/* ---- printing -------------------------------------------------------------------------------------------------- */
static void print_name(FILE *f, struct axis_name a) {
  fputc(a.letter, f);
  if (a.part) fprintf(f, "%u", a.part);
}

void step_print(FILE *f, const struct step *s) {
  unsigned axes = 0;
  fputs(steps[s->kind].word, f);
  for (const char *a = steps[s->kind].arguments; *a; a++) {
    if (*a == 'l') {
      for (unsigned i = 0; i < s->nlist; i++) fputc(' ', f), print_name(f, s->list[i]);
      continue;
    }
    fputc(*a == 'n' ? ':' : ' ', f);
    if (*a == 'm') {
      fputs(matrices[s->amount].name, f);
      continue;
    }
    if (*a == 'n' || *a == 's')
      fprintf(f, "%" PRId64, s->amount);
    else
      print_name(f, axes++ ? s->other : s->axis);
  }
}

void plan_print(FILE *f, const struct plan *p) {
  for (unsigned i = 0; i < p->n; i++) {
    if (i) fputs("; ", f);
    step_print(f, &p->step[i]);
  }
}

/* ---- parsing --------------------------------------------------------------------------------------------------- */
struct reader {
  const char *start, *at;
  char *err;
  size_t errcap;
};

static bool is_plan_end(char c) { return !c || c == '\n' || c == '|'; }
static void skip_blanks(struct reader *r) {
  while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r') r->at++;
}

/* Writes the message with the column and the word at which r is. Returns false. */
__attribute__((format(printf, 2, 3))) static bool syntax_error(struct reader *r, const char *fmt, ...) {
  char what[256];
  int n = 0;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  while (n < 32 && !is_plan_end(r->at[n]) && r->at[n] != ';' && !isspace((unsigned char)r->at[n])) n++;
  snprintf(r->err, r->errcap, "column %d of the plan, at '%.*s': %s", (int)(r->at - r->start) + 1, n, r->at, what);
  return false;
}

static bool read_number(struct reader *r, int64_t most, int64_t *out) {
  int64_t v = 0;
  const char *p = r->at;
  for (; isdigit((unsigned char)*p); p++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v) || v > most)
      return syntax_error(r, "the number is more than %" PRId64, most);
  if (p == r->at) return syntax_error(r, "a number is expected");
  r->at = p, *out = v;
  return true;
}

static bool read_name(struct reader *r, struct axis_name *out) {
  int64_t part = 0;
  char c = *r->at;
  if (!isalpha((unsigned char)c)) return syntax_error(r, "an axis is expected: a letter, or a letter and a number");
  const struct reader start = *r;
  r->at++;
  if (isdigit((unsigned char)*r->at) && !read_number(r, UINT8_MAX, &part)) return false;
  if (isalnum((unsigned char)*r->at)) {
    *r = start;
    return syntax_error(r, "an axis is a letter, or a letter and a number");
  }
  *out = (struct axis_name){c, (uint8_t)part};
  return true;
}

static bool read_step(struct reader *r, struct step *s) {
  size_t n = 0;
  while (isalpha((unsigned char)r->at[n])) n++;
  unsigned kind = 0, axes = 0;
  while (kind < STEP_COUNT && (strlen(steps[kind].word) != n || memcmp(steps[kind].word, r->at, n) != 0)) kind++;
  if (kind == STEP_COUNT) {
    char words[192] = "";
    for (unsigned i = 0; i < STEP_COUNT; i++) {
      size_t used = strlen(words);
      snprintf(words + used, sizeof words - used, "%s%s", i ? ", " : "", steps[i].word);
    }
    return syntax_error(r, "not a step; steps are %s", words);
  }
  size_t column = (size_t)(r->at - r->start) + 1;
  *s = (struct step){.kind = (uint8_t)kind, .column = column > UINT16_MAX ? UINT16_MAX : (uint16_t)column};
  r->at += n;
  for (const char *a = steps[kind].arguments; *a; a++) {
    if (*a == 'n') {
      if (*r->at != ':') return syntax_error(r, "':' and an amount are expected");
      r->at++;
      if (!read_number(r, INT64_MAX / 8, &s->amount)) return false;
    } else if (*a == 's') {
      skip_blanks(r);
      if (!read_number(r, UINT8_MAX, &s->amount)) return false;
    } else if (*a == 'm') {
      skip_blanks(r);
      size_t length = 0;
      while (isalnum((unsigned char)r->at[length]) || r->at[length] == '_') length++;
      s->amount = matrix_named(r->at, length);
      if (s->amount < 0) return syntax_error(r, "no matrix instruction has this name");
      r->at += length;
    } else if (*a == 'l') {
      for (skip_blanks(r); !is_plan_end(*r->at) && *r->at != ';'; skip_blanks(r)) {
        if (s->nlist == MAX_STAGED) return syntax_error(r, "more than %d axes", MAX_STAGED);
        if (!read_name(r, &s->list[s->nlist++])) return false;
      }
      if (!s->nlist) return syntax_error(r, "an axis is expected: a letter, or a letter and a number");
    } else {
      skip_blanks(r);
      if (!read_name(r, axes++ ? &s->other : &s->axis)) return false;
    }
  }
  skip_blanks(r);
  return is_plan_end(*r->at) || *r->at == ';' || syntax_error(r, "';' is expected between steps");
}

const char *plan_parse(struct plan *p, const char *text, char *err, size_t errcap) {
  struct reader r = {text, text, err, errcap};
  p->n = 0;
  for (;;) {
    skip_blanks(&r);
    if (is_plan_end(*r.at)) return r.at;
    if (*r.at == ';') {
      r.at++;
      continue;
    }
    if (p->n == MAX_STEPS) return syntax_error(&r, "more than %d steps", MAX_STEPS), NULL;
    if (!read_step(&r, &p->step[p->n])) return NULL;
    p->n++;
  }
}

/* ---- plans by hand --------------------------------------------------------------------------------------------- */

/* Returns the text after the `=` of a line, and sets *to to the end of the name before it. Returns the line itself if
 * it has no `=`. */
static const char *text_after_name(const char *line, const char **to) {
  const char *p = line;
  while (*p && *p != '\n' && *p != '=') p++;
  *to = line;
  if (*p != '=') return line;
  for (*to = p; *to > line && ((*to)[-1] == ' ' || (*to)[-1] == '\t');) --*to;
  return p + 1 + strspn(p + 1, " \t");
}

static const char *next_line(const char *line) {
  line += strcspn(line, "\n");
  return *line ? line + 1 : line;
}

/* Whether the text from `from` to `to` is the kernel's name or number. */
static bool is_name_of(const char *from, const char *to, const char *name, unsigned number) {
  char digits[16];
  size_t n = (size_t)(to - from);
  snprintf(digits, sizeof digits, "%u", number);
  return (n == strlen(name) && !memcmp(from, name, n)) || (n == strlen(digits) && !memcmp(from, digits, n));
}

/* Sets *at to the first word of the line. Returns false if the line is empty or a comment. */
static bool line_begins(const char *line, const char **at) {
  *at = line + strspn(line, " \t");
  return **at && **at != '\n' && **at != '#';
}

const char *plan_line(const char *lines, const char *name, unsigned number, bool *named) {
  const char *every = NULL, *to, *at;
  for (const char *line = lines; *line; line = next_line(line)) {
    if (!line_begins(line, &at)) continue;
    const char *plan = text_after_name(at, &to);
    *named = plan != at;
    if (!*named)
      every = plan;
    else if (is_name_of(at, to, name, number))
      return plan;
  }
  *named = false;
  return every;
}

unsigned plan_count_lines(const char *lines) {
  unsigned n = 0;
  for (const char *line = lines; *line; line = next_line(line)) n++;
  return n;
}

void plan_mark_lines(const char *lines, const char *name, unsigned number, bool *marks) {
  const char *to, *at;
  for (const char *line = lines; *line; line = next_line(line), marks++)
    if (line_begins(line, &at) && text_after_name(at, &to) != at && is_name_of(at, to, name, number)) *marks = true;
}

void plan_print_unmarked(FILE *f, const char *lines, const bool *marks) {
  unsigned n = plan_count_lines(lines), i = 0;
  const char *to, *at;
  for (const char *line = lines; i < n; line = next_line(line), i++) {
    if (marks[i] || !line_begins(line, &at) || text_after_name(at, &to) == at) continue;
    bool number = strspn(at, "0123456789") == (size_t)(to - at);
    fprintf(f, "PLAN: line %u, '%.*s': no kernel with this %s was compiled; DEBUG=3 prints the kernels\n", i + 1,
            (int)(to - at), at, number ? "number" : "name");
  }
}

bool plan_check_sections(const char *text, char *err, size_t errcap) {
  struct plan ignored;
  while ((text = plan_parse(&ignored, text, err, errcap)) && *text == '|') text++;
  return text != NULL;
}

bool plan_check(const char *lines, char *err, size_t errcap) {
  unsigned number = 0;
  char why[384];
  for (const char *line = lines; *line; line = next_line(line)) {
    number++;
    const char *to, *at;
    if (!line_begins(line, &at)) continue;
    const char *plan = text_after_name(at, &to);
    if (plan != at && to == at)
      snprintf(why, sizeof why, "at '=': the name or number of a kernel is expected before it");
    else if (plan == at && strspn(at, " \t\r;|") == strcspn(at, "\n"))
      snprintf(why, sizeof why, "at '%c': a plan for every kernel has at least one step", *at);
    else if (plan_check_sections(plan, why, sizeof why))
      continue;
    snprintf(err, errcap, "line %u, %s", number, why);
    return false;
  }
  return true;
}
