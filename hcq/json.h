/* JSON strings, made with jansson. */
#ifndef DOORBELL_HCQ_JSON_H
#define DOORBELL_HCQ_JSON_H
#include <jansson.h>
#include <stdio.h>

/* Makes a JSON string; if s is not valid UTF-8, each byte that is not ASCII becomes U+FFFD. Returns NULL if out of
 * memory. */
json_t *json_text(const char *s);
/* Writes s as a quoted JSON string in ASCII, with the same replacements. */
void json_quote(FILE *f, const char *s);
#endif
