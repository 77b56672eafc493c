/* doorbell llm: continues a text with a language model, chats with it, or measures it. */
#include "../../../hcq/error.h"
#include "../../llm/chat.h"
#include "../../llm/llm.h"
#include "../cli.h"
#include "serve.h"
#include "speed.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

enum {
  TEMPERATURE = OPTION_KEYS,
  TOP_K,
  TOP_P,
  SEED,
  CHAT,
  CHAT_TEMPLATE,
  BENCH,
  SERVE,
  HOST,
  PARALLEL,
  TIMEOUT,
  CONTEXT,
  DEVICE,
  DEVICES
};
enum { MOST_LINE = 1 << 16, INTERRUPTED = 128 + SIGINT };
static const struct argp_option options[] = {
    {"prompt", 'p', "TEXT", 0, "The beginning of the text, or the first message of a chat", 0},
    {"tokens", 'n', "N", 0, "How many tokens to add; otherwise until the model ends the text, or the context is full",
     0},
    {"temp", TEMPERATURE, "T", 0, "Temperature; 0, the default, always takes the most likely token", 0},
    {"top-k", TOP_K, "K", 0, "Choose among the K most likely tokens; 0: all. 40 unless given", 0},
    {"top-p", TOP_P, "P", 0,
     "Choose among the most likely tokens that have the probability P together. 0.95 unless given", 0},
    {"seed", SEED, "S", 0, "Of the random numbers; otherwise the time", 0},
    {"context", CONTEXT, "N", 0, "How many tokens a text may have; otherwise as in the file, at most 4096", 0},
    {"chat", CHAT, NULL, 0, "Read messages from standard input and answer them", 0},
    {"chat-template", CHAT_TEMPLATE, "NAME", 0, "The format of chats, instead of that of the file's template", 0},
    {"bench", BENCH, NULL, 0,
     "Print tokens per second of a prompt of 512 tokens, or half of a shorter context, and of 64 more (-n)", 0},
    {"serve", SERVE, "PORT", 0,
     "Answer requests of OpenAI's API for completions and chats over HTTP; 0: any free port, which is printed", 0},
    {"host", HOST, "ADDRESS", 0, "The IPv4 address to listen at; otherwise 127.0.0.1, for this machine only", 0},
    {"parallel", PARALLEL, "N", 0, "How many requests to answer together, 1 to 8; otherwise 4. Others wait", 0},
    {"timeout", TIMEOUT, "SECONDS", 0, "The most that a request may take, with waiting; otherwise 600", 0},
    {"dev", DEVICE, "DEV", 0, "The device; otherwise the environment's DEV, or the CPU", 0},
    {"devices", DEVICES, "N", 0,
     "Divide the model among DEV and the N-1 devices after it; N must divide the number of query heads", 0},
    {0}};

struct llm_options {
  const char *file, *prompt, *device, *chat_template;
  int64_t tokens, context, devices; /* tokens < 0: not given */
  struct sampler sampler;
  bool chat, bench, serves;
  struct serve_options serve;
};

static double parse_number(struct argp_state *state, const char *option, const char *text, double most) {
  char *end;
  double v = strtod(text, &end);
  if (end == text || *end || !(v >= 0 && v <= most))
    argp_error(state, "%s needs a number from 0 to %g, not '%s'", option, most, text);
  return v;
}
static int64_t parse_count(struct argp_state *state, const char *option, const char *text, int64_t least,
                           int64_t most) {
  int64_t n = 0;
  if (!parse_integer(text, least, most, &n))
    argp_error(state, "%s needs a number from %lld to %lld, not '%s'", option, (long long)least, (long long)most, text);
  return n;
}

static error_t parse(int key, char *value, struct argp_state *state) {
  struct llm_options *x = state->input;
  switch (key) {
  case 'p': x->prompt = value; return 0;
  case 'n': x->tokens = parse_count(state, "-n", value, 0, INT32_MAX); return 0;
  case TEMPERATURE: x->sampler.temperature = parse_number(state, "--temp", value, 1000); return 0;
  case TOP_K: x->sampler.top_k = (size_t)parse_count(state, "--top-k", value, 0, INT32_MAX); return 0;
  case TOP_P: x->sampler.top_p = parse_number(state, "--top-p", value, 1); return 0;
  case SEED: x->sampler.seed = (uint64_t)parse_count(state, "--seed", value, 0, INT64_MAX); return 0;
  case CONTEXT: x->context = parse_count(state, "--context", value, 1, INT32_MAX); return 0;
  case CHAT: x->chat = true; return 0;
  case CHAT_TEMPLATE: x->chat_template = value; return 0;
  case BENCH: x->bench = true; return 0;
  case SERVE:
    x->serves = true;
    x->serve.port = parse_count(state, "--serve", value, 0, UINT16_MAX);
    return 0;
  case HOST: x->serve.host = value; return 0;
  case PARALLEL: x->serve.texts = parse_count(state, "--parallel", value, 1, LLM_TEXTS); return 0;
  case TIMEOUT: x->serve.seconds = parse_count(state, "--timeout", value, 1, 1000000); return 0;
  case DEVICE: x->device = value; return 0;
  case DEVICES: x->devices = parse_count(state, "--devices", value, 1, DB_GROUP_MAX); return 0;
  case ARGP_KEY_ARG: keep_only_file(state, &x->file, value); return 0;
  case ARGP_KEY_END:
    if (!x->file) argp_error(state, "no file");
    if (!x->prompt && !x->chat && !x->bench && !x->serves)
      argp_error(state, "no text: -p TEXT, --chat, --bench or --serve PORT is needed");
    if (x->serves && (x->prompt || x->chat || x->bench))
      argp_error(state, "--serve takes texts from requests, so -p, --chat and --bench are not possible");
    if (x->bench && (x->chat || x->prompt))
      argp_error(state, "--bench has its own text, so -p and --chat are not possible");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static volatile sig_atomic_t interrupted;
static void interrupt(int number) { interrupted = number; }

/* ---- progress ---- */

struct progress {
  bool terminal;
  int percent;
};
static void show_progress(void *ctx, uint64_t done, uint64_t all) {
  struct progress *p = ctx;
  int percent = all ? (int)(100.0 * (double)done / (double)all) : 100;
  if (!p->terminal || percent == p->percent) return;
  p->percent = percent;
  fprintf(stderr, "\rloading %d %%", percent);
}
static void end_progress(const struct progress *p) {
  if (p->terminal && p->percent >= 0) fputs("\r\033[K", stderr);
}

/* ---- texts ---- */

struct session {
  const struct command *self;
  struct llm_options x;
  struct llm *l;
  const struct tokenizer *t;
  float *logits;
  bool shows_speed; /* while tokens come */
  struct counted {
    size_t tokens;
    double seconds;
  } prompt, added; /* the first call of a program compiles it, so it is not in the seconds of added */
};

static void print_rate(const char *what, struct counted c) {
  fprintf(stderr, "%s: %zu tokens, %.2f s", what, c.tokens, c.seconds);
  if (c.tokens) fprintf(stderr, ", %.2f tokens/s", (double)c.tokens / c.seconds);
}
static void print_speed(const struct session *s) {
  if (s->shows_speed) fputs("\r\033[K", stderr);
  print_rate("prompt", s->prompt);
  if (s->added.tokens) print_rate("; added", s->added);
  fputc('\n', stderr);
}
/* Shows the speed so far: in the terminal's title if the text is in the terminal, too. */
static void show_speed(const struct session *s) {
  if (!s->shows_speed || !s->added.tokens) return;
  bool title = isatty(STDOUT_FILENO);
  fprintf(stderr, title ? "\033]0;%.2f tokens/s\007" : "\r%.2f tokens/s ", (double)s->added.tokens / s->added.seconds);
}

/* Appends a text to the model's, in parts that Ctrl-C can interrupt. */
static int add_text(struct session *s, const char *text, bool first) {
  struct tokens all = {0};
  double start = cli_now();
  int err = tokenizer_encode(s->t, text, strlen(text), TOKENIZER_CONTROL | (first ? TOKENIZER_ENDS : 0), &all);
  if (!err && !all.n) err = -ENODATA;
  if (!err && all.n > (size_t)(llm_context(s->l) - llm_length(s->l, 0)))
    err = db_fail(-ENOSPC, "the text has %zu tokens, which the context of %lld has no room for", all.n,
                  (long long)llm_context(s->l));
  for (size_t at = 0, n; at < all.n && !err && !interrupted; at += n) {
    n = all.n - at < LLM_PART ? all.n - at : LLM_PART;
    err = llm_eval(s->l, 0, all.id + at, n, s->logits);
    if (!err) s->prompt.tokens += n;
  }
  s->prompt.seconds += cli_now() - start;
  free(all.id);
  return err;
}

/* Adds tokens and prints them as they come. Returns 0 or a negative errno. */
static int generate(struct session *s) {
  char piece[512];
  int err = 0;
  int64_t most = s->x.tokens >= 0 ? s->x.tokens : INT64_MAX;
  for (int64_t n = 0; n < most && !err && !interrupted; n++) {
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): llm_main frees s->logits
    int32_t id = sampler_choose(&s->x.sampler, s->logits, (size_t)llm_vocabulary(s->l));
    if (id < 0) return db_fail(-ENOMEM, "out of memory");
    if (tokenizer_is_end(s->t, id) || llm_length(s->l, 0) == llm_context(s->l)) break;
    fwrite(piece, 1, tokenizer_piece(s->t, id, false, piece, sizeof piece), stdout);
    fflush(stdout);
    double start = cli_now();
    err = llm_eval(s->l, 0, &id, 1, s->logits);
    if (n > 1) s->added.tokens++, s->added.seconds += cli_now() - start; /* the first two calls compile and capture */
    show_speed(s);
  }
  puts("");
  fflush(stdout);
  return err;
}

static int failed(const struct session *s) { return fail_work(s->self, "%s: %s", s->x.file, db_error()); }

static int continue_text(struct session *s) {
  if (*s->x.prompt) fputs(s->x.prompt, stdout), fflush(stdout);
  int err = add_text(s, s->x.prompt, true);
  if (err == -ENODATA) return fail_work(s->self, "%s: the text has no tokens", s->x.file);
  if (!err) err = generate(s);
  if (err) return failed(s);
  print_speed(s);
  return interrupted ? INTERRUPTED : EXIT_DONE;
}

/* ---- chats ---- */

static int answer(struct session *s, struct chat *c, const char *message) {
  char *text = NULL;
  size_t size = 0;
  bool first = !c->begun;
  if (!(c->out = open_memstream(&text, &size))) return db_fail(-ENOMEM, "out of memory");
  if (!first) chat_end_answer(c);
  chat_message(c, CHAT_USER, message);
  chat_begin_answer(c);
  bool good = !fclose(c->out);
  int err = good ? add_text(s, text, first) : db_fail(-ENOMEM, "out of memory");
  free(text);
  return err ? err : generate(s);
}

/* Reads a line without its end. Returns false at the end of standard input, or after Ctrl-C. SIGINT is blocked between
 * the test of `interrupted` and the wait, because the wait would not see a signal that comes between them. */
static bool read_line(char *line, int size) {
  sigset_t sigint, before;
  fd_set in;
  FD_ZERO(&in);
  FD_SET(STDIN_FILENO, &in);
  sigemptyset(&sigint);
  sigaddset(&sigint, SIGINT);
  sigprocmask(SIG_BLOCK, &sigint, &before);
  bool ready = !interrupted && pselect(STDIN_FILENO + 1, &in, NULL, NULL, NULL, &before) > 0;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (!ready || !fgets(line, size, stdin)) return false;
  line[strcspn(line, "\n")] = 0;
  return true;
}

static int chat(struct session *s) {
  static char line[MOST_LINE];
  bool terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
  const char *message = s->x.prompt;
  struct chat c = {.format = chat_format_find(s->x.chat_template, llm_file(s->l))};
  if (!c.format) return failed(s);
  setvbuf(stdin, NULL, _IONBF, 0); /* so that pselect sees all input that is left */
  while (!interrupted) {
    if (!message) {
      if (terminal) fputs("> ", stderr);
      if (!read_line(line, sizeof line)) break;
      message = line;
    }
    if (*message && answer(s, &c, message)) return failed(s);
    message = NULL;
  }
  print_speed(s);
  return interrupted ? INTERRUPTED : EXIT_DONE;
}

/* ---- speed ---- */

static bool is_interrupted(void) { return interrupted; }

static void print_runs(const char *what, double tokens, const struct runs *r) {
  double rate = tokens / runs_mean(r);
  printf("%s: %.2f tokens/s, deviation %.2f; %.2f per second of processor time\n", what, rate,
         rate * runs_deviation(r) / runs_mean(r), rate * r->sum / r->processor);
}

static int measure(struct session *s) {
  char what[64];
  struct llm_speed speed = {.l = s->l,
                            .texts = 1,
                            .tokens = s->x.tokens >= 0 ? s->x.tokens : LLM_SPEED_TOKENS,
                            .logits = s->logits,
                            .stopped = is_interrupted};
  if (llm_speed_measure(&speed)) return failed(s);
  snprintf(what, sizeof what, "prompt of %lld tokens", (long long)speed.prompt);
  if (speed.prompts.n) print_runs(what, (double)speed.prompt, &speed.prompts);
  snprintf(what, sizeof what, "%u more tokens", speed.steps.n);
  if (speed.steps.n) print_runs(what, 1, &speed.steps);
  return interrupted ? INTERRUPTED : EXIT_DONE;
}

/* ---- the command ---- */

static int run_session(struct session *s) {
  const char *why;
  s->logits = malloc((size_t)llm_vocabulary(s->l) * sizeof *s->logits);
  if (!s->logits) return fail_work(s->self, "%s: out of memory", s->x.file);
  if (s->x.bench) return measure(s);
  s->t = llm_tokenizer(s->l, &why);
  if (!s->t) return fail_work(s->self, "%s: %s", s->x.file, why);
  if (s->x.serves) {
    s->x.serve.file = s->x.file, s->x.serve.chat_template = s->x.chat_template;
    return serve(s->self, s->l, s->t, &s->x.serve);
  }
  return s->x.chat ? chat(s) : continue_text(s);
}

/* Opens device `name` or, if n > 1, a group of it and the following ones: CPU, CPU:1, ... or CPU:2, CPU:3, ... Returns
 * NULL with a message if one cannot be opened. */
static db_device *open_devices(const char *name, unsigned n) {
  db_device *device[DB_GROUP_MAX] = {db_open(name)}, *all = NULL;
  char other[64];
  unsigned opened = device[0] ? 1 : 0;
  if (opened && n == 1) return device[0];
  const char *whole = opened ? db_device_name(device[0]) : "", *colon = strrchr(whole, ':');
  bool numbered = colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
  unsigned long first = numbered ? strtoul(colon + 1, NULL, 10) : 0;
  int length = (int)(numbered ? (size_t)(colon - whole) : strlen(whole));
  for (; opened && opened < n; opened++) {
    snprintf(other, sizeof other, "%.*s:%lu", length, whole, first + opened);
    if (!(device[opened] = db_open(other))) break;
  }
  if (opened == n) all = db_group(device, n);
  while (opened) db_close(device[--opened]); /* the group keeps them open */
  return all;
}

static int llm_main(const struct command *self, int argc, char **argv) {
  struct session s = {.self = self,
                      .shows_speed = isatty(STDERR_FILENO),
                      .x = {.tokens = -1,
                            .devices = 1,
                            .sampler = {.top_k = 40, .top_p = 0.95},
                            .serve = {.host = "127.0.0.1", .texts = 4, .seconds = 600}}};
  struct progress p = {.terminal = s.shows_speed, .percent = -1};
  s.x.sampler.seed = (uint64_t)time(NULL);
  command_parse(self, argc, argv, 0, &s.x);
  db_device *dev = NULL;
  if ((s.x.device || s.x.devices > 1) && !(dev = open_devices(s.x.device, (unsigned)s.x.devices)))
    return fail_work(self, "%s", db_error());
  sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND}, NULL);
  int status = EXIT_FAILED;
  if (llm_open(&s.l, s.x.file, dev, s.x.serves ? (unsigned)s.x.serve.texts : 1, s.x.context, show_progress, &p)) {
    end_progress(&p);
    fail_work(self, "%s", db_error());
  } else {
    end_progress(&p);
    status = interrupted ? INTERRUPTED : run_session(&s);
  }
  free(s.logits);
  llm_close(s.l);
  db_close(dev);
  return status;
}

const struct command llm_command = {
    .name = "llm",
    .summary = "continue a text with a language model",
    .argp = {.options = options,
             .parser = parse,
             .args_doc = "FILE",
             .doc = "Loads a language model from a .gguf file, prints a text and continues it. Quantized weights stay "
                    "quantized in memory. Standard error shows the progress of loading and the speed, of the prompt "
                    "and of added tokens. Ctrl-C ends the "
                    "text after the current token; a second one ends the program at once. The architectures are llama "
                    "(with Mistral and Mixtral), qwen2, qwen3, both with mixtures of experts, gemma, gemma2, gemma3, "
                    "phi3 and gpt2. "
                    "--serve answers POST /v1/completions and /v1/chat/completions, also as streams, and GET "
                    "/v1/models and /health, until SIGINT or SIGTERM."
                    "\v"
                    "Examples:\n"
                    "  doorbell llm model.gguf -p 'Once upon a time' -n 100\n"
                    "  doorbell llm model.gguf --chat --temp 0.7\n"
                    "  doorbell llm model.gguf --bench\n"
                    "  doorbell llm model.gguf --dev NV --devices 2 -p 'Once upon a time'\n"
                    "  doorbell llm model.gguf --serve 8080"},
    .main = llm_main,
};
