/* The server of `doorbell llm --serve`: its answers are those of the command, also as streams and two at a time; wrong
 * requests, clients that go away, limits, and its end. */
#include "llm.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

enum { MOST_WAITING = 64, MOST_TEXT = 1 << 16, FEW = 64 };

struct server {
  struct running r;
  int port;
};

/* Starts a server with these options; NULL ends the list. */
static struct server start(const char *model, const char *a, const char *b, const char *c, const char *d) {
  char path[512], line[200];
  struct server s;
  snprintf(path, sizeof path, DATA "%s.gguf", model);
  s.r = start_command((const char *const[]){"doorbell", "llm", path, "--serve", "0", a, b, c, d, NULL});
  if (!fgets(line, sizeof line, s.r.out) || sscanf(line, "listening at http://127.0.0.1:%d", &s.port) != 1)
    fail_msg("the server did not start: %s", fgets(line, sizeof line, s.r.errors) ? line : "no message");
  return s;
}
/* Expects that a server ends well. Its messages are in out. */
static void expect_end(struct server s) {
  int status;
  assert_int_equal(waitpid(s.r.pid, &status, 0), s.r.pid);
  out[fread(out, 1, sizeof out - 1, s.r.errors)] = 0;
  if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the server's status is %x: %s", (unsigned)status, out);
  fclose(s.r.in), fclose(s.r.out), fclose(s.r.errors);
}

static void end(struct server s, int signal_number) {
  kill(s.r.pid, signal_number);
  expect_end(s);
}

/* ---- a client ---- */

/* Sends a request and returns the connection. body: NULL for GET. A stream that answers HTTP 1.0 is not in chunks. */
static int ask(struct server s, const char *path, const char *body) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  if (body)
    dprintf(fd, "POST %s HTTP/1.0\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", path, strlen(body), body);
  else
    dprintf(fd, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
  return fd;
}
/* Reads until the server closes the connection, or until a text is there if it is not NULL, and not much more. Adds to
 * all, which has MOST_TEXT bytes. */
static void hear(int fd, char *all, const char *until) {
  size_t n = strlen(all);
  while (!until || !strstr(all, until)) {
    ssize_t got = read(fd, all + n, until ? FEW : MOST_TEXT - 1 - n);
    if (got <= 0) break;
    all[n += (size_t)got] = 0;
  }
}
/* The status and the JSON of an answer. */
static int answer(int fd, json_t **json) {
  static char all[MOST_TEXT];
  int status = 0;
  *all = 0;
  hear(fd, all, NULL);
  close(fd);
  const char *body = strstr(all, "\r\n\r\n");
  *json = body ? json_loads(body, 0, NULL) : NULL;
  if (sscanf(all, "HTTP/1.%*d %d", &status) != 1 || !*json) fail_msg("no answer: %s", all);
  return status;
}
/* The text of an answer's only choice. The caller frees it. */
static char *text_of(int fd) {
  json_t *json;
  const char *text;
  assert_int_equal(answer(fd, &json), 200);
  assert_int_equal(json_unpack(json, "{s:[{s:s}]}", "choices", "text", &text), 0);
  char *copy = strdup(text);
  json_decref(json);
  return copy;
}
/* The text of the events of a stream, which must end as streams do. */
static char *text_of_stream(const char *all) {
  char *text = calloc(1, MOST_TEXT);
  assert_non_null(strstr(all, "Content-Type: text/event-stream"));
  assert_non_null(strstr(all, "data: [DONE]"));
  for (const char *at = all; (at = strstr(at, "data: {")); at += 6) {
    json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
    const char *piece = NULL;
    if (json_unpack(event, "{s:[{s:s}]}", "choices", "text", &piece) &&
        json_unpack(event, "{s:[{s:{s:s}}]}", "choices", "delta", "content", &piece))
      piece = "";
    strcat(text, piece);
    json_decref(event);
  }
  return text;
}
static char *stream_of(int fd) {
  static char all[MOST_TEXT];
  *all = 0;
  hear(fd, all, NULL);
  close(fd);
  return text_of_stream(all);
}

/* What the command adds to a text. */
static char *text_of_command(const char *model, const char *text, int n) {
  EXPECT(0, "llm " DATA "%s.gguf -p '%s' -n %d", model, text, n);
  out[strcspn(out, "\n")] = 0; /* the messages follow */
  assert_true(strlen(out) > strlen(text));
  return strdup(out + strlen(text));
}
static const char *request(const char *text, int n, const char *more) {
  static char body[8][512];
  static unsigned at;
  char *b = body[at++ % 8];
  snprintf(b, 512, "{\"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": 0%s}", text, n, more);
  return b;
}
static void expect_same(char *got, const char *want) {
  assert_string_equal(got, want);
  free(got);
}

/* ---- tests ---- */

#define TEXTS  "/v1/completions"
#define CHATS  "/v1/chat/completions"
#define STREAM ", \"stream\": true"
/* In a model that does not end texts, this takes minutes. */
#define LONG_TEXT "--context", "60000"
static const char *long_request(const char *more) { return request("!", 50000, more); }

static void answers_equal_those_of_the_command(void **state) {
  struct server s = start("qwen3", NULL, NULL, NULL, NULL);
  char *a = text_of_command("qwen3", "#$", 60), *b = text_of_command("qwen3", "+", 30);
  assert_true(strlen(a) > 20);
  expect_same(text_of(ask(s, TEXTS, request("#$", 60, ""))), a);
  expect_same(stream_of(ask(s, TEXTS, request("#$", 60, STREAM))), a);
  expect_same(text_of(ask(s, TEXTS, request("+", 30, ", \"top_k\": 1, \"user\": null"))), b);
  int first = ask(s, TEXTS, request("#$", 60, STREAM)), second = ask(s, TEXTS, request("+", 30, "")); /* at once */
  expect_same(stream_of(first), a);
  expect_same(text_of(second), b);
  char stop[64], *part = strndup(a, 8); /* the text ends before its ninth and tenth characters */
  snprintf(stop, sizeof stop, ", \"stop\": [\"??\", \"%.2s\"]", a + 8);
  if (!strchr(stop, '\\') && strstr(a, (char[]){a[8], a[9], 0}) == a + 8) {
    expect_same(text_of(ask(s, TEXTS, request("#$", 60, stop))), part);
    strcat(stop, STREAM);
    expect_same(stream_of(ask(s, TEXTS, request("#$", 60, stop))), part);
  }
  free(part), free(a), free(b);
  json_t *json;
  int n = 0, added = 0;
  assert_int_equal(answer(ask(s, TEXTS, request("#$", 7, "")), &json), 200);
  const char *finish;
  assert_int_equal(json_unpack(json, "{s:{s:i, s:i}, s:[{s:s}]}", "usage", "prompt_tokens", &n, "completion_tokens",
                               &added, "choices", "finish_reason", &finish),
                   0);
  assert_int_equal(n, 4);
  assert_int_equal(added, 7);
  assert_string_equal(finish, "length");
  json_decref(json);
  end(s, SIGINT);
}

static void two_devices_answer_requests(void **state) {
  struct server s = start("qwen3", "--devices", "2", "--parallel", "2");
  char *a = text_of_command("qwen3", "#$", 60), *b = text_of_command("qwen3", "+", 30);
  int first = ask(s, TEXTS, request("#$", 60, STREAM)), second = ask(s, TEXTS, request("+", 30, "")); /* at once */
  expect_same(stream_of(first), a);
  expect_same(text_of(second), b);
  free(a), free(b);
  end(s, SIGTERM);
}

static void chats(void **state) {
  struct server s = start("qwen2", "--parallel", "1", NULL, NULL);
  static const char body[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"max_tokens\": 6, "
                             "\"temperature\": 0%s}";
  char line[512];
  json_t *json;
  const char *text, *role;
  snprintf(line, sizeof line, body, "#$", "");
  assert_int_equal(answer(ask(s, CHATS, line), &json), 200);
  assert_int_equal(json_unpack(json, "{s:[{s:{s:s, s:s}}]}", "choices", "message", "role", &role, "content", &text), 0);
  assert_string_equal(role, "assistant");
  EXPECT(0, "llm " DATA "qwen2.gguf --chat -p '#$' -n 6 </dev/null");
  out[strcspn(out, "\n")] = 0;
  assert_string_equal(text, out);
  snprintf(line, sizeof line, body, "#$", STREAM ", \"stream_options\": {\"include_usage\": true}");
  expect_same(stream_of(ask(s, CHATS, line)), text);
  json_decref(json);
  assert_int_equal(answer(ask(s, "/v1/models", NULL), &json), 200);
  assert_int_equal(json_unpack(json, "{s:[{s:s}]}", "data", "id", &text), 0);
  assert_string_equal(text, "qwen2.gguf");
  json_decref(json);
  end(s, SIGTERM);
}

#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static void names_what_is_wrong(void **state) {
  static const struct {
    const char *path, *body;
    int status;
    const char *message;
  } cases[] = {
      {"/", NULL, 404, "there is no such path"},
      {TEXTS, NULL, 405, "the path has another method"},
      {"/health", "{}", 405, "the path has another method"},
      {TEXTS, "", 400, "no JSON"},
      {TEXTS, "{\"prompt\"", 400, "no JSON: line 1"},
      {TEXTS, "[]", 400, "the request is no JSON object"},
      {TEXTS, "{}", 400, "prompt: missing"},
      {TEXTS, "{\"prompt\": 5}", 400, "prompt: a text or a list of tokens is needed"},
      {TEXTS, "{\"prompt\": [5, \"x\"]}", 400, "prompt: a list of tokens has numbers only"},
      {TEXTS, "{\"prompt\": [5, 64]}", 400, "prompt: token 64 is not below 64"},
      {TEXTS, "{\"prompt\": \"x\", \"max_tokens\": 0}", 400, "max_tokens: a number from 1"},
      {TEXTS, "{\"prompt\": \"x\", \"temperature\": -1}", 400, "temperature: a number from 0"},
      {TEXTS, "{\"prompt\": \"x\", \"n\": 2}", 400, "not supported: n"},
      {TEXTS, "{\"prompt\": \"x\", \"stop\": []}", 400, "stop: a text or a list"},
      {TEXTS, "{\"prompt\": \"x\", \"stop\": [\"y\", \"" LONG LONG LONG LONG "z\"]}", 400,
       "stop: each text needs 1 to 256"},
      {TEXTS, "{\"prompt\": \"x\", \"tools\": []}", 400, "not supported: the field 'tools'"},
      {TEXTS, "{\"prompt\": \"############################################################\"}", 400,
       "the prompt has 62 tokens, but the context of 32"},
      {CHATS, "{\"messages\": []}", 400, "tokenizer.chat_template: missing"},
  };
  struct server s = start("llama", "--context", "32", NULL, NULL);
  json_t *json;
  const char *message;
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(answer(ask(s, cases[i].path, cases[i].body), &json), cases[i].status);
    assert_int_equal(json_unpack(json, "{s:{s:s}}", "error", "message", &message), 0);
    assert_contains(message, cases[i].message);
    json_decref(json);
  }
  int fd = ask(s, "/health", NULL); /* still there */
  assert_int_equal(answer(fd, &json), 200);
  json_decref(json);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
  fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  dprintf(fd, "POST " TEXTS " HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n");
  assert_int_equal(answer(fd, &json), 413);
  json_decref(json);
  end(s, SIGTERM);
  EXPECT(1, "llm " DATA "llama.gguf --serve 0 --host nowhere");
  assert_contains(out, "--host: 'nowhere' is no IPv4 address");
  EXPECT(1, "llm " DATA "llama.gguf --serve 0 --chat-template x");
  REFUSES("--serve takes texts from requests", "llm x.gguf --serve 0 -p x");
  REFUSES("--parallel needs a number from 1 to 8, not '9'", "llm x.gguf --serve 0 --parallel 9");
}

static void clients_may_go_away(void **state) {
  struct server s = start("llama", LONG_TEXT, "--parallel", "1");
  char *want = text_of_command("llama", "#", 5), all[MOST_TEXT] = "";
  int fd = ask(s, TEXTS, long_request(STREAM));
  hear(fd, all, "data: ");
  close(fd);
  expect_same(text_of(ask(s, TEXTS, request("#", 5, ""))), want);
  close(ask(s, TEXTS, long_request("")));
  expect_same(text_of(ask(s, TEXTS, request("#", 5, ""))), want);
  free(want);
  end(s, SIGTERM);
  assert_contains(out, ", cancelled\nrequest 2: ");
}

static void limits_are_kept(void **state) {
  struct server s = start("llama", LONG_TEXT, "--parallel", "1");
  struct pollfd all[MOST_WAITING + 2];
  json_t *json;
  int status = 0;
  for (unsigned i = 0; i < MOST_WAITING + 2; i++) all[i] = (struct pollfd){ask(s, TEXTS, long_request("")), POLLIN, 0};
  assert_true(poll(all, MOST_WAITING + 2, -1) > 0); /* one has a place, 64 wait */
  for (unsigned i = 0; i < MOST_WAITING + 2; i++)
    if (!status && all[i].revents)
      status = answer(all[i].fd, &json);
    else
      close(all[i].fd);
  assert_int_equal(status, 429);
  json_decref(json);
  end(s, SIGINT);
  s = start("llama", LONG_TEXT, "--timeout", "1");
  assert_int_equal(answer(ask(s, TEXTS, long_request("")), &json), 504);
  json_decref(json);
  end(s, SIGTERM);
}

static void a_stream_ends_with_the_server(void **state) {
  struct server s = start("llama", LONG_TEXT, NULL, NULL);
  enum { KEPT = 1024 };
  static char all[MOST_TEXT];
  int fd = ask(s, TEXTS, long_request(STREAM));
  hear(fd, all, "data: ");
  kill(s.r.pid, SIGTERM);
  size_t n = strlen(all);
  for (ssize_t got; (got = read(fd, all + n, sizeof all - 1 - n)) > 0;) {
    n += (size_t)got;
    if (n > sizeof all / 2) { /* only the end matters */
      memmove(all, all + n - KEPT, KEPT);
      n = KEPT;
    }
    all[n] = 0;
  }
  close(fd);
  assert_contains(all, "\"message\": \"the server ends\"");
  expect_end(s);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_equal_those_of_the_command),
      cmocka_unit_test(two_devices_answer_requests),
      cmocka_unit_test(chats),
      cmocka_unit_test(names_what_is_wrong),
      cmocka_unit_test(clients_may_go_away),
      cmocka_unit_test(limits_are_kept),
      cmocka_unit_test(a_stream_ends_with_the_server),
  };
  return cmocka_run_group_tests_name("serve", tests, read_golden, forget);
}
