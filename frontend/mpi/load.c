/* Finds libdoorbell-mpi if mpirun started this process. Other programs never load MPI. */
#include "calls.h"
#include <dlfcn.h>
#include <stdio.h>

#define LIBRARY  "libdoorbell-mpi.so.0"
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const struct mpi_calls *mpi_load(char *err, size_t cap) {
  /* RTLD_GLOBAL: Open MPI's plug-ins look up its symbols in the global scope. */
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  const struct mpi_calls *calls = library ? dlsym(library, TEXT(MPI_CALLS)) : NULL;
  if (!calls) {
    const char *why = dlerror();
    snprintf(err, cap,
             "mpirun started this process as one of several, which needs %s: %s; it is built where Open MPI is "
             "installed (make deps MPI=1)",
             LIBRARY, why ? why : "cannot be loaded");
    return NULL;
  }
  if (calls->exchange_size == sizeof(struct exchange)) return calls;
  snprintf(err, cap, "%s and this library have different versions", LIBRARY);
  return NULL;
}
