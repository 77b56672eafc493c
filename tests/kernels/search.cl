/* Counts the occurrences of a word in a text, and finds the first one. */
#include "../../frontend/source/opencl.h"

__kernel void search(__global uint *found, __global const uchar *text, uint n, __constant uchar *word, uint m) {
  uint i = get_global_id(0), j = 0;
  if (i + m > n) return;
  while (j < m && text[i + j] == word[j]) j++;
  if (j < m) return;
  atomic_inc(&found[0]);
  atomic_min(&found[1], i);
  atomic_max(&found[2], i);
}
