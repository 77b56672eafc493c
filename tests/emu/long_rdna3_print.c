/* Compares ten million words of each format with LLVM. */
#define WORDS 10000000
#include "test_rdna3_print.c"
