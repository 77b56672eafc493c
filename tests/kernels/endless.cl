/* Runs until x[0] is not 0: for tests of timeouts. */
__kernel void endless(__global volatile uint *x) {
  while (x[0] == 0) {}
}
