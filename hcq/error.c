/* The thread's last failure, as text. */
#include "error.h"
#include "hcq.h"
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
