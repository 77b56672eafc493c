/* The machine that a program under `doorbell emu` uses. A process has one, like the state of a kernel driver; it is
 * created when the program first accesses one of its files.
 *
 * The machine's files exist only in memory. Open text is a memory file. Open folders and device nodes are descriptors
 * of /dev/null that the library associates with a file of the machine, so calls that are not intercepted get a valid
 * descriptor. */
#ifndef DOORBELL_EMU_LIB_CLIENT_H
#define DOORBELL_EMU_LIB_CLIENT_H
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "../emu.h"

/* The environment variables between `doorbell emu` and the programs that it runs. */
#define CLIENT_GPUS     "DOORBELL_EMU_GPUS"     /* names, comma separated; if unset, the library intercepts nothing */
#define CLIENT_STATS    "DOORBELL_EMU_STATS"    /* print counts when the process ends; "json": as JSON */
#define CLIENT_ANNOTATE "DOORBELL_EMU_ANNOTATE" /* print each instruction with its counts when the process ends */
#define CLIENT_RECORD   "PROF"                  /* a folder: write counts for `doorbell prof` when the process ends */
#define CLIENT_CODE     "PROF_CODE"             /* 2: write the counts of each instruction, too */
#define CLIENT_VERBOSE  "DOORBELL_EMU_VERBOSE"  /* print why calls are refused */

bool client_active(void);
/* Returns the machine, creating it if needed. If that fails, returns NULL with errno set; the reason is printed
 * once. */
struct os *client_machine(void);

/* Makes path (relative to the working folder, or to the folder of dirfd) absolute in buf, without "." and ".." parts.
 * Returns false if the path is not in the emulated machine. */
bool client_path(int dirfd, const char *path, char buf[PATH_MAX]);
/* Returns the device number of an absolute emulated path, whether or not the machine has this device; 0 if it is not a
 * device node. */
dev_t client_device(const char *path);

/* stats.c: what the machine executed, to standard error or to a file in a folder */
void client_print_stats(struct os *machine, bool json);
void client_save_stats(struct os *machine, const char *folder);
/* annotate.c: the instructions of each kernel with their counts, to standard error */
void client_annotate(struct os *machine);

/* ---- nodes.c: files by absolute emulated path ---- */

enum client_node_kind { CLIENT_FOLDER, CLIENT_TEXT, CLIENT_DEVICE };
struct client_node {
  enum client_node_kind kind;
  dev_t device; /* of a device node, else 0 */
};
/* Follows links. Returns false with errno set: ENOENT, or ENODEV if there is no machine. */
bool client_look(const char *path, struct client_node *out);
/* Calls each for every entry of a folder until it returns non-zero. Returns 0 or a negative errno. */
int client_list(const char *path, int (*each)(void *ctx, const char *name), void *ctx);
/* Returns the target of path if it is a symbolic link, else NULL. */
const char *client_link(const char *path);
/* Replaces a link at the start of path by its target. */
void client_follow(char path[PATH_MAX]);
uint64_t client_inode(const char *path);

/* ---- descriptors of device nodes and folders ---- */

enum { CLIENT_MAX_FDS = 1 << 16 }; /* descriptors of emulated files are below this */

/* A file has one reference per descriptor and one per call in progress. */
struct client_file {
  int fd; /* in the machine's table; -1 for a folder */
  struct client_node node;
  char *path; /* NULL if the file is from before a fork */
  unsigned refs;
};
/* Opens a device node or a folder. Returns a descriptor, or -1 with errno set. */
int client_open(const char *path, const struct client_node *node, int flags);
/* Returns the file of a descriptor with a reference taken, or NULL. */
struct client_file *client_get(int fd);
void client_put(struct client_file *file);
/* Returns the first descriptor, from fd on, that the emulator holds for itself in this process, or INT_MAX. */
int client_own_fd(int fd);
/* client_closing: descriptor fd is about to be closed. client_duplicated: new is now another descriptor of fd's
 * file. */
void client_closing(int fd);
void client_duplicated(int fd, int new);

enum client_kind { CLIENT_NO_DEVICE, CLIENT_KFD, CLIENT_DRM, CLIENT_RM, CLIENT_UVM };
enum client_kind client_kind(const struct client_file *file);

/* ---- preload_nv.c ---- */

/* Executes an ioctl on an NVIDIA node; returns as os.ioctl does. */
int client_nv_ioctl(struct os *os, struct client_file *file, unsigned long request, void *arg);
#endif
