/* The process's state in RM and UVM: the open nodes, the driver's version, the client object and the GPUs. */
#include "rm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WINDOW (4ull << 30) /* size and alignment of an aperture of generic addresses */

/* ---- version ---- */

static unsigned major_of(const char *version) { return (unsigned)strtoul(version, NULL, 10); }

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  ..." */
static void version_of_proc(const char *text, char *out, size_t cap) {
  out[0] = 0;
  for (const char *at = text; *at && *at != '\n'; at += strcspn(at, " \t\n")) {
    at += strspn(at, " \t");
    size_t n = strcspn(at, " \t\n");
    if (n > 4 && n < cap && strspn(at, "0123456789.") == n && at[3] == '.') {
      snprintf(out, cap, "%.*s", (int)n, at);
      return;
    }
  }
}

static void version_of_control(struct nv_machine *m, char *out, size_t cap) {
  static const uint16_t sizes[] = {sizeof(struct rm_build_version), sizeof(struct rm_build_version_555)};
  out[0] = 0;
  for (int i = 0; i < 2; i++) {
    struct rm_build_version v = {0}; /* both structures begin with the part that is read here */
    if (rm_ctrl(m, m->client, RM_CTRL_BUILD_VERSION, &v, sizes[i])) continue;
    snprintf(out, cap, "%.*s", (int)cap - 1, v.driver_version);
    return;
  }
}

static int read_version(struct nv_machine *m) {
  struct rm_version v = {.cmd = RM_VERSION_QUERY};
  if (!rm_ioctl(m, m->ctl, RM_IO(RM_NR_VERSION, sizeof v), &v))
    snprintf(m->version, sizeof m->version, "%.*s", (int)sizeof v.string - 1, v.string);
  if (!major_of(m->version)) {
    char text[512];
    if (m->os->read_file(m->os, RM_PROC_VERSION, text, sizeof text) > 0)
      version_of_proc(text, m->version, sizeof m->version);
  }
  if (!major_of(m->version)) version_of_control(m, m->version, sizeof m->version);
  if (!major_of(m->version)) return db_fail(-EPROTO, "%s: the driver does not report its version", m->name);
  m->branch = rm_branch_find(major_of(m->version));
  if (m->branch.major) return 0;
  return db_fail(-ENOTSUP, "%s: not supported: driver version %s; supported are the branches " RM_BRANCH_NAMES, m->name,
                 m->version);
}

/* ---- GPUs ---- */

static int read_cards(struct nv_machine *m) {
  struct rm_card_info cards[RM_CARDS_MAX];
  memset(cards, 0, sizeof cards);
  int err = rm_ioctl(m, m->ctl, RM_IO(RM_NR_CARD_INFO, sizeof cards), cards);
  if (err) return rm_error(m->name, err, "listing the GPUs");
  m->cards = calloc(RM_CARDS_MAX, sizeof *m->cards);
  if (!m->cards) return db_fail(-ENOMEM, "%s: out of host memory", m->name);
  for (unsigned i = 0; i < RM_CARDS_MAX; i++) {
    const struct rm_card_info *c = &cards[i];
    if (!c->valid) continue;
    m->cards[m->ncards++] = (struct nv_card){
        .gpu_id = c->gpu_id,
        .minor = c->minor,
        .device_id = c->pci_info.device_id,
        .domain = c->pci_info.domain,
        .location = (uint32_t)c->pci_info.bus << 8 | (uint32_t)c->pci_info.slot << 3 | c->pci_info.function,
    };
  }
  return 0;
}

static int reserve_windows(struct nv_machine *m) {
  struct nv_memory windows;
  int err = nv_memory_reserve(m, 2 * WINDOW, WINDOW, false, &windows);
  if (err) return err;
  m->windows = windows.reservation;
  m->windows_size = windows.reserved;
  m->shared_window = windows.va;
  m->local_window = windows.va + WINDOW;
  return 0;
}

int nv_machine_open(struct hcq_machine *machine, struct nv_machine **out) {
  struct nv_machine *m = calloc(1, sizeof *m);
  if (!m) return db_fail(-ENOMEM, "%s: out of host memory", machine->name);
  m->os = machine->os;
  m->name = machine->name;
  m->emulated = machine->emulated;
  m->uvm = m->uvm_mm = -1;
  int err = m->ctl = m->os->open(m->os, RM_CTL_DEVICE, O_RDWR | O_CLOEXEC);
  if (err < 0) {
    free(m);
    return db_fail(err, "%s: cannot open " RM_CTL_DEVICE ": %s%s", machine->name, strerror(-err),
                   machine->emulated ? "" : "; an emulated device is DEV=EMU+NV:sm_90");
  }
  int rc = rm_object_new(m, 0, RM_CLASS_CLIENT, NULL, 0, &m->client);
  err = rc ? rm_error(m->name, rc, "creating a client of the driver") : 0;
  if (!err) err = read_version(m);
  if (!err) err = read_cards(m);
  if (err)
    nv_machine_close(m);
  else
    *out = m;
  return err;
}

int nv_machine_ready(struct nv_machine *m) {
  if (m->uvm_mm >= 0 && m->windows) return 0;
  int err = m->uvm_mm >= 0 ? 0 : uvm_open(m);
  if (!err && !m->windows) err = reserve_windows(m);
  if (err) uvm_close(m);
  return err;
}

void nv_machine_close(struct nv_machine *m) {
  if (!m) return;
  uvm_close(m);
  rm_object_free(m, 0, &m->client);
  m->os->close(m->os, m->ctl); /* frees the process's remaining state in the kernel */
  if (m->windows) m->os->munmap(m->os, m->windows, m->windows_size);
  free(m->cards);
  free(m);
}
