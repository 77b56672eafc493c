/* Connections of the server: one thread each, which parses the request and waits for its answer. */
#include "../../../hcq/error.h"
#include "serve_parts.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- answers ---- */

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned status, char *text) {
  struct MHD_Response *answer = MHD_create_response_from_buffer(text ? strlen(text) : 0, text,
                                                                text ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (!answer) return free(text), MHD_NO;
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
  /* The time limit of a connection was replaced by that of a request, so it is not used again. */
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CONNECTION, "close");
  enum MHD_Result result = MHD_queue_response(c, status, answer);
  MHD_destroy_response(answer);
  return result;
}

static json_t *error_json(unsigned status, const char *message) {
  const char *type = status < 500 ? "invalid_request_error" : "server_error";
  return json_pack("{s:{s:o, s:s, s:n, s:n}}", "error", "message", json_text(message), "type", type, "param", "code");
}
/* Takes the reference to value. */
static enum MHD_Result send_json(struct MHD_Connection *c, unsigned status, json_t *value) {
  char *text = value ? json_dumps(value, JSON_ENSURE_ASCII) : NULL;
  json_decref(value);
  return send_text(c, text ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, text);
}
static enum MHD_Result send_error(struct MHD_Connection *c, unsigned status, const char *message) {
  return send_json(c, status, error_json(status, message));
}

static json_t *usage_json(const struct request *r) {
  return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)r->r.ntokens, "completion_tokens",
                   (json_int_t)r->added, "total_tokens", (json_int_t)r->r.ntokens + (json_int_t)r->added);
}
static json_t *finish_json(const struct request *r) { return json_string(r->whole ? "stop" : "length"); }

/* The object of an answer, or of a part of a stream. Takes the reference to choice (NULL: there is none). */
static json_t *object_json(const struct request *r, json_t *choice) {
  char id[40];
  snprintf(id, sizeof id, r->chat ? "chatcmpl-%llu" : "cmpl-%llu", (unsigned long long)r->number);
  const char *object = !r->chat ? "text_completion" : r->c.stream ? "chat.completion.chunk" : "chat.completion";
  json_t *choices = json_array();
  if (choice) json_object_set_new(choice, "index", json_integer(0)), json_array_append_new(choices, choice);
  return json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", id, "object", object, "created", (json_int_t)r->created, "model",
                   json_text(r->s->model), "choices", choices);
}

/* The caller holds the lock, and the request has ended well. */
static json_t *whole_json(struct request *r) {
  json_t *text = answer_take(&r->answer, true);
  json_t *choice = r->chat ? json_pack("{s:{s:s, s:o}}", "message", "role", "assistant", "content", text)
                           : json_pack("{s:o, s:n}", "text", text, "logprobs");
  json_object_set_new(choice, "finish_reason", finish_json(r));
  json_t *all = object_json(r, choice);
  json_object_set_new(all, "usage", usage_json(r));
  return all;
}

/* ---- streams ---- */

/* A part of the text. Takes the references; finish is NULL if it is not the last part. */
static json_t *part_json(const struct request *r, json_t *text, json_t *finish) {
  json_t *choice = r->chat ? json_pack("{s:o}", "delta", text ? json_pack("{s:o}", "content", text) : json_object())
                           : json_pack("{s:o, s:n}", "text", text ? text : json_string(""), "logprobs");
  json_object_set_new(choice, "finish_reason", finish ? finish : json_null());
  return object_json(r, choice);
}

/* The next event of a stream, or NULL if there is none in this stage. Moves on to the next stage. The caller holds the
 * lock; a part of the answer is ready, or the request has ended. */
static json_t *next_event(struct request *r) {
  bool has_ended = r->state == REQUEST_ENDED;
  json_t *choice;
  switch (r->stage) {
  case STREAM_BEGINS:
    r->stage = STREAM_TEXT;
    if (!r->chat) return NULL;
    choice = json_pack("{s:{s:s, s:s}, s:n}", "delta", "role", "assistant", "content", "", "finish_reason");
    return object_json(r, choice);
  case STREAM_TEXT:
    if (answer_ready(&r->answer, has_ended)) return part_json(r, answer_take(&r->answer, has_ended), NULL);
    if (!has_ended) return NULL;
    r->stage = r->status != MHD_HTTP_OK ? STREAM_DONE : STREAM_USAGE;
    return r->status != MHD_HTTP_OK ? error_json(r->status, r->message) : part_json(r, NULL, finish_json(r));
  case STREAM_USAGE:
    r->stage = STREAM_DONE;
    if (!r->c.usage) return NULL;
    choice = object_json(r, NULL);
    json_object_set_new(choice, "usage", usage_json(r));
    return choice;
  default: return NULL;
  }
}

/* Makes the next event. Returns false if memory runs out, or the client is not there any more. */
static bool make_event(struct request *r, int socket) {
  bool good = true;
  json_t *event = NULL;
  free(r->event.text);
  r->event = (struct event){0};
  pthread_mutex_lock(&r->s->lock);
  while (good && !event && r->stage < STREAM_DONE)
    if ((good = r->stage == STREAM_USAGE || serve_wait(r, false, socket))) event = next_event(r);
  pthread_mutex_unlock(&r->s->lock);
  if (!good) return false;
  char *text = event ? json_dumps(event, JSON_ENSURE_ASCII) : strdup("[DONE]");
  if (!event) r->stage = STREAM_ENDED;
  json_decref(event);
  size_t size = text ? strlen(text) + 16 : 0;
  if (!text || !(r->event.text = malloc(size))) return free(text), false;
  r->event.n = (size_t)snprintf(r->event.text, size, "data: %s\n\n", text);
  free(text);
  return true;
}

struct stream {
  struct request *r;
  int socket;
};
static ssize_t read_stream(void *ctx, uint64_t position, char *out, size_t room) {
  const struct stream *stream = ctx;
  struct request *r = stream->r;
  if (r->event.at == r->event.n) {
    if (r->stage == STREAM_ENDED) return MHD_CONTENT_READER_END_OF_STREAM;
    if (!make_event(r, stream->socket)) return MHD_CONTENT_READER_END_WITH_ERROR;
  }
  size_t n = r->event.n - r->event.at;
  if (n > room) n = room;
  memcpy(out, r->event.text + r->event.at, n);
  r->event.at += n;
  return (ssize_t)n;
}

static enum MHD_Result send_stream(struct MHD_Connection *c, struct request *r, int socket) {
  struct stream *stream = malloc(sizeof *stream);
  if (!stream) return MHD_NO;
  *stream = (struct stream){r, socket};
  struct MHD_Response *answer = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, stream, free);
  if (!answer) return free(stream), MHD_NO;
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CONNECTION, "close");
  enum MHD_Result result = MHD_queue_response(c, MHD_HTTP_OK, answer);
  MHD_destroy_response(answer);
  return result;
}

/* ---- requests ---- */

/* Fills in the tokens of the prompt. Returns the status of HTTP. */
static unsigned read_prompt(struct request *r) {
  struct completion *c = &r->c;
  struct server *s = r->s;
  if (c->prompt && tokenizer_encode(s->t, c->prompt, strlen(c->prompt), TOKENIZER_CONTROL | TOKENIZER_ENDS, &c->tokens))
    return snprintf(r->message, sizeof r->message, "out of memory"), MHD_HTTP_INTERNAL_SERVER_ERROR;
  for (size_t i = 0; i < c->tokens.n; i++)
    if (c->tokens.id[i] >= llm_vocabulary(s->l)) {
      snprintf(r->message, sizeof r->message, "prompt: token %d is not below %lld", c->tokens.id[i],
               (long long)llm_vocabulary(s->l));
      return MHD_HTTP_BAD_REQUEST;
    }
  if (!c->tokens.n || c->tokens.n >= (size_t)llm_context(s->l)) {
    snprintf(r->message, sizeof r->message,
             c->tokens.n ? "the prompt has %zu tokens, but the context of %lld has to have room for an answer"
                         : "the prompt has no tokens",
             c->tokens.n, (long long)llm_context(s->l));
    return MHD_HTTP_BAD_REQUEST;
  }
  r->r.tokens = c->tokens.id, r->r.ntokens = c->tokens.n;
  r->r.most = c->most, r->r.sampler = c->sampler;
  return MHD_HTTP_OK;
}

static uint64_t random_seed(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Answers a request whose body is complete. */
static enum MHD_Result complete(struct MHD_Connection *c, struct request *r) {
  struct server *s = r->s;
  int socket = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  if (r->too_long) return send_error(c, MHD_HTTP_CONTENT_TOO_LARGE, "the body is longer than 4 MiB");
  if (r->chat && !s->format) return send_error(c, MHD_HTTP_BAD_REQUEST, s->no_format);
  pthread_mutex_lock(&s->parsing);
  int err = completion_parse(&r->c, r->body.text, r->body.n, r->chat ? s->format : NULL, random_seed());
  unsigned status = err ? MHD_HTTP_BAD_REQUEST : read_prompt(r);
  pthread_mutex_unlock(&s->parsing);
  free(r->body.text);
  r->body = (struct buffer){0};
  if (status != MHD_HTTP_OK) return send_error(c, status, err ? db_error() : r->message);
  /* While the model works, the connection is idle. */
  MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)(s->x->seconds + STEP_SECONDS));
  if ((status = serve_enter(s, r))) return send_error(c, status, r->message);
  pthread_mutex_lock(&s->lock);
  bool there = serve_wait(r, !r->c.stream, socket);
  bool failed = there && r->state == REQUEST_ENDED && r->status != MHD_HTTP_OK;
  json_t *all = there && !failed && !r->c.stream ? whole_json(r) : NULL;
  pthread_mutex_unlock(&s->lock);
  if (!there) return MHD_NO;
  if (failed) return send_error(c, r->status, r->message);
  return r->c.stream ? send_stream(c, r, socket) : send_json(c, MHD_HTTP_OK, all);
}

static enum MHD_Result send_models(struct MHD_Connection *c, struct server *s) {
  return send_json(c, MHD_HTTP_OK,
                   json_pack("{s:s, s:[{s:o, s:s, s:i, s:s}]}", "object", "list", "data", "id", json_text(s->model),
                             "object", "model", "created", 0, "owned_by", "doorbell"));
}
static enum MHD_Result send_health(struct MHD_Connection *c, struct server *s) {
  return send_json(c, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

static const struct route {
  const char *method, *path;
  enum MHD_Result (*send)(struct MHD_Connection *c, struct server *s); /* NULL: a completion */
  bool chat;
} routes[] = {
    {"GET", "/health", send_health},
    {"GET", "/v1/models", send_models},
    {"POST", "/v1/completions"},
    {"POST", "/v1/chat/completions", .chat = true},
};
enum { ROUTES = sizeof routes / sizeof *routes };

static struct request *request_new(struct server *s, bool chat) {
  struct request *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  *r = (struct request){.s = s, .chat = chat, .created = time(NULL)};
  r->answer.c = &r->c;
  serve_callbacks(r);
  serve_condition(&r->changed);
  return r;
}

/* libmicrohttpd calls it when the headers are there, for each part of the body, and at the end of the body. The body is
 * read before an error is sent, because a connection that is closed with bytes to read loses what was sent to it. Only
 * a body whose header already says more than 4 MiB is not read; its client may lose the message. */
static enum MHD_Result handle(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                              const char *version, const char *part, size_t *size, void **state) {
  struct server *s = ctx;
  struct request *r = *state;
  const struct route *route = routes;
  while (route < routes + ROUTES && strcmp(route->path, path) != 0) route++;
  if (!r) {
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (length && strtoull(length, NULL, 10) > MOST_BODY)
      return send_error(c, MHD_HTTP_CONTENT_TOO_LARGE, "the body is longer than 4 MiB");
    return (*state = request_new(s, route < routes + ROUTES && route->chat)) ? MHD_YES : MHD_NO;
  }
  if (*size) {
    r->too_long |= r->body.n + *size > MOST_BODY;
    if (!r->too_long && !buffer_add(&r->body, part, *size)) return MHD_NO;
    *size = 0;
    return MHD_YES;
  }
  if (route == routes + ROUTES) return send_error(c, MHD_HTTP_NOT_FOUND, "there is no such path");
  if (strcmp(route->method, method) != 0)
    return send_error(c, MHD_HTTP_METHOD_NOT_ALLOWED, "the path has another method");
  return route->send ? route->send(c, s) : complete(c, r);
}

static void forget(void *ctx, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode why) {
  struct request *r = *state;
  if (!r) return;
  serve_leave(r);
  completion_free(&r->c);
  answer_free(&r->answer);
  pthread_cond_destroy(&r->changed);
  free(r->event.text);
  free(r->body.text);
  free(r);
  *state = NULL;
}

struct MHD_Daemon *serve_listen(struct server *s) {
  const struct serve_options *x = s->x;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)x->port)};
  if (inet_pton(AF_INET, x->host, &address.sin_addr) != 1) {
    fail_work(s->self, "--host: '%s' is no IPv4 address", x->host);
    return NULL;
  }
  errno = 0;
  struct MHD_Daemon *d = MHD_start_daemon(
      MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL, handle, s,
      MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS,
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_END);
  if (!d) {
    fail_work(s->self, "cannot listen at %s:%lld: %s", x->host, (long long)x->port, strerror(errno));
    return NULL;
  }
  printf("listening at http://%s:%u\n", x->host, (unsigned)MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
  fflush(stdout);
  return d;
}
