/* Options and messages. */
#include "cli.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void print_message(const struct command *c, const char *fmt, va_list ap) {
  fflush(stdout);
  fprintf(stderr, "doorbell%s%s: ", *c->name ? " " : "", c->name);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
}

int fail_usage(const struct command *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print_message(c, fmt, ap);
  va_end(ap);
  fprintf(stderr, "Try 'doorbell%s%s --help' for more information.\n", *c->name ? " " : "", c->name);
  return EXIT_USAGE;
}

int fail_work(const struct command *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print_message(c, fmt, ap);
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

void keep_only_file(struct argp_state *state, const char **file, const char *word) {
  if (*file) argp_error(state, "only one file is possible, not '%s' and '%s'", *file, word);
  *file = word;
}

bool parse_numbered_file(const char *text, int64_t most, int64_t *k, const char **file) {
  const char *equals = strchr(text, '=');
  char word[24];
  if (!equals || (size_t)(equals - text) >= sizeof word || !equals[1]) return false;
  memcpy(word, text, (size_t)(equals - text));
  word[equals - text] = 0;
  *file = equals + 1;
  return parse_integer(word, 0, most, k);
}

void command_parse(const struct command *c, int argc, char **argv, unsigned flags, void *input) {
  argp_err_exit_status = EXIT_USAGE;
  argp_parse(&c->argp, argc, argv, flags, NULL, input);
}
