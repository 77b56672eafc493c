/* The benchmark kernel, for the suites that compile at several levels. */
#include "../../bench/kernels/reduce.cl"
