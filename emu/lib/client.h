/* The machine that a program under `doorbell emu` sees: made when the program first touches one of its files, one a
 * process, as the kernel driver's state is.
 *
 * Its files exist in memory only. Open text is a memory file; open folders and device nodes are descriptors of
 * /dev/null with a file of the machine behind them, so that calls that are not intercepted meet a sane descriptor. */
#ifndef DOORBELL_EMU_LIB_CLIENT_H
#define DOORBELL_EMU_LIB_CLIENT_H
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "../emu.h"

/* The environment between `doorbell emu` and the programs it runs. */
#define CLIENT_GPUS    "DOORBELL_EMU_GPUS"    /* names, comma separated; unset: the library intercepts nothing */
#define CLIENT_STATS   "DOORBELL_EMU_STATS"   /* print counts when the process ends */
#define CLIENT_VERBOSE "DOORBELL_EMU_VERBOSE" /* print why calls are refused */

bool client_active(void);
/* NULL (with errno set, and the reason printed once) when the machine cannot be made. */
struct os *client_machine(void);

/* path (relative to the working folder, or to the folder behind dirfd) made absolute in buf, without "." and ".."
 * parts; false for a path that is not the emulated machine's. */
bool client_path(int dirfd, const char *path, char buf[PATH_MAX]);
/* The character device that an absolute emulated path names, whether or not the machine has it; 0: none. */
dev_t client_device(const char *path);

/* ---- nodes.c: files by absolute emulated path ---- */

enum client_node_kind { CLIENT_FOLDER, CLIENT_TEXT, CLIENT_DEVICE };
struct client_node {
  enum client_node_kind kind;
  dev_t device; /* of a device node, else 0 */
};
/* Links are followed. False with errno set: ENOENT, or ENODEV when there is no machine. */
bool client_look(const char *path, struct client_node *out);
/* Calls each for every entry of a folder until it returns non-zero; 0 or a negative errno. */
int client_list(const char *path, int (*each)(void *ctx, const char *name), void *ctx);
/* What path, a symbolic link, says; NULL when it is none. */
const char *client_link(const char *path);
/* Replaces a link at the start of path by what it points to. */
void client_follow(char path[PATH_MAX]);
uint64_t client_inode(const char *path);

/* ---- descriptors of device nodes and folders ---- */

enum { CLIENT_MAX_FDS = 1 << 16 }; /* emulated files have descriptors below */

/* A file has as many references as descriptors name it, and one for each call under way. */
struct client_file {
  int fd; /* of the machine's table; -1: a folder */
  struct client_node node;
  char *path; /* NULL: left over from before a fork */
  unsigned refs;
};
/* A descriptor for a device node or a folder, or -1 with errno set. */
int client_open(const char *path, const struct client_node *node, int flags);
/* The file behind a descriptor with a reference taken, or NULL. */
struct client_file *client_get(int fd);
void client_put(struct client_file *file);
/* The first descriptor, from fd on, that the emulator holds for itself in this process, or INT_MAX. */
int client_own_fd(int fd);
/* Descriptor fd is about to be closed; new is now another one of fd's file. */
void client_closing(int fd);
void client_duplicated(int fd, int new);

enum client_kind { CLIENT_NO_DEVICE, CLIENT_KFD, CLIENT_DRM, CLIENT_RM, CLIENT_UVM };
enum client_kind client_kind(const struct client_file *file);

/* ---- preload_nv.c ---- */

/* An ioctl on one of NVIDIA's nodes; returns as os.ioctl. */
int client_nv_ioctl(struct os *os, struct client_file *file, unsigned long request, void *arg);
#endif
