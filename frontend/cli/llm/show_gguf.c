/* doorbell show of a GGUF file: its metadata and tensors. */
#include "../../llm/gguf.h"
#include "../show.h"
#include <stdlib.h>
#include <string.h>

/* What is shown of long values as text; JSON has all of them. */
enum { MOST_ELEMENTS = 6, MOST_TEXT = 100 };

static json_t *string_json(struct gguf_string s, size_t most) {
  char *text = strndup(s.text, s.length < most ? s.length : most);
  json_t *json = text ? json_text(text) : NULL;
  free(text);
  return json;
}

/* Element i. Strings are read in order from *at. */
static json_t *element_json(const struct gguf_value *v, uint64_t i, const uint8_t **at, size_t most_text) {
  struct gguf_string s;
  int64_t n;
  double f;
  if (gguf_next_string(v, at, &s)) return string_json(s, most_text);
  if (v->kind == GGUF_BOOL && gguf_integer(v, i, &n)) return json_boolean(n);
  if (gguf_integer(v, i, &n)) return json_integer((json_int_t)n);
  if (gguf_number(v, i, &f)) return json_finite(f);
  if (v->kind == GGUF_ARRAY) return json_string("array");
  char text[24]; /* jansson has no integers above INT64_MAX */
  uint64_t u;
  memcpy(&u, v->data + i * sizeof u, sizeof u);
  snprintf(text, sizeof text, "%llu", (unsigned long long)u);
  return json_string(text);
}

static json_t *value_json(const struct gguf_value *v, uint64_t most, size_t most_text) {
  const uint8_t *at = v->data;
  if (!v->array) return element_json(v, 0, &at, most_text);
  json_t *list = json_array();
  for (uint64_t i = 0; i < v->count && i < most; i++) json_array_append_new(list, element_json(v, i, &at, most_text));
  return list;
}

static void print_pairs(const struct gguf *g) {
  for (size_t i = 0; i < g->npairs; i++) {
    const struct gguf_value *v = &g->pair[i].value;
    char kind[40];
    snprintf(kind, sizeof kind, v->array ? "%s[%llu]" : "%s", gguf_kind_name(v->kind), (unsigned long long)v->count);
    printf("%-16s %s = ", kind, g->pair[i].key);
    json_t *json = value_json(v, MOST_ELEMENTS, MOST_TEXT);
    json_dumpf(json, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(json);
    puts(v->array && v->count > MOST_ELEMENTS ? " ..." : "");
  }
}

static json_t *tensors_json(const struct gguf *g) {
  json_t *list = json_array();
  for (size_t i = 0; i < g->ntensors; i++) {
    const struct gguf_tensor *t = &g->tensor[i];
    json_t *shape = json_array();
    for (unsigned k = 0; k < t->rank; k++) json_array_append_new(shape, json_integer((json_int_t)t->dim[k]));
    json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(t->name), "dtype",
                                          ggml_layout(t->type)->name, "shape", shape, "bytes", (json_int_t)t->bytes));
  }
  return list;
}

int show_gguf(const struct command *self, const struct show_options *x, const struct mapping *m) {
  struct gguf g;
  char why[512];
  if (gguf_parse(m->bytes, m->size, &g, why, sizeof why)) return fail_work(self, "%s: %s", x->file, why);
  json_t *tensors = tensors_json(&g);
  if (x->json) {
    json_t *pairs = json_object();
    for (size_t i = 0; i < g.npairs; i++) {
      json_t *key = json_text(g.pair[i].key);
      json_object_set_new(pairs, json_string_value(key), value_json(&g.pair[i].value, UINT64_MAX, SIZE_MAX));
      json_decref(key);
    }
    json_t *all =
        json_pack("{s:i, s:o, s:o}", "version", (int)g.version, "metadata", pairs, "tensors", json_incref(tensors));
    json_dumpf(all, stdout, JSON_ENSURE_ASCII | JSON_INDENT(1));
    fputc('\n', stdout);
    json_decref(all);
  } else {
    print_pairs(&g);
    show_print_tensors(tensors);
  }
  json_decref(tensors);
  gguf_free(&g);
  return EXIT_DONE;
}
