/* The thread's last failure, as text. */
#include "error.h"
#include "hcq.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1536];
static _Thread_local char difference[640]; /* set by db_fail_differs, otherwise "" */

const char *db_error(void) { return message; }

#undef db_fail /* error.h defines macros for the analyzer */
#undef db_fail_argument
int db_fail(int negative_errno, const char *fmt, ...) {
  char text[sizeof message];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (negative_errno == -EBADMSG && *difference) {
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, ": %s", difference);
    *difference = 0;
  }
  memcpy(message, text, sizeof text);
  return negative_errno;
}

void db_fail_differs(const char *what) { snprintf(difference, sizeof difference, "%s", what); }

int db_fail_argument(const char *call, const char *what) {
  static const char before[] = "; the earlier error: ";
  const char *cause = strstr(message, before);
  cause = cause ? cause + sizeof before - 1 : message;
  return db_fail(-EINVAL, "%s: the %s is NULL%s%s", call, what, *cause ? before : "", cause);
}
