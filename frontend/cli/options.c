/* Flags and messages. */
#include "cli.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void say(const struct command *c, const char *fmt, va_list ap) {
  fflush(stdout);
  fprintf(stderr, "doorbell%s%s: ", *c->name ? " " : "", c->name);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
}

int fail_usage(const struct command *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say(c, fmt, ap);
  va_end(ap);
  fprintf(stderr, "See doorbell%s%s --help.\n", *c->name ? " " : "", c->name);
  return EXIT_USAGE;
}

int fail_work(const struct command *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say(c, fmt, ap);
  va_end(ap);
  return EXIT_FAILED;
}

bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *out) {
  const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
  bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
  if (*digits < '0' || *digits > '9') return false;
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, hex ? 16 : 10);
  if (errno || *end || v < least || v > most) return false;
  *out = v;
  return true;
}

static const struct option *find(const struct option *options, unsigned n, const char *word, size_t length) {
  for (unsigned i = 0; i < n; i++)
    if (strlen(options[i].name) == length && !memcmp(options[i].name, word, length)) return &options[i];
  return NULL;
}

bool options_parse(const struct command *c, const struct option *options, unsigned n,
                   int (*positional)(const struct command *c, void *ctx, const char *word), void *ctx, int argc,
                   char **argv, int *status) {
  bool only_words = false;
  for (int i = 0; i < argc; i++) {
    const char *word = argv[i], *equals = strchr(word, '=');
    if (only_words || word[0] != '-' || !word[1]) {
      *status = positional ? positional(c, ctx, word) : fail_usage(c, "unexpected argument '%s'", word);
      if (*status) return false;
      continue;
    }
    if (!strcmp(word, "--")) {
      only_words = true;
      continue;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
      fputs(c->help, stdout);
      *status = EXIT_DONE;
      return false;
    }
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct option *o = find(options, n, word, length);
    const char *value = equals ? equals + 1 : NULL;
    if (!o)
      *status = fail_usage(c, "unknown flag '%.*s'", (int)length, word);
    else if (!o->takes_value && value)
      *status = fail_usage(c, "%s takes no value, '%s' was given", o->name, value);
    else if (o->takes_value && !value && i + 1 == argc)
      *status = fail_usage(c, "%s needs a value", o->name);
    else
      *status = o->set(c, ctx, !o->takes_value ? NULL : value ? value : argv[++i]);
    if (*status) return false;
  }
  return true;
}
