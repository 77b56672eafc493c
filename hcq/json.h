/* Text in JSON, by jansson. */
#ifndef DOORBELL_HCQ_JSON_H
#define DOORBELL_HCQ_JSON_H
#include <stdio.h>

/* Writes s as a string of ASCII characters. Bytes that are not UTF-8 become U+FFFD. */
void json_quote(FILE *f, const char *s);
#endif
