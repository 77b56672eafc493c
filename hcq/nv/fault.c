/* Errors of channels: the error notifier, details that the driver reports on request, and waiting, which checks for
 * both. */
#include "rm.h"
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Error numbers in notifiers, which the kernel's log prints after "Xid" (open-gpu-kernel-modules, nverror.h). */
static const struct {
  unsigned first, last;
  const char *text;
} xids[] = {
    {13, 13, "kernel exception"},
    {31, 31, "memory access fault"},
    {32, 32, "bad pushbuffer data"},
    {39, 41, "copy engine error"},
    {43, 43, "channel stopped because of another channel's error"},
    {44, 44, "fault during a context switch"},
    {45, 45, "channel removed"},
    {48, 48, "uncorrectable memory error (ECC)"},
    {69, 69, "bad method of the compute class"},
    {70, 72, "copy engine error"},
    {75, 77, "copy engine error"},
    {79, 79, "the GPU has fallen off the bus"},
    {85, 85, "copy engine error"},
    {94, 94, "contained memory error"},
    {95, 95, "uncontained memory error"},
    {109, 109, "context switch timed out"},
    {119, 119, "the GPU's system processor does not answer"},
    {120, 120, "error of the GPU's system processor"},
    {126, 135, "copy engine error"},
    {154, 154, "the GPU needs recovery"},
};

/* Fault types of the MMU (open-gpu-kernel-modules, dev_fault.h). */
static const char *const fault_types[] = {
    "page not mapped",
    "page table size error",
    "page not mapped",
    "address beyond the address space",
    "no address space",
    "privileged page",
    "write to a read-only page",
    "read of a write-only page",
    "bad pitch",
    "work creation",
    "unsupported aperture",
    "compression failure",
    "unsupported kind",
    "region violation",
    "poisoned memory was read",
    "atomic access that the page does not allow",
};

/* Errors of a warp (Linux nouveau, gr/gf100.c and gr/gv100.c). */
static const char *const warp_errors[] = {
    "none",
    "stack error",
    "API stack error",
    "return with an empty stack",
    "program counter wrapped",
    "misaligned program counter",
    "program counter overflow",
    "misaligned constant address",
    "misaligned register",
    "illegal instruction",
    "illegal instruction combination",
    "illegal instruction parameter",
    "invalid constant address",
    "register out of range",
    "address out of range",
    "misaligned address",
    "invalid address space",
    "illegal instruction parameter",
    "invalid constant address",
    "geometry SM error",
    "divergent warp",
    "warp exit",
};

static const char *xid_text(unsigned xid) {
  for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
    if (xid >= xids[i].first && xid <= xids[i].last) return xids[i].text;
  return "channel error";
}

static const char *name_at(const char *const *names, size_t n, uint32_t i) {
  return i < n ? names[i] : "unknown error";
}
#define NAME_AT(names, i) name_at(names, sizeof(names) / sizeof *(names), i)

/* Stores " at 0x...: page not mapped", or "" if unknown. */
static void describe_mmu_fault(struct nv_device *dev, const struct nv_ring *r, char *buf, size_t cap) {
  struct rm_mmu_fault_info f = {0};
  buf[0] = 0;
  if (rm_ctrl(dev->machine, r->channel, RM_CTRL_MMU_FAULT_INFO, &f, sizeof f)) return;
  uint64_t address = (uint64_t)f.addr_hi << 32 | f.addr_lo;
  snprintf(buf, cap, " at 0x%llx: %s", (unsigned long long)address, NAME_AT(fault_types, f.fault_type));
}

/* Stores ": illegal instruction at 0x... on SM 3", or "" if unknown. A debugger object reports it. It is created only
 * after an error, because it changes how the driver handles errors. */
static void describe_sm_exception(struct nv_device *dev, const struct nv_ring *r, char *buf, size_t cap) {
  struct nv_machine *m = dev->machine;
  struct rm_debugger_alloc d = {.app_client = m->client, .object = r->object};
  uint32_t debugger;
  buf[0] = 0;
  if (rm_object_new(m, dev->device, RM_CLASS_DEBUGGER, &d, sizeof d, &debugger)) return;
  struct rm_sm_error_states *s = calloc(1, sizeof *s);
  enum { AT_ONCE = sizeof s->states / sizeof *s->states };
  for (uint32_t sm = 0; s && sm < dev->sms; sm += AT_ONCE) {
    *s = (struct rm_sm_error_states){.target_channel = r->channel, .num_sms = AT_ONCE, .starting_sm = sm};
    if (dev->sms - sm < AT_ONCE) s->num_sms = dev->sms - sm;
    if (rm_ctrl(m, debugger, RM_CTRL_SM_ERROR_STATES, s, sizeof *s)) break;
    uint32_t i = 0;
    while (i < s->num_sms && i < AT_ONCE && !(s->states[i].warp_esr & 0xff)) i++;
    if (i == s->num_sms || i == AT_ONCE) continue;
    snprintf(buf, cap, ": %s at 0x%llx on SM %u", NAME_AT(warp_errors, s->states[i].warp_esr & 0xff),
             (unsigned long long)s->states[i].warp_esr_pc64, sm + i);
    break;
  }
  free(s);
  rm_object_free(m, dev->device, &debugger);
}

/* Stores the line of the emulated driver's log as "; ...", or "". The real driver writes to the kernel's log, which
 * needs privileges to read. */
static void read_log(struct nv_device *dev, char *buf, size_t cap) {
  char path[96], text[700];
  const struct nv_card *c = dev->card;
  buf[0] = 0;
  if (!dev->machine->emulated) return;
  snprintf(path, sizeof path, RM_PROC_XID, c->domain, c->location >> 8 & 0xff, c->location >> 3 & 0x1f);
  if (dev->machine->os->read_file(dev->machine->os, path, text, sizeof text) <= 0) return;
  text[strcspn(text, "\n")] = 0;
  if (text[0]) snprintf(buf, cap, "; %s", text);
}

/* Stores "; the driver requests ...", or "". */
static void describe_recovery(struct nv_device *dev, char *buf, size_t cap) {
  static const char *const actions[] = {
      "",
      "a reset of the GPU",
      "a reboot of the machine",
      "an end of peer accesses",
      "a drain and reset of the GPU",
      "a recovery of the memory domain",
  };
  struct rm_recovery_action a = {0};
  buf[0] = 0;
  if (rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_RECOVERY_ACTION, &a, sizeof a) || !a.action) return;
  snprintf(buf, cap, "; the driver requests %s", NAME_AT(actions, a.action));
}

static int report_error(struct nv_device *dev, const struct nv_ring *r, const struct rm_notification *n) {
  unsigned xid = n->info32;
  char where[160] = "", recovery[96], log[720];
  if (xid == RM_XID_MMU_FAULT) describe_mmu_fault(dev, r, where, sizeof where);
  if (xid == RM_XID_GR_EXCEPTION) describe_sm_exception(dev, r, where, sizeof where);
  describe_recovery(dev, recovery, sizeof recovery);
  read_log(dev, log, sizeof log);
  return hcq_device_lost(&dev->base, "%s: %s%s (Xid %u on the %s channel)%s; kernel running or last run: %s%s",
                         dev->base.name, xid_text(xid), where, xid, hcq_ring_name(&r->base), recovery,
                         hcq_device_running(&dev->base).s, log);
}

int nv_fault_check(struct nv_device *dev) {
  if (dev->base.lost) return hcq_device_check(&dev->base);
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct nv_ring *r = &dev->rings[i];
    if (!r->notifications || !__atomic_load_n(&r->channel, __ATOMIC_RELAXED)) continue;
    const struct rm_notification *n = &r->notifications[RM_NOTIFIER_ERROR];
    if (__atomic_load_n(&n->status, __ATOMIC_ACQUIRE) == RM_NOTIFICATION_ERROR) return report_error(dev, r, n);
  }
  return 0;
}

/* ---- waiting ---- */

void nv_event_open(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  struct rm_os_event fd = {.client = m->client, .device = dev->device, .fd = (uint32_t)dev->fd};
  struct rm_event_alloc event = {.parent_client = m->client,
                                 .src_resource = dev->subdevice,
                                 .class = RM_CLASS_EVENT_OS,
                                 .notify_index = RM_EVENT_RC_ERROR,
                                 .data = (uint64_t)dev->fd};
  struct rm_event_set_notification set = {.event = RM_EVENT_RC_ERROR, .action = RM_EVENT_REPEAT};
  if (rm_ioctl(m, dev->fd, RM_IO(RM_NR_ALLOC_OS_EVENT, sizeof fd), &fd) || fd.status) return;
  dev->event_of_fd = true;
  if (rm_object_new(m, dev->subdevice, RM_CLASS_EVENT_OS, &event, sizeof event, &dev->event)) return;
  if (rm_ctrl(m, dev->subdevice, RM_CTRL_EVENT_SET_NOTIFICATION, &set, sizeof set))
    rm_object_free(m, dev->subdevice, &dev->event);
}

void nv_event_close(struct nv_device *dev) {
  struct nv_machine *m = dev->machine;
  struct rm_os_event fd = {.client = m->client, .device = dev->device, .fd = (uint32_t)dev->fd};
  if (dev->event_of_fd) rm_ioctl(m, dev->fd, RM_IO(RM_NR_FREE_OS_EVENT, sizeof fd), &fd);
  dev->event_of_fd = false;
  dev->event = 0;
}

/* Consumes the pending events, so the next poll waits for new ones. Returns false if there was none. */
static bool consume_events(struct nv_device *dev) {
  struct rm_event event;
  struct rm_get_event_data data = {.event = (uint64_t)(uintptr_t)&event};
  bool any = false;
  do {
    data.more_events = data.status = 0;
    if (rm_ioctl(dev->machine, dev->fd, RM_IO(RM_NR_GET_EVENT_DATA, sizeof data), &data) || data.status) break;
    any = true;
  } while (data.more_events);
  return any;
}

/* Sleeps for ns nanoseconds, or until the GPU has an error, if poll can wait for that; poll counts in milliseconds. */
static void sleep_or_error(struct nv_device *dev, uint64_t ns) {
  enum { MILLISECOND = 1000000 };
  struct os *os = dev->machine->os;
  if (dev->event && ns >= MILLISECOND) {
    int got = os->poll(os, dev->fd, POLLIN | POLLPRI, (int)(ns / MILLISECOND));
    if (!got || (got > 0 && consume_events(dev))) return;
  }
  nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Returns when the current wait began. Calls of one thread for the same signal and value, each right after the last one
 * ended, are slices of one wait. */
static uint64_t wait_start(const db_signal *sig, uint64_t value, uint64_t now, uint64_t end) {
  enum { BETWEEN_SLICES_NS = 1000000 };
  static __thread struct {
    const db_signal *sig;
    uint64_t value, began, end;
  } last;
  if (last.sig != sig || last.value != value || now > last.end + BETWEEN_SLICES_NS) last.began = now;
  last.sig = sig, last.value = value, last.end = end;
  return last.began;
}

/* No interrupt announces a value, so the host polls it, in steps that grow with the time waited: a wait ends late by at
 * most a small fraction of its length. Errors end a long step at once. */
void nv_sleep(db_device *base, const db_signal *sig, uint64_t value, uint64_t ns) {
  enum { PART = 64, SHORTEST_NS = 20000, LONGEST_NS = 8000000, LONGEST_WITHOUT_EVENT_NS = 200000 };
  struct nv_device *dev = nv_device(base);
  uint64_t now = hcq_now_ns(), end = now + ns, began = wait_start(sig, value, now, end);
  uint64_t longest = dev->event ? LONGEST_NS : LONGEST_WITHOUT_EVENT_NS;
  for (; !nv_fault_check(dev) && hcq_signal_load(sig) < value && now < end; now = hcq_now_ns()) {
    uint64_t step = (now - began) / PART;
    step = step < SHORTEST_NS ? SHORTEST_NS : step > longest ? longest : step;
    sleep_or_error(dev, step < end - now ? step : end - now);
  }
}
