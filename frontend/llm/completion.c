#include "completion.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

struct parser {
  struct completion *c;
  const struct chat_format *format;
};
static int fail(const char *what) { return db_fail(-EINVAL, "%s", what); }

static int read_text(const json_t *v, char **out) {
  free(*out);
  *out = strdup(json_string_value(v));
  return *out ? 0 : db_fail(-ENOMEM, "out of memory");
}

/* A text, a list of one text, or a list of tokens. */
static int read_prompt(struct parser *p, const json_t *v) {
  size_t i;
  json_t *token;
  if (json_array_size(v) == 1 && !json_is_integer(json_array_get(v, 0))) v = json_array_get(v, 0);
  if (json_is_string(v)) return read_text(v, &p->c->prompt);
  if (!json_array_size(v)) return fail("prompt: a text or a list of tokens is needed");
  json_array_foreach(v, i, token) {
    json_int_t id = json_is_integer(token) ? json_integer_value(token) : -1;
    if (id < 0 || id > INT32_MAX)
      return fail("prompt: a list of tokens has numbers only; one text at a time is possible");
    if (!tokens_add(&p->c->tokens, (int32_t)id)) return db_fail(-ENOMEM, "out of memory");
  }
  return 0;
}

/* Content is a text, or a list of parts that are texts. */
static int read_content(FILE *out, const json_t *content) {
  size_t i;
  json_t *part;
  if (json_is_string(content)) return fputs(json_string_value(content), out), 0;
  if (!json_is_array(content)) return fail("messages: a message's content must be a text");
  json_array_foreach(content, i, part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const char *text = json_string_value(json_object_get(part, "text"));
    if (!type || strcmp(type, "text") != 0 || !text)
      return db_fail(-EINVAL, "messages: not supported: a part of type '%.40s'", type ? type : "");
    fputs(text, out);
  }
  return 0;
}

static int write_message(struct chat *chat, const json_t *message) {
  const char *name = json_string_value(json_object_get(message, "role"));
  enum chat_role role = name ? chat_role_named(name) : CHAT_ROLES;
  if (role == CHAT_ROLES) return db_fail(-EINVAL, "messages: not supported: the role '%.40s'", name ? name : "");
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  int err = out ? read_content(out, json_object_get(message, "content")) : db_fail(-ENOMEM, "out of memory");
  if (out && fclose(out) && !err) err = db_fail(-ENOMEM, "out of memory");
  if (!err) chat_message(chat, role, text);
  free(text);
  return err;
}

static int read_messages(struct parser *p, const json_t *v) {
  struct chat chat = {.format = p->format};
  size_t i, size;
  json_t *message;
  int err = 0;
  if (!json_array_size(v)) return fail("messages: a list of messages is needed");
  free(p->c->prompt);
  p->c->prompt = NULL;
  if (!(chat.out = open_memstream(&p->c->prompt, &size))) return db_fail(-ENOMEM, "out of memory");
  json_array_foreach(v, i, message) if (!err) err = write_message(&chat, message);
  chat_begin_answer(&chat);
  return fclose(chat.out) && !err ? db_fail(-ENOMEM, "out of memory") : err;
}

static int read_most(struct parser *p, const json_t *v) {
  p->c->most = json_integer_value(v);
  return json_is_integer(v) && p->c->most > 0 ? 0 : fail("max_tokens: a number from 1 is needed");
}

static int read_stop(struct parser *p, const json_t *v) {
  size_t n = json_is_string(v) ? 1 : json_array_size(v);
  if (!n || n > COMPLETION_STOPS) return fail("stop: a text or a list of 1 to 4 texts is needed");
  for (size_t i = 0; i < n; i++) {
    const json_t *text = json_is_string(v) ? v : json_array_get(v, i);
    size_t length = json_string_length(text);
    if (!length || length > COMPLETION_STOP_BYTES) return fail("stop: each text needs 1 to 256 bytes");
    if (read_text(text, &p->c->stop[p->c->stops])) return -ENOMEM;
    p->c->stops++;
  }
  return 0;
}

static int read_temperature(struct parser *p, const json_t *v) {
  double t = p->c->sampler.temperature = json_number_value(v);
  return json_is_number(v) && t >= 0 && t <= 1000 ? 0 : fail("temperature: a number from 0 to 1000 is needed");
}
static int read_top_p(struct parser *p, const json_t *v) {
  double top = p->c->sampler.top_p = json_number_value(v);
  return json_is_number(v) && top >= 0 && top <= 1 ? 0 : fail("top_p: a number from 0 to 1 is needed");
}
static int read_top_k(struct parser *p, const json_t *v) {
  json_int_t k = json_integer_value(v);
  p->c->sampler.top_k = k > 0 ? (size_t)k : 0;
  return json_is_integer(v) && k >= 0 ? 0 : fail("top_k: a number from 0 is needed");
}
static int read_seed(struct parser *p, const json_t *v) {
  p->c->sampler.seed = (uint64_t)json_integer_value(v);
  return json_is_integer(v) ? 0 : fail("seed: a whole number is needed");
}
static int read_stream(struct parser *p, const json_t *v) {
  p->c->stream = json_is_true(v);
  return json_is_boolean(v) ? 0 : fail("stream: true or false is needed");
}
static int read_stream_options(struct parser *p, const json_t *v) {
  p->c->usage = json_is_true(json_object_get(v, "include_usage"));
  return json_is_object(v) ? 0 : fail("stream_options: an object is needed");
}
static int ignore(struct parser *p, const json_t *v) { return 0; }
static int need_one(struct parser *p, const json_t *v) {
  return json_is_integer(v) && json_integer_value(v) == 1 ? 0 : fail("not supported: n or best_of that is not 1");
}
static int need_none(struct parser *p, const json_t *v) {
  bool none = json_is_false(v) || (json_is_number(v) && !(json_number_value(v) != 0)) ||
              (json_is_string(v) && !json_string_length(v));
  return none ? 0 : fail("not supported: echo, logprobs, suffix, or penalties that are not 0");
}

/* Null counts as absent. Other fields are errors. */
enum { TEXT = 1, CHAT = 2, BOTH = TEXT | CHAT };
static const struct field {
  const char *name;
  unsigned of; /* bits of TEXT, CHAT */
  int (*read)(struct parser *p, const json_t *v);
} fields[] = {
    {"prompt", TEXT, read_prompt},
    {"messages", CHAT, read_messages},
    {"max_tokens", BOTH, read_most},
    {"max_completion_tokens", CHAT, read_most},
    {"temperature", BOTH, read_temperature},
    {"top_p", BOTH, read_top_p},
    {"top_k", BOTH, read_top_k},
    {"seed", BOTH, read_seed},
    {"stop", BOTH, read_stop},
    {"stream", BOTH, read_stream},
    {"stream_options", BOTH, read_stream_options},
    {"model", BOTH, ignore},
    {"user", BOTH, ignore},
    {"n", BOTH, need_one},
    {"best_of", TEXT, need_one},
    {"echo", TEXT, need_none},
    {"suffix", TEXT, need_none},
    {"logprobs", BOTH, need_none},
    {"presence_penalty", BOTH, need_none},
    {"frequency_penalty", BOTH, need_none},
};

static int read_field(struct parser *p, const char *name, const json_t *v) {
  unsigned of = p->format ? CHAT : TEXT;
  if (json_is_null(v)) return 0;
  for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
    if ((fields[i].of & of) && !strcmp(fields[i].name, name)) return fields[i].read(p, v);
  return db_fail(-EINVAL, "not supported: the field '%.40s'", name);
}

int completion_parse(struct completion *c, const char *body, size_t size, const struct chat_format *format,
                     uint64_t seed) {
  struct parser p = {c, format};
  json_error_t error;
  json_t *all = json_loadb(body, size, JSON_REJECT_DUPLICATES, &error), *v;
  const char *name;
  /* The defaults of the API: 16 tokens of a text, all of a message. */
  *c = (struct completion){.most = format ? INT64_MAX : 16, .sampler = {.temperature = 1, .top_p = 1, .seed = seed}};
  if (!all) return db_fail(-EINVAL, "no JSON: line %d, column %d: %s", error.line, error.column, error.text);
  int err = json_is_object(all) ? 0 : fail("the request is no JSON object");
  json_object_foreach(all, name, v) if (!err) err = read_field(&p, name, v);
  json_decref(all);
  if (!err && !c->prompt && !c->tokens.n) err = fail(format ? "messages: missing" : "prompt: missing");
  return err;
}

void completion_free(struct completion *c) {
  free(c->prompt);
  free(c->tokens.id);
  for (unsigned i = 0; i < c->stops; i++) free(c->stop[i]);
  *c = (struct completion){0};
}

/* ---- answers ---- */

/* Ends the text before the first stop text that ends in the bytes from `added` on. It does not begin in what was taken.
 */
static void find_stop(struct answer *a, size_t added) {
  size_t longest = 0;
  for (unsigned i = 0; i < a->c->stops; i++)
    if (strlen(a->c->stop[i]) > longest) longest = strlen(a->c->stop[i]);
  for (size_t at = added > a->taken + longest ? added - longest : a->taken; at < a->text.n && !a->stopped; at++)
    for (unsigned i = 0; i < a->c->stops && !a->stopped; i++) {
      size_t length = strlen(a->c->stop[i]);
      a->stopped = length <= a->text.n - at && !memcmp(a->text.text + at, a->c->stop[i], length);
      if (a->stopped) a->text.n = at;
    }
}

bool answer_add(struct answer *a, const char *piece, size_t length) {
  size_t added = a->text.n;
  if (a->stopped || !length) return true;
  if (!buffer_add(&a->text, piece, length)) return false;
  find_stop(a, added);
  return true;
}

/* Whether the bytes [at, n) may be the beginning of a stop text. */
static bool may_stop(const struct answer *a, size_t at) {
  for (unsigned i = 0; i < a->c->stops; i++)
    if (a->text.n - at < strlen(a->c->stop[i]) && !memcmp(a->text.text + at, a->c->stop[i], a->text.n - at))
      return true;
  return false;
}

size_t answer_ready(const struct answer *a, bool all) {
  size_t end = a->text.n;
  if (all || a->stopped) return end - a->taken;
  for (size_t k = 1; k < 4 && k <= a->text.n - a->taken; k++) /* a character that is not complete */
    if (utf8_size(a->text.text[a->text.n - k]) > k) end = a->text.n - k;
  for (size_t at = a->taken; at < end; at++)
    if (may_stop(a, at)) end = at;
  return end - a->taken;
}

/* Text as JSON. Characters that are not valid become U+FFFD. */
static json_t *valid_json(const char *text, size_t n) {
  json_t *json = json_stringn(text, n);
  struct buffer valid = {0};
  bool good = true;
  for (size_t at = 0, length; !json && good && at < n; at += length) {
    length = utf8_length(text + at, n - at);
    json_t *character = json_stringn(text + at, length);
    good = character ? buffer_add(&valid, text + at, length) : buffer_add(&valid, "\xef\xbf\xbd", 3);
    json_decref(character);
  }
  if (!json && good) json = json_stringn(valid.text ? valid.text : "", valid.n);
  free(valid.text);
  return json;
}

json_t *answer_take(struct answer *a, bool all) {
  size_t n = answer_ready(a, all);
  json_t *json = valid_json(n ? a->text.text + a->taken : "", n);
  a->taken += n;
  return json;
}

void answer_free(struct answer *a) {
  free(a->text.text);
  *a = (struct answer){0};
}
