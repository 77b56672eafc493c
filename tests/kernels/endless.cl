/* Never ends while x[0] is 0: for what waits with a timeout. */
__kernel void endless(__global volatile uint *x) {
  while (x[0] == 0) {}
}
