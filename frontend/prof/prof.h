/* Profiles of processes: the records that the queue layer writes (PROF), and the reports that `doorbell prof` makes of
 * them. README.md describes both formats. */
#ifndef DOORBELL_FRONTEND_PROF_PROF_H
#define DOORBELL_FRONTEND_PROF_PROF_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { PROF_VERSION = 1 /* of records and of reports */, PROF_PASSES = 16 /* maximum number of passes */ };

/* ---- record.c: what the records of a folder contain ---- */

struct prof_stats {
  uint64_t n;
  double total, mean, squares, least, most; /* squares: sum of the squared differences from the mean */
};
void prof_stats_add(struct prof_stats *s, double v);
double prof_stats_deviation(const struct prof_stats *s); /* of a call; 0 if there is one */

struct prof_counter {
  char *name, *unit, *source; /* source: "measured", "exact", "model" (enum db_counter_source) */
  unsigned instances;
  struct prof_stats values; /* of the calls that counted it */
};
struct prof_kernel {
  char *device, *name;
  struct prof_stats calls, alone; /* ns. alone: without the commands that start and read counters */
  double flops, bytes;            /* sums of all calls */
  bool rated;                     /* flops and bytes are known */
  uint32_t grid[3], block[3];     /* of the last launch that the record describes */
  uint32_t registers, local_bytes, private_bytes, wave;
  struct prof_counter *counters;
  unsigned ncounters;
  double check[PROF_PASSES]; /* sums of the checks, by pass */
};
struct prof_transfer {
  char *device;
  const char *kind;        /* "copy", "exchange", "write", "read" */
  struct prof_stats calls; /* ns */
  double bytes;
};
enum { PROF_HOST_WORKS = 4 };
extern const char *const prof_host_works[PROF_HOST_WORKS]; /* schedule, compile, submit, wait */

/* A device in one process. */
struct prof_device {
  char *name, *arch, *description;
  uint64_t peak;
  struct prof_sample {
    uint64_t at_ns, bytes;
  } *samples; /* of allocated memory */
  size_t nsamples;
};
struct prof_process {
  int64_t pid, rank;
  unsigned pass;
  bool complete; /* the process ended by itself */
  uint64_t begin_ns, end_ns;
  json_t *command;
  struct prof_device *devices;
  unsigned ndevices;
};

/* What a queue or a host thread did, in the order of the record. */
struct prof_track {
  enum prof_track_kind { PROF_TRACK_KERNELS, PROF_TRACK_COPIES, PROF_TRACK_HOST } kind;
  unsigned process;
  const char *device; /* belongs to the process's device; NULL for a thread */
  uint64_t number;    /* of the queue among the device's queues of that kind, or of the thread */
  struct prof_event {
    uint64_t begin_ns, ns, bytes; /* bytes: of copies and exchanges */
    uint32_t name;                /* index in the session's names */
  } *events;
  size_t nevents;
};
struct prof_session {
  struct prof_process *processes;
  struct prof_kernel *kernels;
  struct prof_transfer *transfers;
  unsigned nprocesses, nkernels, ntransfers, passes;
  struct prof_stats host[PROF_HOST_WORKS];
  struct prof_track *tracks; /* of the processes of pass 0 */
  unsigned ntracks;
  json_t *addresses; /* names of kernels, by process and address of the first instruction */
  json_t *names;     /* of events */
  json_t *numbers;   /* of names, by name */
  json_t *code;      /* lines of the types code and lines; README.md lists their fields */
  json_t *schedules; /* lines of type schedule */
  json_t *notes;     /* texts */
  json_t *emulated;  /* what the emulator counted in processes under `doorbell emu` */
};
/* Whether a file of this name is a record. */
bool prof_is_record(const char *name);
/* Reads all records of a folder. Returns 0, or a negative errno with db_error() set. Free s with prof_session_free in
 * any case. */
int prof_session_read(struct prof_session *s, const char *folder);
void prof_session_free(struct prof_session *s);

/* ---- report.c ---- */

/* Makes a report. Returns NULL if memory runs out. */
json_t *prof_report(const struct prof_session *s);
/* Makes the report of a folder of records, or reads a file with a report. Returns NULL with db_error() set. */
json_t *prof_report_load(const char *path);

/* ---- page.c ---- */
/* Writes the data of the HTML page as JSON. */
void prof_page_write(FILE *f, const struct prof_session *s, const json_t *report);

/* ---- print.c ---- */
void prof_print(FILE *f, const json_t *report);
void prof_print_csv(FILE *f, const json_t *report);

/* ---- diff.c ---- */
/* Compares two reports kernel by kernel. */
json_t *prof_diff(const json_t *before, const json_t *after);
void prof_diff_print(FILE *f, const json_t *diff);

/* ---- occupancy.c ---- */
struct prof_occupancy {
  double share;      /* of the waves that a compute unit can hold */
  const char *limit; /* what allows no more */
};
/* Returns false if the machine or the kernel's use of it is unknown. */
bool prof_occupancy(const char *arch, const struct prof_kernel *k, struct prof_occupancy *out);
/* The limits of a machine, for the page's calculator. NULL if they are unknown. */
json_t *prof_occupancy_limits(const char *arch);
#endif
