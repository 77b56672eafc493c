/* The thread's last failure, as text. */
#include "error.h"
#include "hcq.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1536];

const char *db_error(void) { return message; }

int db_fail(int negative_errno, const char *fmt, ...) {
  char text[sizeof message];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  memcpy(message, text, sizeof text);
  return negative_errno;
}

int db_fail_argument(const char *call, const char *what) {
  static const char before[] = "; the failure before it: ";
  const char *cause = strstr(message, before);
  cause = cause ? cause + sizeof before - 1 : message;
  return db_fail(-EINVAL, "%s: the %s is NULL%s%s", call, what, *cause ? before : "", cause);
}
