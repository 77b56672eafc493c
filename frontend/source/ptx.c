/* PTX text, assembled for the device by ptxas. */
#include "../../compiler/ptxas.h"
#include "source.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A PTX module starts with a .version directive (PTX ISA, "PTX Module Directives"), possibly after comments. */
bool source_is_ptx(const void *bytes, size_t size) {
  static const char word[] = ".version";
  const char *p = bytes, *end = p + size;
  while (p < end) {
    if (isspace((unsigned char)*p)) {
      p++;
    } else if (end - p > 1 && p[0] == '/' && p[1] == '/') {
      while (p < end && *p != '\n') p++;
    } else if (end - p > 1 && p[0] == '/' && p[1] == '*') {
      for (p += 2; end - p > 1 && !(p[0] == '*' && p[1] == '/');) p++;
      p = end - p > 1 ? p + 2 : end;
    } else
      return (size_t)(end - p) > sizeof word && !memcmp(p, word, sizeof word - 1) && isspace((unsigned char)p[8]);
  }
  return false;
}

bool source_is_cubin(const void *bytes, size_t size) {
  const unsigned char *p = bytes;
  return size >= 64 && !memcmp(p, "\177ELF", 4) && p[18] == 190 && !p[19]; /* EM_CUDA */
}

char *source_ptxas(void) { return ptxas_find(getenv("PTXAS"), getenv("PATH")); }

int source_assemble_ptx(const char *arch, const void *text, size_t size, void **image, size_t *image_size, char *err,
                        size_t errcap) {
  char *path = source_ptxas();
  struct ptxas *pool = ptxas_new(path, 1, SOURCE_TIMEOUT_S * 1000);
  struct ptxas_job *job = pool ? ptxas_start(pool, arch, text, size, NULL) : NULL;
  if (!job) snprintf(err, errcap, "out of memory");
  bool ok = job && ptxas_finish(job, image, image_size, err, errcap);
  ptxas_free(pool);
  free(path);
  return ok ? 0 : -1;
}
