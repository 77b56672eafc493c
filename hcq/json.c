/* JSON strings, made with jansson. */
#define _GNU_SOURCE
#include "json.h"
#include <stdlib.h>
#include <string.h>

/* A copy of s with U+FFFD in place of each byte that is not ASCII. */
static json_t *replaced(const char *s) {
  char *text = malloc(3 * strlen(s) + 1), *to = text;
  for (; text && *s; s++)
    if (*s & 0x80)
      to = stpcpy(to, "\xef\xbf\xbd");
    else
      *to++ = *s;
  json_t *string = text ? json_stringn(text, (size_t)(to - text)) : NULL;
  free(text);
  return string;
}

json_t *json_text(const char *s) {
  json_t *string = json_string(s);
  return string ? string : replaced(s);
}

void json_quote(FILE *f, const char *s) {
  json_t *string = json_text(s);
  if (!string || json_dumpf(string, f, JSON_ENCODE_ANY | JSON_ENSURE_ASCII)) fputs("\"\"", f);
  json_decref(string);
}
