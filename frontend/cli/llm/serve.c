/* The thread that owns the model. Threads of connections (serve_http.c) enter requests into a list. Between two steps
 * of the batch this thread moves them to free places. */
#include "../../../hcq/error.h"
#include "../../llm/chat.h"
#include "serve_parts.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { CHECK_SECONDS = 1 }; /* how often a waiting connection looks whether the client is still there */

static struct server *signalled;
static volatile sig_atomic_t stop_signal;
static void stop(int number) {
  stop_signal = number;
  sem_post(&signalled->work);
}

void serve_condition(pthread_cond_t *c) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(c, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

/* ---- for threads of connections ---- */

unsigned serve_enter(struct server *s, struct request *r) {
  unsigned status = 0;
  pthread_mutex_lock(&s->lock);
  if (s->stopping || s->waiting == MOST_WAITING) {
    status = s->stopping ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_TOO_MANY_REQUESTS;
    snprintf(r->message, sizeof r->message, s->stopping ? "the server ends" : "%u requests wait already", s->waiting);
  } else {
    r->state = REQUEST_WAITING;
    r->number = ++s->requests;
    r->deadline = cli_now() + (double)s->x->seconds;
    *s->last = r;
    s->last = &r->next;
    s->waiting++, s->present++;
    sem_post(&s->work);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

static bool is_closed(int socket) {
  char byte;
  ssize_t n = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool serve_wait(struct request *r, bool whole, int socket) {
  double check = 0;
  while (r->state != REQUEST_ENDED && (whole || !answer_ready(&r->answer, false))) {
    if (cli_now() >= check) {
      if ((r->cancelled |= is_closed(socket))) return false;
      check = cli_now() + CHECK_SECONDS;
    }
    struct timespec until = {(time_t)check, (long)((check - trunc(check)) * 1e9)};
    pthread_cond_timedwait(&r->changed, &r->s->lock, &until);
  }
  return true;
}

void serve_leave(struct request *r) {
  pthread_mutex_lock(&r->s->lock);
  r->cancelled = true;
  while (r->state == REQUEST_WAITING || r->state == REQUEST_RUNNING) pthread_cond_wait(&r->changed, &r->s->lock);
  if (r->state != REQUEST_NEW && !--r->s->present) pthread_cond_broadcast(&r->s->absent);
  pthread_mutex_unlock(&r->s->lock);
}

/* ---- for the model's thread ---- */

/* The caller holds the lock. */
static bool still_wanted(const struct request *r) {
  return !r->cancelled && !r->answer.stopped && !r->s->stopping && cli_now() < r->deadline;
}
static bool wanted(void *ctx) {
  struct request *r = ctx;
  pthread_mutex_lock(&r->s->lock);
  bool yes = still_wanted(r);
  pthread_mutex_unlock(&r->s->lock);
  return yes;
}

static void add(void *ctx, int32_t token) {
  struct request *r = ctx;
  char piece[512];
  size_t n = tokenizer_piece(r->s->t, token, false, piece, sizeof piece);
  pthread_mutex_lock(&r->s->lock);
  r->added++;
  if (!answer_add(&r->answer, piece, n)) r->cancelled = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->s->lock);
}

/* Stores why a request ended. The caller holds the lock. */
static void set_end(struct request *r, enum batch_end why, const char *message) {
  bool stopped = why == BATCH_STOP || r->answer.stopped;
  r->status = MHD_HTTP_OK;
  r->whole = stopped;
  if (why == BATCH_FAILED) {
    r->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    snprintf(r->message, sizeof r->message, "%s", message);
  } else if (why == BATCH_UNWANTED && !stopped) {
    r->status = r->s->stopping ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_GATEWAY_TIMEOUT;
    snprintf(r->message, sizeof r->message, r->s->stopping ? "the server ends" : "the request took longer than %lld s",
             (long long)r->s->x->seconds);
  }
  r->state = REQUEST_ENDED;
  pthread_cond_broadcast(&r->changed);
}

static void ended(void *ctx, enum batch_end why, const char *message) {
  struct request *r = ctx;
  struct server *s = r->s;
  pthread_mutex_lock(&s->lock);
  double seconds = cli_now() - r->begun;
  fprintf(stderr, "request %llu: %zu + %zu tokens, %.2f s, %s\n", (unsigned long long)r->number, r->r.ntokens, r->added,
          seconds,
          r->cancelled          ? "cancelled"
          : why == BATCH_FAILED ? message
                                : "ended");
  set_end(r, why, message); /* the connection may free r when the lock is free */
  pthread_mutex_unlock(&s->lock);
}

void serve_callbacks(struct request *r) {
  r->r = (struct batch_request){.wanted = wanted, .add = add, .end = ended, .ctx = r};
}

/* Moves requests to free places, and removes those that nobody waits for. */
static void admit(struct server *s, struct batch *b) {
  pthread_mutex_lock(&s->lock);
  s->stopping = stop_signal != 0;
  for (struct request **at = &s->first, *r; (r = *at);) {
    bool is_wanted = still_wanted(r);
    if (is_wanted && !batch_has_room(b)) {
      at = &r->next;
      continue;
    }
    *at = r->next;
    if (!*at) s->last = at;
    s->waiting--;
    if (is_wanted) {
      r->state = REQUEST_RUNNING;
      r->begun = cli_now();
      batch_add(b, &r->r);
    } else {
      set_end(r, BATCH_UNWANTED, NULL);
    }
  }
  pthread_mutex_unlock(&s->lock);
}

static void answer_requests(struct server *s, struct batch *b) {
  while (!s->stopping || batch_running(b)) {
    admit(s, b);
    if (batch_running(b))
      batch_step(b);
    else if (!s->stopping)
      sem_wait(&s->work);
  }
}

/* ---- the server ---- */

/* Lets connections send what they have, for a minute at most. */
static void finish_connections(struct server *s) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += END_SECONDS;
  pthread_mutex_lock(&s->lock);
  while (s->present && pthread_cond_timedwait(&s->absent, &s->lock, &until) != ETIMEDOUT) {}
  pthread_mutex_unlock(&s->lock);
}

static const char *model_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int run(struct server *s, struct batch *b) {
  sigset_t ends, before;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  signalled = s;
  signal(SIGPIPE, SIG_IGN);
  sigaction(SIGINT, &(struct sigaction){.sa_handler = stop, .sa_flags = (int)SA_RESETHAND}, NULL);
  sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop, .sa_flags = (int)SA_RESETHAND}, NULL);
  pthread_sigmask(SIG_BLOCK, &ends, &before); /* threads of connections inherit the mask */
  struct MHD_Daemon *daemon = serve_listen(s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (daemon) {
    answer_requests(s, b);
    finish_connections(s);
    MHD_stop_daemon(daemon);
  }
  signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL); /* stop uses *s */
  return daemon ? EXIT_DONE : EXIT_FAILED;
}

int serve(const struct command *self, struct llm *l, const struct tokenizer *t, const struct serve_options *x) {
  struct server s = {.self = self, .x = x, .l = l, .t = t, .model = model_name(x->file)};
  s.last = &s.first;
  s.format = chat_format_find(x->chat_template, llm_file(l));
  if (!s.format) snprintf(s.no_format, sizeof s.no_format, "%s", db_error());
  if (!s.format && x->chat_template) return fail_work(self, "%s", db_error());
  struct batch *b = batch_new(l, t, (unsigned)x->texts);
  if (!b) return fail_work(self, "%s", db_error());
  pthread_mutex_init(&s.lock, NULL);
  pthread_mutex_init(&s.parsing, NULL);
  serve_condition(&s.absent);
  sem_init(&s.work, 0, 0);
  int status = run(&s, b);
  sem_destroy(&s.work);
  pthread_cond_destroy(&s.absent);
  pthread_mutex_destroy(&s.parsing);
  pthread_mutex_destroy(&s.lock);
  batch_free(b);
  return status;
}
