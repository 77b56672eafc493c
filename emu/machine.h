/* The part of an emulated machine that every vendor's has: the table of calls, its file descriptors, and what a vendor
 * answers. */
#ifndef DOORBELL_EMU_MACHINE_H
#define DOORBELL_EMU_MACHINE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "../hcq/os.h"
#include "emu.h"

struct emu_machine;
struct emu_file;

/* One kind of open file. Calls may come from several threads; close is the last one. */
struct emu_file_ops {
  int (*ioctl)(struct emu_file *file, unsigned long request, void *arg);
  void *(*mmap)(struct emu_file *file, void *addr, size_t len, int prot, int flags, off_t off);
  /* As os.poll; NULL: always ready, as Linux has it for files that do not implement poll. */
  int (*poll)(struct emu_file *file, short events, int timeout_ms);
  void (*close)(struct emu_file *file);
};
struct emu_file {
  const struct emu_file_ops *ops;
  unsigned refs; /* under the machine's files_lock */
};

struct emu_machine_ops {
  /* *out has no references yet. */
  int (*open)(struct emu_machine *m, const char *path, int flags, struct emu_file **out);
  ssize_t (*read_file)(struct emu_machine *m, const char *path, char *buf, size_t cap);
  int (*list_dir)(struct emu_machine *m, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
  int (*stats)(struct emu_machine *m, unsigned gpu, struct emu_stats *out);
  void (*detail)(struct emu_machine *m, bool on);
  int (*kernels)(struct emu_machine *m, unsigned gpu, struct emu_kernel_stats **out, size_t *n);
  void (*stop)(struct emu_machine *m);
  /* Stops all threads and frees the machine; every file is closed by then. */
  void (*free)(struct emu_machine *m);
};

struct emu_machine {
  struct os os; /* first: a table is its machine */
  const struct emu_machine_ops *ops;
  pthread_mutex_t files_lock;
  struct emu_file **files;
  size_t nfiles;
  void (*print)(void *ctx, const char *line); /* emu_log's, or NULL */
  void *print_ctx;
  pthread_mutex_t reason_lock;
  char reason[256]; /* emu_reason's */
  bool strict;      /* race.h; set before the machine is used */
  bool peers;       /* GPUs reach each other's memory: unless EMU_P2P=0 */
};

/* For the vendor: around the life of a machine. fini frees nothing that m itself is. */
void emu_machine_init(struct emu_machine *m, const struct emu_machine_ops *ops);
void emu_machine_fini(struct emu_machine *m);

/* Remembers why the machine refuses a call and returns code. */
int emu_refuse(struct emu_machine *m, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Zeroed memory that clients may map: its file, and the emulator's own view. */
int emu_shared_page(const char *name, size_t size, int *fd, void **page);

/* The open file behind a descriptor of this machine, with a reference taken, or NULL. */
struct emu_file *emu_file_get(struct emu_machine *m, int fd);
void emu_file_put(struct emu_machine *m, struct emu_file *file);

/* A machine with one GPU per comma-separated name, with ops set and the rest of emu_machine zeroed; -EINVAL and a
 * reason naming what is known. */
int amd_machine_new(const char *gpus, struct emu_machine **out, char *err, size_t errcap);
int nv_machine_new(const char *gpus, struct emu_machine **out, char *err, size_t errcap);
/* Makes an NVIDIA machine's modules those of another driver version, before it is used: "535.261.03". -EINVAL when that
 * branch is not known. */
int nv_machine_version(struct os *os, const char *version);
#endif
