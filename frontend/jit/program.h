/* Programs: commands over memory, recorded as one command stream per queue and run repeatedly. */
#ifndef DOORBELL_FRONTEND_PROGRAM_H
#define DOORBELL_FRONTEND_PROGRAM_H
#include "../run/exchange.h"
#include "../run/report.h"

enum { PROGRAM_TURNS = 2 }; /* number of recordings per queue */

struct program_memory {
  db_buffer *buffer; /* borrowed; used by the next run */
  uint64_t offset;   /* the offset in buffer at which the memory starts */
  uint8_t slot;
  bool varies;    /* buffer and offset may change between runs */
  bool shares;    /* only the program uses it, and it may share bytes with other memories */
  uint32_t in;    /* 1 + the memory in which program_plan placed it, or 0 */
  uint64_t bytes; /* of memory that shares, and of the memory that program_plan adds for it, which has no buffer yet */
  struct {        /* contained in the recordings of each turn, which hold references */
    db_buffer *buffer;
    uint64_t offset;
  } recorded[PROGRAM_TURNS];
};
/* A memory access of a command, one per argument: bytes at an offset of a memory. */
struct program_access {
  uint32_t memory;
  bool written;
  uint64_t offset, bytes;
};
struct program_command {
  const struct kernel *kernel; /* NULL for a copy, from the memory of the second access to that of the first */
  const struct kernel *custom; /* equals `kernel` if the user brought it; the command owns a reference */
  struct exchange *exchange;   /* or an exchange, in the memory of the first access; owned */
  db_program *program;
  uint32_t first, naccesses; /* indices in program.accesses */
  uint32_t vars, nvars;      /* indices in program.var_of: the variables that the kernel takes, by number */
  uint8_t slot;              /* the device whose queue executes it */
  bool barrier;              /* this and the following are set by program_build */
  bool signals;
  uint32_t queue, position, first_wait, nwaits;
  uint32_t grid; /* 1 + its index among the commands whose grid depends on variables, or 0 */
};

/* A further kind beside those of enum db_queue_kind: not a hardware queue, but the thread that exchanges data with
 * other processes. */
enum { PROGRAM_EXCHANGES = DB_QUEUE_COPY + 1 };

struct program_queue {
  uint8_t slot; /* with a reference */
  uint8_t kind;
  uint8_t index;               /* among the device's queues of that kind */
  uint32_t last;               /* position of its last command */
  bool signals_start, in_time; /* in_time: its stream contains signals or waits */
  uint32_t first_wait, nwaits; /* waits at the end of a main queue */
  db_signal *signal;           /* NULL if there is only one queue */
  db_recording *recording[PROGRAM_TURNS];
  bool *ends_after; /* by queue: its end is ordered after commands of that queue */
  bool *uses;       /* by memory: its commands use it, and it varies */
  bool *uses_var;
  uint64_t when[PROGRAM_TURNS]; /* the timeline value of each recording's last run */
  db_buffer *stamps;            /* if commands are timed: two stamps per command and turn */
};

struct program {
  struct program_memory *memories;
  struct program_access *accesses;
  struct program_command *commands;
  uint32_t *var_of;
  int64_t *vars; /* for the next run */
  unsigned nmemories, nvars;
  size_t naccesses, ncommands, nvar_of;
  /* ---- set by program_build ---- */
  struct program_queue *queues;
  unsigned nqueues;
  struct program_wait {
    uint32_t queue, position; /* position 0 is the start of a main queue */
  } *waits;
  size_t nwaits;
  uint64_t peak, unplanned; /* bytes of the memories that share: as planned, and without sharing */
  uint32_t *grids;          /* commands whose grid depends on variables */
  unsigned ngrids;
  struct exchange_job *jobs; /* one per exchange, with its waits */
  struct exchange_wait *job_waits;
  unsigned njobs;
  uint32_t *varying; /* indices of the memories that vary */
  unsigned nvarying;
  uint64_t period; /* signals advance by this much per run */
  uint64_t runs;
  bool timed;                  /* every command is recorded between two stamps */
  bool running[PROGRAM_TURNS]; /* if timed: started and not reported yet */
  struct report_source source; /* if timed */
};

/* program_build orders the commands (program_order) and records every queue's stream. It makes two recordings, so that
 * one can be patched while the other runs. program_record does only the second part. Both return 0 or a negative errno
 * with a message. */
int program_build(struct program *p);
int program_record(struct program *p);
/* Starts a run, ordered after all earlier submissions, with one doorbell per queue. Returns 0 or a negative errno. */
int program_run(struct program *p);
/* The kernel's name, the exchange, or "copy". */
const char *program_command_text(const struct program_command *c);
/* Restores the state before program_order, except for planned memory. */
void program_unbuild(struct program *p);
/* Frees the contents of p. Submitted work holds the references that it needs. */
void program_free(struct program *p);

/* ---- program_order.c: assigns a queue, a position and waits to every command, and plans memory ---- */
int program_order(struct program *p);
/* Whether this is the first compute queue of its device, which orders the program with other submissions. */
bool program_queue_is_main(const struct program_queue *q);

/* ---- program_plan.c: adds memories in which others are placed ---- */
/* after: by command and queue, 1 + the position of that queue's last command that the command is ordered after,
 * including its own queue; 0 if there is none. Returns 0 or a negative errno. */
int program_plan(struct program *p, const uint32_t *after);

/* ---- program_print.c: prints a program, ordered or not ---- */
struct program_text { /* names for the numbers in a program */
  const char *(*device)(const void *ctx, unsigned slot);
  const char *(*variable)(const void *ctx, unsigned var);
  /* Describes a memory and returns its bytes; 0 if it is not used. */
  uint64_t (*memory)(const void *ctx, unsigned memory, char *what, size_t cap);
  const void *ctx;
};
void program_print(const struct program *p, const struct program_text *text, FILE *f);

/* ---- program_times.c: the times at which commands ran ---- */

/* If times are wanted (PROFILE, DEBUG, db_watch) when a program is built, allocates memory for the stamps. Returns 0 or
 * a negative errno. */
int program_times_make(struct program *p);
void program_times_free(struct program *p);
/* Records a stamp before or after a command; does nothing if the program is not timed. */
int program_stamp(const struct program *p, db_queue *to, const struct program_command *c, int turn, bool after);
void program_times_started(struct program *p, int turn);
/* Waits for the run of a turn and reports it. */
int program_times_settle(struct program *p, int turn);
#endif
