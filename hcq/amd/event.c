/* KFD events: the interrupt that ends a submission, and the exceptions that end a device. */
#include "amd.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- life ---- */

static int create(struct amd_device *dev, enum kfd_event_type type, uint64_t page, uint32_t *id, uint32_t *slot) {
  struct kfd_create_event e = {.event_page_offset = page, .event_type = type, .auto_reset = 1};
  int err = kfd_ioctl(dev->kfd, KFD_CREATE_EVENT, &e);
  if (err) return db_fail(err, "%s: creating an event: %s", dev->base.name, strerror(-err));
  *id = e.event_id;
  if (slot) *slot = e.event_slot_index;
  return 0;
}

/* The page of slots is memory of the first GPU, and every GPU that signals events maps it. */
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

/* The process's first event gives the kernel its page. The kernel may take the page and then fail to make the event; it
 * refuses a page when it has one. */
static int create_queue_event(struct amd_device *dev) {
  struct kfd_process *p = dev->kfd;
  int was = p->event_page_state, err = -EINVAL;
  if (was != AMD_PAGE_GIVEN) {
    p->event_page_state = AMD_PAGE_OFFERED;
    err = create(dev, KFD_EVENT_SIGNAL, p->event_page.handle, &dev->queue_event, &dev->queue_event_slot);
  }
  if (err == -EINVAL && was != AMD_PAGE_NEW)
    err = create(dev, KFD_EVENT_SIGNAL, 0, &dev->queue_event, &dev->queue_event_slot);
  if (!err) p->event_page_state = AMD_PAGE_GIVEN;
  return err;
}

int amd_events_create(struct amd_device *dev) {
  int err = reach_page(dev);
  if (!err) err = create_queue_event(dev);
  if (err) return err;
  if (dev->queue_event_slot >= KFD_EVENT_LIMIT)
    return db_fail(-EPROTO, "%s: the event has slot %u of %u", dev->base.name, dev->queue_event_slot, KFD_EVENT_LIMIT);
  err = create(dev, KFD_EVENT_MEMORY, 0, &dev->memory_event, NULL);
  return err ? err : create(dev, KFD_EVENT_HW_EXCEPTION, 0, &dev->hw_event, NULL);
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
 * The kernel tells all of a process's events of a kind of every GPU's exceptions, and keeps the last one only: who looks
 * late may find another GPU's where its own was. So whoever finds one hands it to the device it tells of, and the others
 * look whether their driver has something to report. */

/* The driver's report on a fault, "" when there is none. Core dumps of devices are text at this place (Linux amdgpu,
 * amdgpu_dev_coredump.c). */
static void read_report(const struct amd_device *dev, char text[AMD_REPORT_BYTES]) {
  char path[96];
  snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/devcoredump/data", dev->node->render_minor);
  if (dev->kfd->os->read_file(dev->kfd->os, path, text, AMD_REPORT_BYTES) <= 0) text[0] = 0;
}

/* Its line that tells what the machine saw, "; ..." or "". */
static void read_fault(struct amd_device *dev, char *buf, size_t cap) {
  static const char key[] = "fault: ";
  char text[AMD_REPORT_BYTES], *line = text;
  buf[0] = 0;
  read_report(dev, text);
  while (line && strncmp(line, key, sizeof key - 1) != 0) line = (line = strchr(line, '\n')) ? line + 1 : NULL;
  if (line) snprintf(buf, cap, "; %.*s", (int)strcspn(line + sizeof key - 1, "\n"), line + sizeof key - 1);
}

static void memory_exception(struct amd_device *dev, const struct kfd_memory_exception *x) {
  char report[700];
  read_fault(dev, report, sizeof report);
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
                  hcq_device_running(&dev->base).s, report);
}

static void hw_exception(struct amd_device *dev, const struct kfd_hw_exception *x) {
  char report[700];
  read_fault(dev, report, sizeof report);
  dev->node->lost = true;
  hcq_device_lost(&dev->base, "%s: hardware exception: %s%s; kernel running or last run: %s%s", dev->base.name,
                  x->reset_cause == 1 ? "uncorrectable memory error (ECC)" : "the GPU stopped",
                  x->memory_lost ? ", its memory is lost" : "", hcq_device_running(&dev->base).s, report);
}

static void overwritten_exception(struct amd_device *dev) {
  char now[AMD_REPORT_BYTES], report[700];
  read_report(dev, now);
  if (!now[0] || !strcmp(now, dev->report)) return;
  read_fault(dev, report, sizeof report);
  dev->node->lost = true;
  hcq_device_lost(
      &dev->base,
      "%s: a fault, which the driver reports after another GPU's exception took the place of its own; kernel "
      "running or last run: %s%s",
      dev->base.name, hcq_device_running(&dev->base).s, report);
}

enum { QUEUE, MEMORY, HW, EVENTS };

static void hand_out(db_device *base, void *ctx) {
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

/* Waits for the events from `first` on. */
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
                    err ? strerror(-err) : "the kernel gave up");
    return;
  }
  /* The kernel fills in exceptions only; which GPU it was marks them as valid. */
  if (!states[MEMORY].memory.gpu_id && !states[HW].hw.gpu_id) return;
  hand_out(&dev->base, states); /* it may have left the registry */
  hcq_machine_each(dev->base.machine, hand_out, states);
}

void amd_sleep(db_device *base, const db_signal *sig, uint64_t value, uint64_t ns) {
  wait_events(amd_device(base), QUEUE, ns < 1000000 ? 1 : (uint32_t)(ns / 1000000));
}

static void look(db_device *base, void *ctx) { wait_events(amd_device(base), MEMORY, 0); }

void amd_events_settle(struct amd_device *dev) {
  hcq_machine_each(dev->base.machine, look, NULL);
  read_report(dev, dev->report);
}
