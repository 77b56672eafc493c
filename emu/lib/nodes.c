/* The emulated machine's files as a program sees them: folders, text, device nodes, and the link of KFD's class in
 * sysfs. None of them is on a disk. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "client.h"

/* The folder of KFD's class has one entry, a link to the device's folder. */
static const char class_path[] = "/sys/class/kfd", link_path[] = "/sys/class/kfd/kfd",
                  link_text[] = "../../devices/virtual/kfd/kfd", link_target[] = "/sys/devices/virtual/kfd/kfd";
enum { LINK = sizeof link_path - 1 };

const char *client_link(const char *path) { return strcmp(path, link_path) ? NULL : link_text; }

void client_follow(char path[PATH_MAX]) {
  size_t n = strlen(path), target = sizeof link_target - 1;
  if (strncmp(path, link_path, LINK) != 0 || (path[LINK] && path[LINK] != '/') || n - LINK + target >= PATH_MAX) return;
  memmove(path + target, path + LINK, n - LINK + 1);
  memcpy(path, link_target, target);
}

uint64_t client_inode(const char *path) {
  uint64_t h = 14695981039346656037u; /* FNV-1a */
  for (; *path; path++) h = (h ^ (uint8_t)*path) * 1099511628211u;
  return h;
}

/* Lists a folder whose path contains no link. */
static int list_folder(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  if (strcmp(path, class_path) != 0) return os->list_dir(os, path, each, ctx);
  each(ctx, link_path + sizeof class_path);
  return 0;
}

static int stop_at_first(void *ctx, const char *name) { return 1; }

struct search {
  const char *name;
  bool found;
};
static int compare(void *ctx, const char *name) {
  struct search *s = ctx;
  s->found |= !strcmp(s->name, name);
  return s->found;
}
/* Returns whether the folder of path has an entry with its name. */
static bool is_listed(struct os *os, const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  struct search s = {.name = slash + 1};
  memcpy(folder, path, (size_t)(slash - path));
  folder[slash - path] = 0;
  list_folder(os, *folder ? folder : "/", compare, &s);
  return s.found;
}

bool client_look(const char *path, struct client_node *out) {
  struct os *os = client_machine();
  char real[PATH_MAX], text[16384];
  if (!os) return false;
  strcpy(real, path);
  client_follow(real);
  *out = (struct client_node){.device = client_device(real)};
  out->kind = out->device ? CLIENT_DEVICE : !list_folder(os, real, stop_at_first, NULL) ? CLIENT_FOLDER : CLIENT_TEXT;
  if (out->device ? is_listed(os, real) : out->kind == CLIENT_FOLDER || os->read_file(os, real, text, sizeof text) >= 0)
    return true;
  errno = ENOENT;
  return false;
}

int client_list(const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  struct os *os = client_machine();
  char real[PATH_MAX];
  if (!os) return -errno;
  strcpy(real, path);
  client_follow(real);
  return list_folder(os, real, each, ctx);
}
