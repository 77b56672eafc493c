/* Help of the benchmarks that take arguments but no options. */
#ifndef BENCH_HELP_H
#define BENCH_HELP_H
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Prints `usage` and returns true if the first argument is -h or --help. */
static inline bool print_help(int argc, char **argv, const char *usage) {
  if (argc < 2 || (strcmp(argv[1], "-h") != 0 && strcmp(argv[1], "--help") != 0)) return false;
  printf("%s", usage);
  return true;
}
#endif
