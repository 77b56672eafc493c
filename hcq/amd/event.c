/* KFD events: the interrupt at the end of a submission, and the exceptions that make a device lost. */
#include "amd.h"
#include <amdgpu_drm.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- life ---- */

static int create_event(struct amd_device *dev, enum kfd_event_type type, uint64_t page, uint32_t *id, uint32_t *slot) {
  struct kfd_create_event e = {.event_page_offset = page, .event_type = type, .auto_reset = 1};
  int err = kfd_ioctl(dev->kfd, KFD_CREATE_EVENT, &e);
  if (err) return db_fail(err, "%s: creating an event: %s", dev->base.name, strerror(-err));
  *id = e.event_id;
  if (slot) *slot = e.event_slot_index;
  return 0;
}

/* The page of event slots is memory of the first GPU. Every GPU that signals events maps it. */
static int reach_page(struct amd_device *dev) {
  struct kfd_process *p = dev->kfd;
  int err = 0;
  if (!p->event_page.handle)
    err = amd_memory_alloc(dev, KFD_EVENT_PAGE_SIZE, AMD_MEMORY_HOST, NULL, &p->event_page);
  else if (!(p->event_page_reached >> dev->base.index & 1))
    err = amd_memory_map(dev, &p->event_page);
  if (!err) p->event_page_reached |= 1ull << dev->base.index;
  return err;
}

/* The process's first event passes the page to the kernel. The kernel may accept the page and then fail to create the
 * event; it rejects a page if it already has one. So a retry after an offer also tries without a page. */
static int create_queue_event(struct amd_device *dev) {
  struct kfd_process *p = dev->kfd;
  int state_before = p->event_page_state, err = -EINVAL;
  if (state_before != AMD_PAGE_GIVEN) {
    p->event_page_state = AMD_PAGE_OFFERED;
    err = create_event(dev, KFD_EVENT_SIGNAL, p->event_page.handle, &dev->queue_event, &dev->queue_event_slot);
  }
  if (err == -EINVAL && state_before != AMD_PAGE_NEW)
    err = create_event(dev, KFD_EVENT_SIGNAL, 0, &dev->queue_event, &dev->queue_event_slot);
  if (!err) p->event_page_state = AMD_PAGE_GIVEN;
  return err;
}

int amd_events_create(struct amd_device *dev) {
  int err = reach_page(dev);
  if (!err) err = create_queue_event(dev);
  if (err) return err;
  if (dev->queue_event_slot >= KFD_EVENT_LIMIT)
    return db_fail(-EPROTO, "%s: the event has slot %u of %u", dev->base.name, dev->queue_event_slot, KFD_EVENT_LIMIT);
  err = create_event(dev, KFD_EVENT_MEMORY, 0, &dev->memory_event, NULL);
  return err ? err : create_event(dev, KFD_EVENT_HW_EXCEPTION, 0, &dev->hw_event, NULL);
}

void amd_events_destroy(struct amd_device *dev) {
  uint32_t *ids[] = {&dev->queue_event, &dev->memory_event, &dev->hw_event};
  for (int i = 0; i < 3; i++) {
    if (*ids[i]) kfd_ioctl(dev->kfd, KFD_DESTROY_EVENT, &(struct kfd_event_ref){.event_id = *ids[i]});
    *ids[i] = 0;
  }
}

/* ---- exceptions ----
 *
 * An exception on a GPU sets all events of its kind in the process, and an event stores only the last exception. A
 * thread that waits late may therefore find another GPU's exception instead of its own GPU's. So the thread that finds
 * an exception passes it to that GPU's device, and all other devices query the driver. */

enum { DUMP_BYTES = 16384 }; /* beginning of the dump; the page fault follows about 5 KB of version information */

/* Returns the rest of the first line of text that begins with key, and its length; NULL if there is none. */
static const char *line_of(const char *text, const char *key, int *length) {
  while (text && strncmp(text, key, strlen(key)) != 0) text = (text = strchr(text, '\n')) ? text + 1 : NULL;
  if (!text) return NULL;
  text += strlen(key);
  *length = (int)strcspn(text, "\n");
  return text;
}

/* Reads the driver's core dump of the device, which the driver makes when it resets the GPU and only root may read.
 * Returns false if there is none or if it is for another process. Format: Linux amdgpu, amdgpu_dev_coredump.c. */
static bool read_dump(const struct amd_device *dev, char text[DUMP_BYTES], char time[sizeof dev->dump_time]) {
  char path[96];
  int n;
  snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/devcoredump/data", dev->node->render_minor);
  if (dev->kfd->os->read_file(dev->kfd->os, path, text, DUMP_BYTES) <= 0) return false;
  const char *value = line_of(text, "time: ", &n), *process = line_of(text, "process_name: ", &n), *pid = NULL;
  snprintf(time, sizeof dev->dump_time, "%.*s", value ? (int)strcspn(value, "\n") : 0, value ? value : "");
  for (const char *at = process; at && at < process + n && (at = strstr(at, "PID: ")); at++) pid = at + 5;
  return !pid || pid > process + n || strtol(pid, NULL, 10) == getpid();
}

/* Describes a new dump of this process as "; ...", or stores "" if there is none. */
static void describe_dump(const struct amd_device *dev, char *buf, size_t cap) {
  char text[DUMP_BYTES], time[sizeof dev->dump_time];
  int n, digits;
  buf[0] = 0;
  if (!read_dump(dev, text, time) || !strcmp(time, dev->dump_time)) return;
  /* An emulated machine describes its state as a separate IP block. */
  const char *emulated = line_of(text, "IP: emulator\nfault: ", &n);
  const char *page = line_of(text, "Faulty page starting at address: ", &digits),
             *status = line_of(text, "Protection fault status register: ", &n);
  if (emulated)
    snprintf(buf, cap, "; %.*s", (int)strcspn(emulated, "\n"), emulated);
  else if (page && status && strtoul(status, NULL, 16))
    snprintf(buf, cap, "; the driver's core dump: faulty page at %.*s, protection fault status %.*s", digits, page, n,
             status);
}

static int ask_driver(const struct amd_device *dev, unsigned query, void *answer, uint32_t size) {
  struct os *os = dev->kfd->os;
  struct drm_amdgpu_info ask = {.return_pointer = (uint64_t)(uintptr_t)answer, .return_size = size, .query = query};
  return os->ioctl(os, dev->node->drm_fd, DRM_IOCTL_AMDGPU_INFO, &ask);
}

/* Number of resets in which the GPU lost its memory; 0 if the driver does not report it. */
static uint32_t memory_losses(const struct amd_device *dev) {
  uint32_t n = 0;
  return ask_driver(dev, AMDGPU_INFO_VRAM_LOST_COUNTER, &n, sizeof n) ? 0 : n;
}

/* The last page fault in the address space of the process's render node. Since amdgpu 3.55. */
#ifndef AMDGPU_INFO_GPUVM_FAULT
#define AMDGPU_INFO_GPUVM_FAULT 0x23
#endif
struct page_fault { /* drm_amdgpu_info_gpuvm_fault */
  uint64_t address;
  uint32_t status, hub;
};
static bool last_page_fault(const struct amd_device *dev, struct page_fault *out) {
  *out = (struct page_fault){0};
  return !ask_driver(dev, AMDGPU_INFO_GPUVM_FAULT, out, sizeof *out) && out->status;
}

static void memory_exception(struct amd_device *dev, const struct kfd_memory_exception *x) {
  char dump[700];
  describe_dump(dev, dump, sizeof dump);
  const char *why = x->error_type == KFD_MEMORY_ERROR_SRAM_ECC ? "uncorrectable memory error (ECC)"
                    : x->error_type == KFD_MEMORY_ERROR_POISON ? "poisoned memory was read"
                    : x->error_type == KFD_MEMORY_ERROR_HANG   ? "GPU hang"
                    : x->read_only                             ? "write to a read-only page"
                    : x->no_execute  ? "instruction fetch from a page without the execute right"
                    : x->not_present ? "page not mapped"
                                     : "page fault";
  dev->node->lost = true;
  hcq_device_lost(&dev->base, "%s: memory access fault at 0x%llx%s: %s; kernel running or last run: %s%s",
                  dev->base.name, (unsigned long long)x->va, x->imprecise ? " (imprecise)" : "", why,
                  hcq_device_running(&dev->base).s, dump);
}

static void hw_exception(struct amd_device *dev, const struct kfd_hw_exception *x) {
  char dump[700];
  describe_dump(dev, dump, sizeof dump);
  dev->node->lost = true;
  hcq_device_lost(&dev->base, "%s: hardware exception: %s%s; kernel running or last run: %s%s", dev->base.name,
                  x->reset_cause == 1 ? "uncorrectable memory error (ECC)" : "the GPU stopped",
                  x->memory_lost ? ", its memory is lost" : "", hcq_device_running(&dev->base).s, dump);
}

/* Another GPU's exception may have overwritten this one's. The driver can report page faults in this process's address
 * space and resets. Its core dump is not used to decide, because it may be another process's. */
static void overwritten_exception(struct amd_device *dev) {
  struct page_fault fault;
  if (last_page_fault(dev, &fault))
    memory_exception(dev, &(struct kfd_memory_exception){.va = fault.address});
  else if (memory_losses(dev) != dev->memory_losses)
    hw_exception(dev, &(struct kfd_hw_exception){.memory_lost = 1});
}

enum { QUEUE, MEMORY, HW, EVENTS };

static void dispatch_exceptions(db_device *base, void *ctx) {
  struct amd_device *dev = amd_device(base);
  const struct kfd_event_state *states = ctx;
  if (base->lost) return;
  if (states[MEMORY].memory.gpu_id == dev->node->gpu_id)
    memory_exception(dev, &states[MEMORY].memory);
  else if (states[HW].hw.gpu_id == dev->node->gpu_id)
    hw_exception(dev, &states[HW].hw);
  else
    overwritten_exception(dev);
}

/* ---- waiting ---- */

/* Waits for the events with index `first` and above, for at most ms milliseconds. */
static void wait_events(struct amd_device *dev, unsigned first, uint32_t ms) {
  struct kfd_event_state states[EVENTS] = {
      [QUEUE] = {.event_id = dev->queue_event},
      [MEMORY] = {.event_id = dev->memory_event},
      [HW] = {.event_id = dev->hw_event},
  };
  struct kfd_wait_events wait = {
      .events_ptr = (uint64_t)(uintptr_t)&states[first],
      .num_events = EVENTS - first,
      .timeout = ms,
  };
  int err = kfd_ioctl(dev->kfd, KFD_WAIT_EVENTS, &wait);
  if (err || wait.wait_result == KFD_WAIT_FAIL) {
    hcq_device_lost(&dev->base, "%s: waiting for events: %s", dev->base.name,
                    err ? strerror(-err) : "the kernel aborted the wait");
    return;
  }
  /* The kernel fills in only exceptions; a non-zero gpu_id marks one as valid. */
  if (!states[MEMORY].memory.gpu_id && !states[HW].hw.gpu_id) return;
  dispatch_exceptions(&dev->base, states); /* this device may not be in the registry */
  hcq_machine_each(dev->base.machine, dispatch_exceptions, states);
}

void amd_sleep(db_device *base, const db_signal *sig, uint64_t value, uint64_t ns) {
  uint32_t ms = (uint32_t)(ns / 1000000);
  wait_events(amd_device(base), QUEUE, ns && !ms ? 1 : ms);
}

/* The queue's event is left to threads that sleep, because a wait that finds it set resets it. */
void amd_poll(db_device *base) { wait_events(amd_device(base), MEMORY, 0); }

static void poll_device(db_device *base, void *ctx) { amd_poll(base); }

void amd_events_clear(struct amd_device *dev) {
  char text[DUMP_BYTES];
  hcq_machine_each(dev->base.machine, poll_device, NULL);
  read_dump(dev, text, dev->dump_time);
  dev->memory_losses = memory_losses(dev);
}
