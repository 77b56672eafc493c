/* What the emulated machines of all vendors share: the table of system calls, file descriptors, and the operations that
 * a vendor implements. */
#ifndef DOORBELL_EMU_MACHINE_H
#define DOORBELL_EMU_MACHINE_H
#include <pthread.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdint.h>
#include "../hcq/os.h"
#include "emu.h"

struct emu_machine;
struct emu_file;

/* One kind of open file. Several threads may call the operations at the same time; close is the last call. */
struct emu_file_ops {
  int (*ioctl)(struct emu_file *file, unsigned long request, void *arg);
  void *(*mmap)(struct emu_file *file, void *addr, size_t len, int prot, int flags, off_t off);
  /* As os.poll. NULL means always ready, as in Linux for files that do not implement poll. */
  int (*poll)(struct emu_file *file, short events, int timeout_ms);
  void (*close)(struct emu_file *file);
};
struct emu_file {
  const struct emu_file_ops *ops;
  unsigned refs; /* guarded by the machine's files_lock */
};

struct emu_machine_ops {
  /* *out starts with no references. */
  int (*open)(struct emu_machine *m, const char *path, int flags, struct emu_file **out);
  ssize_t (*read_file)(struct emu_machine *m, const char *path, char *buf, size_t cap);
  int (*list_dir)(struct emu_machine *m, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
  int (*stats)(struct emu_machine *m, unsigned gpu, struct emu_stats *out);
  void (*detail)(struct emu_machine *m, bool on, bool annotate);
  int (*kernels)(struct emu_machine *m, unsigned gpu, struct emu_kernel_stats **out, size_t *n);
  int (*instructions)(struct emu_machine *m, unsigned gpu, const struct emu_kernel_stats *kernel, struct emu_site **out,
                      size_t *n);
  const char *(*arch)(struct emu_machine *m, unsigned gpu); /* NULL if there is no such GPU */
  void (*stop)(struct emu_machine *m);
  /* Stops all threads and frees the machine. Every file is closed before this call. */
  void (*free)(struct emu_machine *m);
};

struct emu_machine {
  struct os os; /* first member, so that a pointer to it is a pointer to the machine */
  const struct emu_machine_ops *ops;
  pthread_mutex_t files_lock;
  struct emu_file **files;
  size_t nfiles;
  void (*print)(void *ctx, const char *line); /* set by emu_log, or NULL */
  void *print_ctx;
  pthread_mutex_t reason_lock;
  char reason[256]; /* for emu_reason; guarded by reason_lock */
  bool strict;      /* race detection (race.h); set before the machine is used */
  bool peers;       /* GPUs can access each other's memory; false if EMU_P2P=0 */
};

/* For vendors: initializes and releases the common part of a machine. fini does not free m itself. */
void emu_machine_init(struct emu_machine *m, const struct emu_machine_ops *ops);
void emu_machine_fini(struct emu_machine *m);

/* Stores the message that says why the machine refuses a call, and returns code. */
int emu_refuse(struct emu_machine *m, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Creates a zeroed memory file that clients can map. *fd is the file, *page is the emulator's own mapping of it. */
int emu_shared_page(const char *name, size_t size, int *fd, void **page);

/* Returns the open file of a descriptor of this machine with a reference taken, or NULL. */
struct emu_file *emu_file_get(struct emu_machine *m, int fd);
void emu_file_put(struct emu_machine *m, struct emu_file *file);

/* Creates a machine with one GPU per comma-separated name; ops is set, the rest of emu_machine is zero. Returns -EINVAL
 * for an unknown name; err then lists the known ones. */
int amd_machine_new(const char *gpus, struct emu_machine **out, char *err, size_t errcap);
int nv_machine_new(const char *gpus, struct emu_machine **out, char *err, size_t errcap);
/* Makes an NVIDIA machine emulate another driver version, such as "535.261.03". Call it before the machine is used.
 * Returns -EINVAL if the branch of that version is not known. */
int nv_machine_version(struct os *os, const char *version);
/* Makes an NVIDIA machine refuse profiling, as the kernel module does for users that are not administrators unless its
 * parameter NVreg_RestrictProfilingToAdminUsers is 0. A no-op for other machines. */
void nv_machine_restrict(struct os *os);
/* exec/site_json.c: writes a text in quotes. */
void emu_json_text(FILE *f, const char *s);
#endif
