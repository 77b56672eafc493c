/* Programs: commands over memory, frozen as one command stream a queue, run again and again. */
#ifndef DOORBELL_FRONTEND_PROGRAM_H
#define DOORBELL_FRONTEND_PROGRAM_H
#include "../run/exchange.h"
#include "../run/report.h"

enum { PROGRAM_TURNS = 2 }; /* recordings of a queue */

struct program_memory {
  db_buffer *buffer; /* borrowed; of the next run */
  uint64_t offset;   /* where the memory begins in buffer */
  uint8_t slot;
  bool varies;    /* buffer and offset may be others in the next run */
  bool shares;    /* nobody but the program sees it, and it may lie in memory with others */
  uint32_t in;    /* 1 + the memory that it lies in since then; 0: it is as it was */
  uint64_t bytes; /* of one that shares, and of the memory that those lie in, which has no buffer yet */
  struct {        /* what each turn's recordings were last told, and hold */
    db_buffer *buffer;
    uint64_t offset;
  } told[PROGRAM_TURNS];
};
/* What a command reads or writes, an argument each: bytes at offset of a memory. */
struct program_access {
  uint32_t memory;
  bool written;
  uint64_t offset, bytes;
};
struct program_command {
  const struct kernel *kernel; /* NULL: a copy, to the first access's memory from the second's */
  struct exchange *exchange;   /* or one of these, in the first access's memory; owned */
  db_program *program;
  uint32_t first, naccesses; /* in program.accesses */
  uint32_t vars, nvars;      /* in program.var_of: the kernel's variables, by number */
  uint8_t slot;              /* whose queue */
  bool barrier;              /* the rest is program_build's */
  bool signals;
  uint32_t queue, position, first_wait, nwaits;
  uint32_t grid; /* 1 + its place among the commands whose grid depends on variables, or 0 */
};

/* The kind, beside those of enum db_queue_kind, of what is no queue of hardware but the thread that exchanges with
 * other processes. */
enum { PROGRAM_EXCHANGES = DB_QUEUE_COPY + 1 };

struct program_queue {
  uint8_t slot; /* a reference */
  uint8_t kind;
  uint8_t index;               /* among the device's of that kind */
  uint32_t last;               /* position of its last command */
  bool signals_start, in_time; /* in_time: there are signals or waits in its stream */
  uint32_t first_wait, nwaits; /* of a main queue's end */
  db_signal *signal;           /* NULL when it is the only queue */
  db_recording *recording[PROGRAM_TURNS];
  bool *behind; /* by queue: it ends behind some of that one's commands */
  bool *uses;   /* by memory: one that varies is among its arguments */
  bool *uses_var;
  uint64_t when[PROGRAM_TURNS]; /* timeline value of each recording's last run */
  db_buffer *stamps;            /* where commands are timed: two a command and turn */
};

struct program {
  struct program_memory *memories;
  struct program_access *accesses;
  struct program_command *commands;
  uint32_t *var_of;
  int64_t *vars; /* values of the next run */
  unsigned nmemories, nvars;
  size_t naccesses, ncommands, nvar_of;
  /* ---- made by program_build ---- */
  struct program_queue *queues;
  unsigned nqueues;
  struct program_wait {
    uint32_t queue, position; /* 0: the start of a main queue */
  } *waits;
  size_t nwaits;
  uint64_t peak, unplanned; /* bytes of what may share, as planned, and were it not */
  uint32_t *grids;          /* commands whose grid depends on variables */
  unsigned ngrids;
  struct exchange_job *jobs; /* of the commands that are exchanges, and what they wait for */
  struct exchange_wait *job_waits;
  unsigned njobs;
  uint32_t *varying; /* numbers of the memories that vary */
  unsigned nvarying;
  uint64_t period; /* signals advance by so much a run */
  uint64_t runs;
  bool timed;                  /* commands are recorded between two stamps */
  bool running[PROGRAM_TURNS]; /* started and not reported yet, of one that is timed */
  struct report_source source; /* of one that is timed */
};

/* Orders the commands (program_order), and records every queue's stream, twice, so that one can be changed while the
 * other runs. 0, or a negative errno and a message. */
int program_build(struct program *p);
int program_record(struct program *p);
/* Starts it behind what was submitted before, one doorbell a queue. */
int program_run(struct program *p);
/* A kernel's name, or what else it is. */
const char *program_command_text(const struct program_command *c);
/* Back to what it was before program_order, but for memory that was planned. */
void program_unbuild(struct program *p);
/* Frees what is in p. What runs holds what it needs. */
void program_free(struct program *p);

/* ---- program_order.c: gives every command its queue and position, and what it has to wait for; memory is planned
 * between ---- */
int program_order(struct program *p);
/* Whether what is submitted elsewhere is ordered by this queue: the first compute queue of its device. */
bool program_queue_is_main(const struct program_queue *q);

/* ---- program_plan.c: adds memories that others lie in ---- */
/* after: by command and queue, 1 + the position that the command is behind, its own queue's included; 0: none. */
int program_plan(struct program *p, const uint32_t *after);

/* ---- program_print.c: a program for people, in order or not ---- */
struct program_text { /* what its numbers stand for */
  const char *(*device)(const void *ctx, unsigned slot);
  const char *(*variable)(const void *ctx, unsigned var);
  /* What a memory is for, and its bytes; 0: it is not used. */
  uint64_t (*memory)(const void *ctx, unsigned memory, char *what, size_t cap);
  const void *ctx;
};
void program_print(const struct program *p, const struct program_text *text, FILE *f);

/* ---- program_times.c: when the commands of runs ran ---- */

/* Whether times are asked for (PROFILE, DEBUG, db_watch) is settled when a program is built. Memory for the stamps. */
int program_times_make(struct program *p);
void program_times_free(struct program *p);
/* Before and after a command; records nothing where the program is not timed. */
int program_stamp(const struct program *p, db_queue *to, const struct program_command *c, int turn, bool after);
void program_times_started(struct program *p, int turn);
/* Reports the turn's run, once it has finished. */
int program_times_settle(struct program *p, int turn);
#endif
