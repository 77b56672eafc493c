/* Ten million words of each format against LLVM. */
#define WORDS 10000000
#include "test_rdna3_print.c"
