/* Makes relocatable objects for the CPU device with the build's C compiler while a test runs. */
#ifndef DOORBELL_TESTS_HCQ_HOST_OBJECT_H
#define DOORBELL_TESTS_HCQ_HOST_OBJECT_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the object's bytes, which the caller frees, or NULL if there is no compiler or the text does not compile. */
static inline void *host_object(const char *text, const char *flags, size_t *size) {
  char source[] = "/tmp/doorbell-test-XXXXXX.c", object[sizeof source + 2], command[512];
  int fd = mkstemps(source, 2);
  if (fd < 0) return NULL;
  if (write(fd, text, strlen(text)) < 0) return NULL;
  close(fd);
  snprintf(object, sizeof object, "%s.o", source);
  snprintf(command, sizeof command, TEST_CC " -c -O2 %s %s -o %s", flags, source, object);
  void *bytes = NULL;
  if (!system(command)) {
    FILE *f = fopen(object, "rb");
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(*size);
    if (fread(bytes, 1, *size, f) != *size) bytes = NULL;
    fclose(f);
  }
  unlink(source);
  unlink(object);
  return bytes;
}
#endif
