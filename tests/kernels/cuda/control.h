/* Control flow and private memory for one thread: calls, recursion, jump tables, loops of different length, arrays with
 * computed indices. In the C that CUDA C and the host's compiler share. */
#ifndef DOORBELL_TESTS_CUDA_CONTROL_H
#define DOORBELL_TESTS_CUDA_CONTROL_H
#include "shared.h"

CALLED u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
BODY u32 fibonacci_body(u32 x, u32 i) { return fibonacci(x % 9 + i % 3) * 3u + x; }

CALLED u32 ackermann(u32 m, u32 n) {
  return !m ? n + 1 : !n ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
BODY u32 ackermann_body(u32 x, u32 i) { return ackermann(x % 3, i % 4) + (x >> 8); }

/* Two functions that call each other. */
CALLED u32 odd_word(u32 n, u32 h);
CALLED u32 even_word(u32 n, u32 h) { return n ? odd_word(n - 1, h * 31 + n) : h; }
CALLED u32 odd_word(u32 n, u32 h) { return n ? even_word(n - 1, h ^ n << 7) : ~h; }
BODY u32 mutual_body(u32 x, u32 i) { return even_word(x % 7 + i % 2, x); }

/* Structures by value in and out. */
struct pair {
  u64 a;
  u32 b, c[3];
};
CALLED struct pair twist(struct pair p, u32 k) {
  struct pair q = {p.a * 3 + k, p.c[k % 3], {p.b ^ k, p.c[0] + p.c[1], p.c[2] * 5}};
  return q;
}
BODY u32 structs_body(u32 x, u32 i) {
  struct pair p = {x, i, {x ^ i, x + i, x * i}};
  for (u32 k = 0; k < 6; k++) p = twist(p, k + (x & 1));
  return fold64(p.a) ^ p.b ^ p.c[0] * 3u ^ p.c[1] * 5u ^ p.c[2] * 7u;
}

/* A dense switch, which becomes a jump table, inside a loop: a small machine. */
BODY u32 machine_body(u32 x, u32 i) {
  u32 acc = i, y = x, program = x;
  for (u32 pc = 0; pc < 24; pc++) {
    switch ((program >> (pc % 8 * 4) ^ acc) & 15) {
    case 0: acc += y; break;
    case 1: acc -= y * 3; break;
    case 2: acc ^= rotl(y, acc); break;
    case 3: y = acc * 2654435761u; break;
    case 4: acc = acc / (y | 1u) + pc; break;
    case 5: acc *= 31; /* fall through */
    case 6: y += pc; break;
    case 7: acc = ~acc; break;
    case 8: y ^= acc >> 3; break;
    case 9: acc += acc << 5; break;
    case 10: pc += acc & 1; break;
    case 11: y = rotl(y, 11) + acc; break;
    case 12: acc |= y & 0xff00ff; break;
    case 13: acc &= ~(y << 4); break;
    case 14: return acc ^ y;
    default: acc = acc > y ? acc - y : y - acc; break;
    }
  }
  return acc + y;
}

/* Calls through a table of functions. */
CALLED u32 op_add(u32 a, u32 b) { return a + b; }
CALLED u32 op_mul(u32 a, u32 b) { return a * b + 1; }
CALLED u32 op_mix(u32 a, u32 b) { return rotl(a, b) ^ b; }
CALLED u32 op_div(u32 a, u32 b) { return a / (b | 1u); }
BODY u32 pointers_body(u32 x, u32 i) {
  u32 (*const table[4])(u32, u32) = {op_add, op_mul, op_mix, op_div};
  u32 h = x;
  for (u32 k = 0; k < 6; k++) h = table[(x >> 2 * k ^ i) & 3](h, i + k);
  return h;
}

/* Steps until 1. */
BODY u32 collatz_body(u32 x, u32 i) {
  u64 v = x % 5000u + 1;
  u32 steps = 0;
  for (; v != 1; steps++) v = v & 1 ? 3 * v + 1 : v / 2;
  return steps << 16 ^ i;
}

/* Loops inside loops that end early in three ways. */
BODY u32 nested_body(u32 x, u32 i) {
  u32 sum = 0;
  for (u32 a = 0; a < 12; a++) {
    if ((x >> a & 3) == 3) continue;
    for (u32 b = 0; b < 12; b++) {
      if (((a * b) ^ i) % 11 == 7) break;
      sum += a * 17 + b;
      u32 c = b;
      do {
        if (sum % 97 == 5) goto next;
        sum ^= c << 3;
      } while (c-- > a);
      if (sum % 251 == 3) return sum;
    next:;
    }
    while (sum & 0x80000) sum = sum / 2 - a;
  }
  return sum ^ x;
}

/* Quicksort by recursion over an array in private memory. */
CALLED void quicksort(i32 *a, i32 lo, i32 hi) {
  if (lo >= hi) return;
  i32 pivot = a[(lo + hi) / 2], l = lo, h = hi;
  while (l <= h) {
    while (a[l] < pivot) l++;
    while (a[h] > pivot) h--;
    if (l <= h) {
      i32 t = a[l];
      a[l++] = a[h], a[h--] = t;
    }
  }
  quicksort(a, lo, h);
  quicksort(a, l, hi);
}
BODY u32 quicksort_body(u32 x, u32 i) {
  i32 a[12];
  u32 h = 0;
  for (u32 k = 0; k < 12; k++) a[k] = (i32)(next_random(&x) ^ i << 20);
  quicksort(a, 0, 11);
  for (u32 k = 0; k < 12; k++) h = rotl(h, 3) ^ (u32)a[k];
  return h;
}

/* Queens on a board of six, by recursion. */
CALLED u32 queens(u32 columns, u32 left, u32 right) {
  u32 n = 0, open = 63u & ~(columns | left | right);
  if (columns == 63u) return 1;
  while (open) {
    u32 bit = open & -open;
    open ^= bit;
    n += queens(columns | bit, (left | bit) << 1, (right | bit) >> 1);
  }
  return n;
}
BODY u32 queens_body(u32 x, u32 i) { return queens(1u << x % 6, 2u << x % 6, (1u << x % 6) >> 1) * 1000u + i; }

/* Edit distance of two short texts: rows of bytes with computed indices. */
BODY u32 edit_distance_body(u32 x, u32 i) {
  u8 a[12], b[10], row[11];
  u32 na = 6 + x % 7, nb = 4 + i % 7, y = x ^ i;
  for (u32 k = 0; k < 12; k++) a[k] = (u8)(next_random(&x) >> 29);
  for (u32 k = 0; k < 10; k++) b[k] = (u8)(next_random(&y) >> 29);
  for (u32 k = 0; k <= nb; k++) row[k] = (u8)k;
  for (u32 r = 1; r <= na; r++) {
    u8 diagonal = row[0];
    row[0] = (u8)r;
    for (u32 c = 1; c <= nb; c++) {
      u8 up = row[c], best = (u8)(diagonal + (a[r - 1] != b[c - 1]));
      if (up + 1 < best) best = (u8)(up + 1);
      if (row[c - 1] + 1 < best) best = (u8)(row[c - 1] + 1);
      diagonal = up;
      row[c] = best;
    }
  }
  return row[nb] | na << 8 | nb << 16;
}

/* A heap of 64-bit keys in private memory. */
BODY u32 heap_body(u32 x, u32 i) {
  u64 heap[16];
  u32 n = 0, h = 0;
  for (u32 k = 0; k < 24; k++) {
    if (n < 16 && (k < 12 || next_random(&x) & 0x10000)) {
      u32 at = n++;
      u64 v = (u64)next_random(&x) << 20 ^ i;
      for (; at && heap[(at - 1) / 2] > v; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
      heap[at] = v;
    } else if (n) {
      u64 v = heap[--n];
      h = rotl(h, 5) ^ fold64(heap[0]);
      u32 at = 0;
      for (;;) {
        u32 child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= v) break;
        heap[at] = heap[child], at = child;
      }
      heap[at] = v;
    }
  }
  return h ^ n << 27;
}

/* Private arrays of every width, written by one index and read by another. */
BODY u32 widths_body(u32 x, u32 i) {
  u8 a[16];
  i16 b[16];
  u32 c[16];
  double d[8];
  u32 h = 0;
  for (u32 k = 0; k < 16; k++) {
    u32 at = (k * 5 + x) & 15;
    a[at] = (u8)(x >> k), b[at] = (i16)(x * k), c[at] = x ^ k * i, d[at & 7] = (double)(i32)(x + k) * 0.5;
  }
  for (u32 k = 0; k < 16; k++) {
    u32 at = (k * 3 + i) & 15;
    h = rotl(h, 1) + a[at] + (u32)b[at] * 3u + c[15 - at] + fold64(f64_bits(d[at >> 1]));
  }
  return h;
}

/* Runs of equal symbols, coded and decoded. */
BODY u32 runs_body(u32 x, u32 i) {
  u8 code[64], n = 0;
  u32 h = 1, back = 0, at = 0;
  for (u32 k = 0; k < 32;) {
    u8 bit = (u8)(x >> k & 1), run = 0;
    while (k < 32 && (x >> k & 1) == bit) k++, run++;
    code[n++] = (u8)(bit << 7 | run);
  }
  for (u32 k = 0; k < n; k++)
    for (u32 r = code[k] & 127; r; r--) back |= (u32)(code[k] >> 7) << at++;
  for (u32 k = 0; k < n; k++) h = h * 131 + code[k];
  return h ^ (back == x ? i : ~i);
}

/* Days of the civil calendar: 64-bit division with signs. */
BODY u32 calendar_body(u32 x, u32 i) {
  i64 days = (i64)(i32)x / 7 + (i64)i * 1000, z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
  u32 doe = (u32)(z - era * 146097), yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  i64 y = (i64)yoe + era * 400;
  u32 doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153, d = doy - (153 * mp + 2) / 5 + 1;
  u32 m = mp < 10 ? mp + 3 : mp - 9;
  return (u32)(y + (m <= 2)) << 9 ^ m << 5 ^ d ^ (u32)((days % 7 + 11) % 7) << 28;
}
#define CONTROL(X)                                                                                                     \
  X(fibonacci)                                                                                                         \
  X(ackermann)                                                                                                         \
  X(mutual)                                                                                                            \
  X(structs)                                                                                                           \
  X(machine)                                                                                                           \
  X(pointers) X(collatz) X(nested) X(quicksort) X(queens) X(edit_distance) X(heap) X(widths) X(runs) X(calendar)
#endif
