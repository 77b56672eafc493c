/* The machine that a program under `doorbell emu` sees: made when the program first touches one of its files, one a
 * process, as the kernel driver's state is.
 *
 * Files of the machine that hold text, and folders, live in a tree of real files; device nodes are real descriptors of
 * /dev/null with an open file of the machine behind them. So whatever is not intercepted still meets sane files. */
#ifndef DOORBELL_EMU_LIB_CLIENT_H
#define DOORBELL_EMU_LIB_CLIENT_H
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "../emu.h"

/* The environment between `doorbell emu` and the programs it runs. */
#define CLIENT_GPUS    "DOORBELL_EMU_GPUS"    /* names, comma separated; unset: the library intercepts nothing */
#define CLIENT_ROOT    "DOORBELL_EMU_ROOT"    /* folder for the tree; made by whoever set it */
#define CLIENT_STATS   "DOORBELL_EMU_STATS"   /* print counts when the process ends */
#define CLIENT_VERBOSE "DOORBELL_EMU_VERBOSE" /* print why calls are refused */

bool client_active(void);
/* NULL (with errno set, and the reason printed once) when the machine cannot be made. */
struct os *client_machine(void);

/* An emulated path, made absolute, in buf; false for one that the system keeps. */
bool client_path(int dirfd, const char *path, char buf[PATH_MAX]);
/* The character device that an absolute emulated path names; 0: none. */
dev_t client_device(const char *path);
/* Where the tree keeps an emulated path; false with errno set. */
bool client_real_path(const char *path, char buf[PATH_MAX]);

/* Descriptors of device nodes. A file has as many references as descriptors name it, and one for each call under way. */
struct client_file {
  int fd; /* of the machine's table */
  dev_t device;
  unsigned refs;
};
/* A descriptor for an emulated device, or -1 with errno set. */
int client_open(const char *path, dev_t device, int flags);
/* The file behind a descriptor with a reference taken, or NULL. One left over from before a fork has no fd (-1). */
struct client_file *client_get(int fd);
void client_put(struct client_file *file);
/* Descriptor fd is about to be closed; new is now another one of fd's file. */
void client_closing(int fd);
void client_duplicated(int fd, int new);

enum client_kind { CLIENT_KFD, CLIENT_DRM, CLIENT_RM, CLIENT_UVM };
enum client_kind client_kind(const struct client_file *file);

/* ---- preload_nv.c ---- */

/* An ioctl on one of NVIDIA's nodes; returns as os.ioctl. */
int client_nv_ioctl(struct os *os, struct client_file *file, unsigned long request, void *arg);

/* ---- tree.c ---- */

/* Writes the files and folders that os has under root; a negative errno. */
int tree_write(struct os *os, const char *root);
void tree_remove(const char *root);
#endif
