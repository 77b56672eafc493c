/* Shared by the files of the server: requests, which connections wait for and the model's thread answers. */
#ifndef DOORBELL_CLI_LLM_SERVE_PARTS_H
#define DOORBELL_CLI_LLM_SERVE_PARTS_H
#include "../../llm/batch.h"
#include "../../llm/completion.h"
#include "serve.h"
#include <microhttpd.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

enum {
  MOST_CONNECTIONS = 128,
  MOST_WAITING = 64,
  MOST_BODY = 4 << 20,
  IDLE_SECONDS = 30,
  STEP_SECONDS = 600, /* the most that a step, which may compile, exceeds a request's deadline */
  END_SECONDS = 60
};

struct server {
  const struct command *self;
  const struct serve_options *x;
  struct llm *l;
  const struct tokenizer *t;
  const struct chat_format *format; /* NULL: not known, and no_format is the reason */
  char no_format[512];
  const char *model;       /* its name in answers */
  sem_t work;              /* posted when the model's thread has something to do */
  pthread_mutex_t parsing; /* one request at a time: a prompt of 4 MiB needs up to 400 MB for its tokens */
  pthread_mutex_t lock;
  /* under the lock */
  struct request *first, **last; /* that wait for a place among the texts */
  unsigned waiting;
  uint64_t requests;     /* so far */
  unsigned present;      /* requests that connections have, also if they have ended */
  pthread_cond_t absent; /* there is none any more */
  bool stopping;
};

/* A connection has one at a time. */
struct request {
  struct server *s;
  struct buffer body;
  bool chat, too_long;
  int64_t created; /* seconds since 1970 */
  uint64_t number;
  struct completion c;
  struct batch_request r;
  double deadline;
  struct event {
    char *text;
    size_t n, at;
  } event; /* of a stream: what is being sent */
  enum { STREAM_BEGINS, STREAM_TEXT, STREAM_USAGE, STREAM_DONE, STREAM_ENDED } stage;
  /* under the lock */
  struct request *next;
  pthread_cond_t changed;
  enum { REQUEST_NEW, REQUEST_WAITING, REQUEST_RUNNING, REQUEST_ENDED } state;
  bool cancelled; /* the client does not wait any more */
  struct answer answer;
  size_t added;    /* tokens */
  double begun;    /* when it left the list of those that wait */
  unsigned status; /* of HTTP, once the state is REQUEST_ENDED */
  bool whole;      /* the answer ended before the limit of tokens */
  char message[300];
};

/* Makes a condition whose waits use CLOCK_MONOTONIC, like cli_now. */
void serve_condition(pthread_cond_t *c);

/* ---- serve.c: the model's thread ---- */
/* Sets the functions that the batch calls for a request. */
void serve_callbacks(struct request *r);
/* Enters a request. Returns 0, or the status of HTTP with r->message if there are too many. */
unsigned serve_enter(struct server *s, struct request *r);
/* Waits until a part of the answer is ready, or, if whole is set, until it has ended. A client that closes the
 * connection cancels the request; then returns false. The caller holds the lock. */
bool serve_wait(struct request *r, bool whole, int socket);
/* Cancels a request that has not ended, and waits until it has. The connection does not use it after that. */
void serve_leave(struct request *r);

/* ---- serve_http.c: connections ---- */
/* Starts to listen. Returns NULL after a message. */
struct MHD_Daemon *serve_listen(struct server *s);
#endif
