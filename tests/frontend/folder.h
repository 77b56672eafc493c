/* A folder for the files that a suite writes. */
#ifndef DOORBELL_TESTS_FOLDER_H
#define DOORBELL_TESTS_FOLDER_H
#include <stdio.h>
#include <stdlib.h>
#include "../../frontend/doorbell.h"

static char folder[] = "/tmp/doorbell-test-XXXXXX";
/* Returns the path of a file there. Four paths are valid at a time. */
static inline const char *in_folder(const char *name) {
  static char path[4][200];
  static unsigned at;
  char *p = path[at++ % 4];
  snprintf(p, 200, "%s/%s", folder, name);
  return p;
}

/* The setup and teardown of a group of tests. */
static inline int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }
static inline int remove_folder(void **state) {
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) || db_shutdown();
}
#endif
