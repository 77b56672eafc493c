/* A custom kernel through the queue layer: kernel FILE. FILE is the code object or cubin of bench/kernels/saxpy for
 * DEV. One submission launches the kernel between two timestamps taken on the device. */
#include "hcq/hcq.h"
#include <stdio.h>
#include <stdlib.h>

enum { N = 1024, BLOCK = 256 };

static void *read_whole(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  void *bytes = malloc(1 << 20);
  *size = f && bytes ? fread(bytes, 1, 1 << 20, f) : 0;
  if (f) fclose(f);
  return bytes;
}

int main(int argc, char **argv) {
  size_t size = 0;
  float x[N], y[N];
  uint64_t when, begin, end;
  void *image = argc == 2 ? read_whole(argv[1], &size) : NULL;
  for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 1;

  db_device *dev = db_open(NULL); /* DEV; every call below accepts NULL and fails with the first error's message */
  db_buffer *dx = db_alloc(dev, sizeof x, 0), *dy = db_alloc(dev, sizeof y, 0);
  db_program *saxpy = db_program_load(dev, image, size, "saxpy", NULL, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_signal *from = db_signal_new(dev), *to = db_signal_new(dev);
  float a = 2;
  uint32_t n = N, bits;
  __builtin_memcpy(&bits, &a, sizeof bits);
  struct db_arg args[] = {{.buffer = dy}, {.buffer = dx}, {.bits = bits}, {.bits = n}};

  int err = db_buffer_write(dx, 0, x, sizeof x);
  if (!err) err = db_buffer_write(dy, 0, y, sizeof y);
  db_queue_timestamp(q, from); /* a recorder keeps its first error, which submit returns */
  db_queue_exec(q, saxpy, args, 4, (uint32_t[]){N / BLOCK, 1, 1}, (uint32_t[]){BLOCK, 1, 1});
  db_queue_timestamp(q, to);
  if (!err) err = db_queue_submit(q, &when);
  if (!err) err = db_wait(db_queue_timeline(q), when, 5000000000ull);
  if (!err) err = db_buffer_read(dy, 0, y, sizeof y);
  if (err) {
    fprintf(stderr, "%s\n", db_error());
  } else {
    db_signal_interval(from, to, &begin, &end);
    printf("%s: y = %g %g %g ... %g in %.1f us\n", db_device_name(dev), y[0], y[1], y[2], y[N - 1],
           (double)(end - begin) * 1e-3);
  }
  db_signal_release(from), db_signal_release(to);
  db_queue_release(q), db_program_release(saxpy);
  db_buffer_release(dx), db_buffer_release(dy);
  db_close(dev);
  free(image);
  return err != 0;
}
