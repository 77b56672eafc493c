/* Text in JSON, by jansson. */
#ifndef DOORBELL_HCQ_JSON_H
#define DOORBELL_HCQ_JSON_H
#include <jansson.h>
#include <stdio.h>

/* A string; bytes that are not UTF-8 become U+FFFD. NULL without memory. */
json_t *json_text(const char *s);
/* Writes s as a string of ASCII characters, as json_text makes it. */
void json_quote(FILE *f, const char *s);
#endif
