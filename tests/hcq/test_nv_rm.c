/* The NVIDIA backend's objects with a scripted driver: its requests on each branch, its behaviour when calls fail, and
 * its handling of errors. */
#define _GNU_SOURCE
#include "nv_script.h"
#include "hcq/hcq.h"
#include "hcq/nv/nv.h"
#include "hcq/profile.h"

#define SECOND 1000000000ull
#define DEVICE "EMU+NV:scripted"

static db_device *must_open(const char *name) {
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  return dev;
}
/* With a driver of branch i. Its version stays valid until the next call. */
static db_device *open_on_branch(void **state, unsigned i) {
  static char version[32];
  fresh(state);
  k.branch = rm_branch_at(i);
  snprintf(version, sizeof version, "%u.42.01", k.branch.major);
  k.version = version;
  return must_open(DEVICE);
}
static void assert_says(const char *what) {
  if (!strstr(db_error(), what)) fail_msg("\"%s\" does not contain \"%s\"", db_error(), what);
}
static void assert_nothing_left(void) {
  assert_int_equal(k.open_fds, 0);
  assert_int_equal(k.reservations, 0);
  assert_int_equal(script_count(0), 0);
  for (int i = 0; i < RANGES; i++) assert_int_equal(k.ranges[i].size, 0);
}
static void assert_refused(const char *name, const char *what) {
  assert_null(db_open(name));
  assert_says(what);
  assert_nothing_left();
}

/* ---- opening ---- */

static void opens_with_what_the_driver_wants(void **state) {
  db_device *dev = must_open(DEVICE);
  assert_string_equal(db_device_arch(dev), "sm_90");
  /* seven GPCs, one of them with one TPC fewer: (6 * 9 + 8) * 2 */
  assert_string_equal(db_device_description(dev), "NVIDIA Scripted, 124 SMs");
  const uint32_t once[] = {RM_CLASS_CLIENT,          RM_CLASS_DEVICE,   RM_CLASS_SUBDEVICE,      RM_CLASS_VASPACE,
                           RM_CLASS_USERMODE_HOPPER, RM_CLASS_CTXSHARE, RM_CLASS_COMPUTE_HOPPER, RM_CLASS_COPY_HOPPER};
  for (size_t i = 0; i < sizeof once / sizeof *once; i++) assert_int_equal(script_count(once[i]), 1);
  assert_int_equal(script_count(RM_CLASS_CHANNEL_GROUP), 2);
  assert_int_equal(script_count(RM_CLASS_GPFIFO_HOPPER), 2);
  assert_int_equal(script_count(RM_CLASS_DEBUGGER), 0); /* a debugger object would change how errors are handled */
  const struct script_object *compute = script_find(RM_CLASS_GPFIFO_HOPPER, 0),
                             *copy = script_find(RM_CLASS_GPFIFO_HOPPER, 1);
  assert_int_equal(compute->channel.engine_type, RM_ENGINE_GR0);
  assert_int_equal(copy->channel.engine_type, RM_ENGINE_COPY0 + 3); /* the first non-graphics copy engine */
  assert_int_equal(class_of(compute->channel.ctxshare), RM_CLASS_CTXSHARE);
  assert_int_equal(copy->channel.ctxshare, 0);
  for (int i = 0; i < 2; i++) {
    const struct script_object *c = i ? copy : compute, *fifo = object(c->channel.userd_memory[0]);
    assert_true(c->scheduled && c->registered);
    assert_true(c->channel.gpfifo_va < 1ull << 40);
    assert_int_equal(c->channel.gpfifo_va, (uintptr_t)fifo->host);
    assert_true(c->channel.userd_offset[0] >= c->channel.gpfifo_entries * 8ull);
    assert_int_equal(fifo->memory.attr & RM_ATTR_PHYSICALITY(3), RM_ATTR_PHYSICALITY(RM_PHYS_CONTIGUOUS));
    assert_int_equal(object(c->channel.error_memory)->memory.attr >> 29, RM_UNCACHED);
  }
  /* A real GPU has no class of counters. */
  assert_int_equal(db_counters(dev, NULL, 0), -ENOTSUP);
  assert_string_equal(db_error(),
                      DEVICE ": not supported: performance counters of sm_90, because NVIDIA does not publish their "
                             "events and registers; timestamps and the clock registers of kernels work");
  assert_int_equal(script_count(RM_CLASS_PROFILER), 0); /* freed */
  db_close(dev);
  assert_nothing_left();
}

static void opens_on_every_branch(void **state) {
  for (unsigned i = 0; i < RM_BRANCHES; i++) {
    db_device *dev = open_on_branch(state, i);
    db_buffer *b = db_alloc(dev, 10 << 20, 0), *host = db_alloc(dev, 5000, DB_BUFFER_HOST);
    assert_non_null(b);
    assert_non_null(host);
    db_buffer_release(b);
    db_buffer_release(host);
    db_close(dev);
    assert_nothing_left();
  }
}

static void version_from_elsewhere(void **state) {
  k.version = NULL;
  k.proc_version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (x@y)\nGCC 12\n";
  k.no_version_control = true;
  db_close(must_open(DEVICE));
  assert_nothing_left();
  k.no_version_control = false;
  k.proc_version = "no version";
  db_close(must_open(DEVICE));
  for (unsigned i = 0; i < RM_BRANCHES; i += 4) { /* 535, 560, 580 */
    k.branch = rm_branch_at(i);
    db_close(must_open(DEVICE));
  }
  k.no_version_control = true;
  assert_refused(DEVICE, "the driver does not report its version");
}

static void refusals(void **state) {
  static const uint32_t turing[] = {0xc461, 0xc46f, 0xc5c0, 0xc5b5, 0};
  k.missing = "/dev/nvidiactl";
  assert_refused(DEVICE, DEVICE ": cannot open /dev/nvidiactl: No such file or directory");
  k.missing = "/dev/nvidia3";
  assert_refused(DEVICE, DEVICE ": cannot open /dev/nvidia3: No such file");
  k.missing = "/dev/nvidia-uvm";
  assert_refused(DEVICE, DEVICE ": cannot open /dev/nvidia-uvm: No such file");
  k.missing = NULL;
  assert_refused(DEVICE ":1", DEVICE ":1: there is 1 GPU, numbered from 0");
  k.gpus = 2;
  assert_refused(DEVICE ":7", "there are 2 GPUs");
  k.gpus = 0;
  assert_refused(DEVICE, "the driver has no GPU");
  k.gpus = 1;
  const char *const unknown[] = {"610.43.02", "470.256.02", "585.1"};
  for (int i = 0; i < 3; i++) {
    k.version = unknown[i];
    assert_refused(DEVICE, "supported are the branches 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595");
    assert_says(unknown[i]);
  }
  k.version = "580.82.07";
  k.classes = turing;
  assert_refused(DEVICE, "not supported: a GPU (2330) before Ampere or of an unknown kind");
  k.classes = turing + 4;
  assert_refused(DEVICE, "the driver lists 0 classes");
  k.classes = script_hopper;
  k.cc = RM_CC_FEATURE_HCC;
  assert_refused(DEVICE, "not supported: a GPU in confidential computing mode");
  k.cc = 0;
  for (uint32_t mode = 0; mode < 5; mode++) {
    k.mig = mode;
    if (mode == RM_SMC_MODE_ENABLED || mode == RM_SMC_MODE_DISABLE_PENDING)
      assert_refused(DEVICE, "not supported: a GPU in MIG mode");
    else
      db_close(must_open(DEVICE));
  }
  k.mig = 0;
  k.warps = 1;
  assert_refused(DEVICE, "8 GPCs of 9 TPCs of 2 SMs of 0 warps");
  k.warps = 100000;
  assert_refused(DEVICE, "of 99999 warps");
}

static void failures_name_what_failed(void **state) {
  static const struct {
    uint32_t class, command, status;
    const char *says;
  } cases[] = {
      {RM_CLASS_CLIENT, 0, RM_INSUFFICIENT_PERMISSIONS,
       "creating a client of the driver: the driver returned INSUFFICIENT_PERMISSIONS (0x1b)"},
      {RM_CLASS_DEVICE, 0, RM_GPU_IS_LOST, "creating the device object: the driver returned GPU_IS_LOST (0xf)"},
      {RM_CLASS_SUBDEVICE, 0, RM_GENERIC, "creating the subdevice object"},
      {RM_CLASS_USERMODE_HOPPER, 0, RM_INVALID_CLASS, "creating the usermode object"},
      {RM_CLASS_VASPACE, 0, RM_NO_MEMORY, "creating the address space: the driver returned NO_MEMORY (0x51)"},
      {RM_CLASS_CHANNEL_GROUP, 0, RM_INSUFFICIENT_RESOURCES, "creating the compute channel's group"},
      {RM_CLASS_CTXSHARE, 0, RM_GENERIC, "creating the compute channel's context"},
      {RM_CLASS_GPFIFO_HOPPER, 0, RM_INVALID_STATE, "creating the compute channel: the driver returned INVALID_STATE"},
      {RM_CLASS_COMPUTE_HOPPER, 0, RM_INVALID_CLASS, "creating the compute channel's engine object"},
      {RM_CLASS_COPY_HOPPER, 0, RM_INVALID_CLASS, "creating the copy channel's engine object"},
      {RM_CLASS_MEMORY_LOCAL, 0, RM_NO_MEMORY, "out of memory, 4424704 bytes are left"},
      {RM_CLASS_MEMORY_SYSTEM, 0, RM_NO_MEMORY, "bytes of host memory: the host is out of memory"},
      {0, RM_CTRL_GPU_ID_INFO, RM_INVALID_ARGUMENT, "querying the GPU's instance"},
      {0, RM_CTRL_GR_INFO, RM_NOT_SUPPORTED, "querying the GPU's numbers of GPCs and SMs"},
      {0, RM_CTRL_TPC_MASK, RM_NOT_SUPPORTED, "querying the TPCs"},
      {0, RM_CTRL_TIMER_TIME, RM_NOT_SUPPORTED, "reading the GPU's clock"},
      {0, RM_CTRL_GID_INFO, RM_NOT_SUPPORTED, "querying the GPU's id"},
      {0, RM_CTRL_CE_CAPS, RM_NOT_SUPPORTED, "listing the copy engines"},
      {0, (uint32_t)RM_CTRL_WORK_SUBMIT_TOKEN, RM_NOT_SUPPORTED, "querying the compute channel's token"},
      {0, (uint32_t)RM_CTRL_GROUP_SCHEDULE, RM_INVALID_STATE, "scheduling the compute channel"},
      {0, UVM_INITIALIZE, RM_NOT_SUPPORTED, "initializing /dev/nvidia-uvm: the driver returned NOT_SUPPORTED"},
      {0, UVM_REGISTER_GPU, RM_NVLINK_FABRIC_NOT_READY, "NVLink's fabric manager is not ready"},
      {0, UVM_REGISTER_GPU_VASPACE, RM_PAGE_TABLE_NOT_AVAIL, "registering the address space with UVM"},
      {0, UVM_REGISTER_CHANNEL, RM_NO_MEMORY, "registering the compute channel with UVM"},
      {0, UVM_CREATE_EXTERNAL_RANGE, RM_UVM_ADDRESS_IN_USE, "the driver returned UVM_ADDRESS_IN_USE (0x68)"},
      {0, UVM_MAP_EXTERNAL_ALLOCATION, RM_INVALID_ADDRESS, "on the GPU: the driver returned INVALID_ADDRESS"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(state);
    k.fail_class = cases[i].class;
    k.fail_command = cases[i].command;
    k.fail_status = cases[i].status;
    if (cases[i].class == 0) k.fail_class = UINT32_MAX;
    assert_refused(DEVICE, cases[i].says);
    assert_says(DEVICE ": ");
  }
}

/* If any call fails, either opening fails or the call was not needed, and nothing is leaked. */
static void every_call_may_fail(void **state) {
  const int ways[] = {-EIO, RM_GENERIC};
  for (int way = 0; way < 2; way++) {
    int failed = 0;
    for (int n = 1;; n++) {
      fresh(state);
      k.fail_call = n;
      k.fail_with = ways[way];
      db_device *dev = db_open(DEVICE);
      int calls = k.calls;
      failed += !dev;
      k.fail_call = 0;
      if (dev) db_close(dev);
      if (!dev) assert_int_not_equal(db_error()[0], 0);
      assert_nothing_left();
      if (calls < n) break;
    }
    assert_true(failed > 60);
  }
}

/* ---- memory ---- */

static const struct script_object *object_of(const db_buffer *b, int *range) {
  uint64_t va = db_buffer_address(b) & ~4095ull;
  assert_int_equal(range_at(va, 0, range), 0);
  const struct script_object *o = object(k.ranges[*range].memory);
  assert_non_null(o);
  return o;
}

static void memory_kinds(void **state) {
  static uint8_t mine[20000];
  db_device *dev = must_open(DEVICE);
  const struct {
    db_buffer *buf;
    uint32_t class, page;
    bool host, cached;
  } cases[] = {
      {db_alloc(dev, 5000, 0), RM_CLASS_MEMORY_LOCAL, 4096, false, false},
      {db_alloc(dev, 100000, 0), RM_CLASS_MEMORY_LOCAL, 65536, false, false},
      {db_alloc(dev, 9 << 20, 0), RM_CLASS_MEMORY_LOCAL, 2 << 20, false, false},
      {db_alloc(dev, 100000, DB_BUFFER_CPU_MAP), RM_CLASS_MEMORY_LOCAL, 65536, true, false},
      {db_alloc(dev, 100000, DB_BUFFER_HOST), RM_CLASS_OS_DESCRIPTOR, 4096, true, true},
      {db_import_host(dev, mine + 3, 9000), RM_CLASS_OS_DESCRIPTOR, 4096, true, false},
  };
  enum { N = sizeof cases / sizeof *cases };
  int pinned = script_count(RM_CLASS_OS_DESCRIPTOR); /* the device's signals and other internal memory */
  for (int i = 0; i < N; i++) {
    int range;
    if (!cases[i].buf) fail_msg("%d: %s", i, db_error());
    const struct script_object *o = object_of(cases[i].buf, &range);
    uint64_t va = db_buffer_address(cases[i].buf), end = va + db_buffer_size(cases[i].buf);
    assert_int_equal(o->class, cases[i].class);
    assert_int_equal(k.ranges[range].base % cases[i].page, 0);
    assert_int_equal(k.ranges[range].size % cases[i].page, 0);
    assert_true(k.ranges[range].base <= va && end <= k.ranges[range].base + k.ranges[range].size);
    assert_true(k.ranges[range].size < end - va + 2ull * cases[i].page);
    assert_int_equal(k.ranges[range].gpus, 1);
    assert_int_equal(db_buffer_host(cases[i].buf) != NULL, cases[i].host);
    if (o->class == RM_CLASS_OS_DESCRIPTOR) continue;
    assert_int_equal(o->memory.alignment, cases[i].page);
    assert_int_equal(o->memory.limit, o->memory.size - 1);
    assert_int_equal(o->memory.owner, script_find(RM_CLASS_CLIENT, 0)->handle);
    assert_int_equal(o->memory.attr >> 29 == RM_CACHED, cases[i].cached);
    if (cases[i].host) assert_ptr_equal(db_buffer_host(cases[i].buf), (void *)(uintptr_t)va);
  }
  assert_ptr_equal(db_buffer_host(cases[N - 1].buf), mine + 3);
  assert_int_equal(db_buffer_address(cases[N - 1].buf) % 4096, (uintptr_t)(mine + 3) % 4096);
  for (int i = 0; i < N; i++) db_buffer_release(cases[i].buf);
  assert_int_equal(script_count(RM_CLASS_OS_DESCRIPTOR), pinned - 2);

  k.fail_class = RM_CLASS_MEMORY_LOCAL;
  k.fail_status = RM_NO_MEMORY;
  assert_null(db_alloc(dev, 6 << 20, 0));
  assert_says(DEVICE ": allocating 6291456 bytes of device memory: out of memory, 4424704 bytes are left");
  assert_null(db_alloc(dev, 1 << 20, 0)); /* less than the free memory of the device */
  assert_says("of device memory: the host is out of memory; the device has 4424704 bytes left");
  k.fail_class = RM_CLASS_OS_DESCRIPTOR;
  k.fail_status = RM_INVALID_ADDRESS;
  assert_null(db_import_host(dev, mine, 100));
  assert_says("bytes of imported host memory: the driver returned INVALID_ADDRESS");
  k.fail_class = 0;
  db_close(dev);
  assert_nothing_left();
}

static void two_gpus_share_addresses(void **state) {
  k.gpus = 2;
  db_device *a = must_open(DEVICE), *b = must_open(DEVICE ":1");
  assert_int_equal(script_count(RM_CLASS_CLIENT), 1);
  assert_int_equal(script_count(RM_CLASS_DEVICE), 2);
  db_buffer *local = db_alloc(a, 1 << 16, 0), *more = db_alloc(b, 1 << 16, 0),
            *host = db_alloc(a, 4096, DB_BUFFER_HOST);
  int range, other, shared;
  object_of(local, &range);
  object_of(more, &other);
  object_of(host, &shared);
  assert_int_equal(k.ranges[range].gpus, 1);
  assert_int_equal(k.ranges[other].gpus, 2);
  db_queue *q = db_queue_new(b, DB_QUEUE_COPY);
  uint64_t when;
  assert_int_equal(db_queue_copy(q, more, 0, host, 0, 4096), 0);
  assert_int_equal(k.peers_enabled, 0); /* host memory needs no peer access */
  assert_int_equal(k.ranges[shared].gpus, 3);
  assert_int_equal(db_queue_copy(q, more, 0, local, 0, 4096), 0);
  assert_int_equal(db_queue_copy(q, local, 4096, more, 0, 4096), 0);
  assert_int_equal(k.peers_enabled, 1);
  assert_int_equal(k.ranges[range].gpus, 3);
  assert_int_equal(db_queue_submit(q, &when), 0);
  assert_int_equal(db_wait(db_queue_timeline(q), when, 10 * SECOND), 0);
  db_queue_release(q);

  q = db_queue_new(a, DB_QUEUE_COPY);
  assert_int_equal(db_queue_copy(q, local, 0, more, 0, 4096), 0);
  assert_int_equal(k.peers_enabled, 1); /* in both directions at once */
  db_queue_release(q);
  db_buffer_release(local);
  db_buffer_release(more);
  db_buffer_release(host);
  db_close(a);
  db_close(b);
  assert_nothing_left();
}

static void peers_that_cannot(void **state) {
  k.gpus = 2;
  db_device *a = must_open(DEVICE), *b = must_open(DEVICE ":1");
  db_buffer *x = db_alloc(a, 4096, 0), *y = db_alloc(b, 4096, 0);
  db_queue *q = db_queue_new(b, DB_QUEUE_COPY);
  k.fail_command = UVM_ENABLE_PEER_ACCESS;
  k.fail_status = RM_NOT_SUPPORTED;
  assert_int_equal(db_queue_copy(q, y, 0, x, 0, 4096), -EXDEV);
  assert_says("enabling access to the memory of " DEVICE);
  db_queue_release(q);
  db_buffer_release(x);
  db_buffer_release(y);
  db_close(a);
  db_close(b);
  assert_nothing_left();
}

/* The example of open-gpu-doc's class headers with GH100's numbers: 64 warps, 2 SMs per TPC, 8 GPCs of 9 TPCs. */
static void local_memory_sizes(void **state) {
  struct nv_device dev = {.gpcs = 8, .tpcs_per_gpc = 9, .sms_per_tpc = 2, .max_warps_per_sm = 64};
  struct nv_local local = {0};
  assert_int_equal(nv_local_size(&dev, 0x260, &local), 171ull << 20);
  assert_int_equal(local.per_thread, 0x260);
  assert_int_equal(local.bytes_per_tpc, 0x260000);
  nv_local_size(&dev, 1, &local);
  assert_int_equal(local.per_thread, 32);
  assert_int_equal(local.bytes_per_tpc, 0x400 * 128);
}

static void local_memory_grows(void **state) {
  db_device *dev = must_open(DEVICE);
  struct nv_device *nv = nv_device(dev);
  assert_null(nv->local.memory);
  assert_int_equal(nv_local_reserve(nv, 100), 0);
  assert_int_equal(nv->local.per_thread, 512);
  uint64_t first = nv->local.memory->address;
  assert_int_equal(nv_local_reserve(nv, 512), 0);
  assert_int_equal(nv->local.memory->address, first);
  assert_int_equal(nv_local_reserve(nv, 5000), 0);
  assert_true(nv->local.per_thread >= 5000);
  assert_true(nv->local.memory->size >= 5000ull * 32 * 64 * 2 * 9 * 8);
  assert_int_equal(nv_local_reserve(nv, 1 << 20), -ENOTSUP);
  assert_says("1048576 bytes of local memory a thread");
  k.fail_class = RM_CLASS_MEMORY_LOCAL;
  k.fail_status = RM_NO_MEMORY;
  assert_int_equal(nv_local_reserve(nv, 50000), -ENOMEM);
  assert_true(nv->local.per_thread >= 5000 && nv->local.memory != NULL);
  k.fail_class = 0;
  db_close(dev);
  assert_nothing_left();
}

/* ---- running ---- */

static void timestamps_are_host_time(void **state) {
  db_device *dev = must_open(DEVICE);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_signal *s = db_signal_new(dev);
  assert_int_equal(db_signal_time_ns(s), 0);
  uint64_t before = script_ns(), when;
  assert_int_equal(db_queue_timestamp(q, s), 0);
  assert_int_equal(db_queue_submit(q, &when), 0);
  assert_int_equal(db_wait(db_queue_timeline(q), when, 10 * SECOND), 0);
  uint64_t after = script_ns(), at = db_signal_time_ns(s);
  /* the pair of samples may be off by half of the time of taking it, which the scheduler may extend */
  assert_in_range(at, before - SECOND / 10, after + SECOND / 10);
  db_signal_release(s);
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

static void a_hang_times_out(void **state) {
  db_device *dev = must_open(DEVICE);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  k.hang = true;
  assert_int_equal(db_queue_submit(q, &when), 0);
  assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND / 20), -ETIMEDOUT);
  assert_says(DEVICE ": the compute queue did not reach 1 within 0.050 s: it is at 0");
  k.hang = false;
  assert_int_equal(db_wait(db_queue_timeline(q), when, 10 * SECOND), 0);
  db_queue_release(q);
  db_close(dev);
  assert_int_equal(k.unscheduled, 2);
  assert_nothing_left();
}

enum { LEAST_POLLS = 5 };
static int polls_in_a_third; /* of a second, when the wait has begun */
/* Waits until the test's wait has polled, counts its polls for a third of a second, and then reports the event, an
 * error if `what` is not NULL. The value arrives after the event was read. */
static void *later(void *what) {
  const struct timespec third = {.tv_nsec = 300000000}, little = {.tv_nsec = 1000000};
  enum { MOST = 5000 };
  for (int i = 0; i < MOST && !k.no_events && atomic_load(&k.polls) < LEAST_POLLS; i++) nanosleep(&little, NULL);
  int before = atomic_load(&k.polls);
  nanosleep(&third, NULL);
  polls_in_a_third = atomic_load(&k.polls) - before;
  if (what) script_fault(what, 31);
  atomic_store(&k.events, 2);
  if (k.no_events) nanosleep(&third, NULL);
  for (int i = 0; i < MOST && !k.no_events && !what && atomic_load(&k.events); i++) nanosleep(&little, NULL);
  k.hang = false;
  return NULL;
}
/* A long wait sleeps in poll until the driver's error event, which ends it immediately. It rarely checks the value, and
 * is late by a small fraction of its length. This is the same with a driver without events or with events of other
 * processes. */
static void long_waits_poll(void **state) {
  for (int way = 0; way < 3; way++) { /* the value arrives; an error occurs; the value, without driver events */
    fresh(state);
    k.no_events = way == 2;
    db_device *dev = must_open(DEVICE);
    assert_int_equal(script_count(RM_CLASS_EVENT_OS), way != 2);
    db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
    pthread_t thread;
    uint64_t when;
    k.hang = true;
    assert_int_equal(db_queue_submit(q, &when), 0);
    assert_int_equal(pthread_create(&thread, NULL, later, way == 1 ? script_find(RM_CLASS_GPFIFO_HOPPER, 0) : NULL), 0);
    assert_int_equal(db_wait(db_queue_timeline(q), when, 10 * SECOND), way == 1 ? -EIO : 0);
    pthread_join(thread, NULL);
    if (way == 2)
      assert_int_equal(k.polls, 0);
    else
      assert_true(k.polls >= LEAST_POLLS && polls_in_a_third < 260);
    if (way != 1) assert_int_equal(atomic_load(&k.events), way == 2 ? 2 : 0); /* taken, so the next poll waits */
    db_queue_release(q);
    db_close(dev);
    assert_int_equal(script_count(RM_CLASS_EVENT_OS), 0);
    assert_nothing_left();
  }
}

static void errors_lose_the_device(void **state) {
  const struct {
    uint32_t xid, channel, action;
    struct rm_mmu_fault_info fault;
    struct rm_sm_error_state sm;
    uint32_t error_sm;
    const char *log, *says[4];
  } cases[] = {
      {.xid = 31,
       .fault = {.addr_hi = 0x12, .addr_lo = 0xdead000, .fault_type = 2},
       .says = {DEVICE ": memory access fault at 0x120dead000: page not mapped (Xid 31 on the compute channel)",
                "kernel running or last run: none", "", ""}},
      {.xid = 31,
       .fault = {.addr_lo = 0x1000, .fault_type = 6},
       .says = {"at 0x1000: write to a read-only page", "", "", ""}},
      {.xid = 31, .fault = {.fault_type = 99}, .says = {"at 0x0: unknown error", "", "", ""}},
      {.xid = 31, .channel = 1, .says = {"Xid 31 on the copy channel", "", "", ""}},
      {.xid = 13,
       .sm = {.warp_esr = 9, .warp_esr_pc64 = 0x7f0012340},
       .error_sm = 7,
       .says = {"kernel exception: illegal instruction at 0x7f0012340 on SM 7 (Xid 13 on the compute channel)", "", "",
                ""}},
      {.xid = 13, /* the second hundred needs a second call */
       .sm = {.warp_esr = 0x10, .warp_esr_pc64 = 0x100},
       .error_sm = 123,
       .log = "Xid 13: warp 3 of CTA 1,2,3 stored to shared memory\nmore",
       .says = {"kernel exception: invalid address space at 0x100 on SM 123",
                "; Xid 13: warp 3 of CTA 1,2,3 stored to shared memory", "", ""}},
      {.xid = 32, .says = {"bad pushbuffer data (Xid 32", "", "", ""}},
      {.xid = 69, .says = {"bad method of the compute class (Xid 69", "", "", ""}},
      {.xid = 40, .channel = 1, .says = {"copy engine error (Xid 40 on the copy channel)", "", "", ""}},
      {.xid = 79, .action = 1, .says = {"fallen off the bus", "the driver requests a reset of the GPU", "", ""}},
      {.xid = 4711, .says = {"channel error (Xid 4711", "", "", ""}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(state);
    db_device *dev = must_open(DEVICE);
    db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
    uint64_t when;
    k.hang = true;
    k.fault = cases[i].fault;
    k.sm_error = cases[i].sm;
    k.error_sm = cases[i].error_sm;
    k.action = cases[i].action;
    k.log = cases[i].log;
    assert_int_equal(db_queue_submit(q, &when), 0);
    script_fault(script_find(RM_CLASS_GPFIFO_HOPPER, (int)cases[i].channel), cases[i].xid);
    assert_int_equal(db_wait(db_queue_timeline(q), when, 10 * SECOND), -EIO);
    for (int j = 0; j < 4; j++) assert_says(cases[i].says[j]);
    assert_null(strstr(db_error(), "more"));
    assert_int_equal(script_count(RM_CLASS_DEBUGGER), 0); /* freed again */
    assert_int_equal(db_queue_submit(q, &when), -EIO);
    assert_null(db_alloc(dev, 100, 0));
    assert_null(db_open(DEVICE)); /* while it is open */
    db_queue_release(q);
    db_close(dev);
    assert_nothing_left();
  }
}

/* Memory of a channel that does not stop must not be freed; stopping the channel may be tried again. */
static void a_channel_that_does_not_stop(void **state) {
  db_device *dev = must_open(DEVICE);
  k.fail_command = (uint32_t)RM_CTRL_GROUP_SCHEDULE;
  k.fail_status = RM_TIMEOUT;
  k.fail_free = RM_CLASS_CHANNEL_GROUP;
  int reservations = k.reservations;
  assert_false(dev->ops->halt(dev));
  assert_false(dev->ops->halt(dev));
  assert_int_equal(k.reservations, reservations);
  assert_int_equal(script_count(RM_CLASS_GPFIFO_HOPPER), 2);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  assert_int_equal(db_queue_submit(q, &when), -EIO);
  assert_says("the compute channel was stopped");
  db_queue_release(q);
  k.fail_free = 0; /* preempting it still fails; freeing it is enough */
  assert_true(dev->ops->halt(dev));
  assert_int_equal(script_count(RM_CLASS_GPFIFO_HOPPER), 0);
  db_close(dev);
  assert_nothing_left();
}

/* The clocks are locked from the first set of counters, trace or sampler to the last one. */
static void keeps_clocks_stable(void **state) {
  for (unsigned i = 0; i < RM_BRANCHES; i++) {
    db_device *dev = open_on_branch(state, i);
    hcq_clocks_hold(dev);
    hcq_clocks_hold(dev);
    assert_int_equal(k.clocks[RM_CLOCKS_OS], RM_CLOCKS_LOCK);
    assert_string_equal(hcq_clocks_unstable(dev), "");
    hcq_clocks_drop(dev);
    assert_int_equal(k.clocks[RM_CLOCKS_OS], RM_CLOCKS_LOCK);
    hcq_clocks_drop(dev);
    assert_int_equal(k.clocks[RM_CLOCKS_OS], RM_CLOCKS_DEFAULT);
    db_close(dev);
  }
  fresh(state);
  db_device *dev = must_open(DEVICE);
  k.fail_command = RM_CTRL_RATED_TDP_SET;
  k.fail_status = RM_INSUFFICIENT_PERMISSIONS;
  hcq_clocks_hold(dev);
  assert_non_null(strstr(hcq_clocks_unstable(dev), "lock them with `nvidia-smi --lock-gpu-clocks`"));
  assert_non_null(strstr(hcq_clocks_unstable(dev), "INSUFFICIENT_PERMISSIONS"));
  hcq_clocks_drop(dev);
  k.fail_command = 0;
  setenv("STABLE_CLOCKS", "0", 1);
  hcq_clocks_hold(dev);
  assert_int_equal(k.clocks[RM_CLOCKS_OS], RM_CLOCKS_DEFAULT);
  assert_non_null(strstr(hcq_clocks_unstable(dev), "STABLE_CLOCKS=0"));
  hcq_clocks_drop(dev);
  unsetenv("STABLE_CLOCKS");
  db_close(dev);
  assert_nothing_left();
}

static void listing(void **state) {
  struct db_device_info info[8];
  struct hcq_found found[4];
  k.gpus = 2;
  struct hcq_machine *m = hcq_machine_open(DEVICE);
  assert_non_null(m);
  assert_int_equal(m->ops->enumerate(m, found, 4), 2);
  assert_int_equal(found[0].pci_location, 0x41 << 8 | 2 << 3);
  assert_int_equal(found[1].pci_location, 0x42 << 8 | 2 << 3);
  assert_true(found[0].info.usable);
  assert_string_equal(found[0].info.arch, "sm_90");
  assert_string_equal(found[0].info.description, "NVIDIA Scripted, 124 SMs");
  assert_int_equal(found[0].info.memory, 80ull << 30);
  k.mig = RM_SMC_MODE_ENABLED;
  assert_int_equal(m->ops->enumerate(m, found, 1), 2);
  assert_false(found[0].info.usable);
  assert_non_null(strstr(found[0].info.reason, "MIG"));
  assert_string_equal(found[0].info.description, "PCI 10de:2330");
  k.missing = "/dev/nvidiactl";
  assert_true(m->ops->enumerate(m, found, 1) < 0);
  hcq_machine_release(m);
  assert_nothing_left();
  k.missing = NULL;
  k.mig = 0;
  int n = db_devices(info, 8), listed = 0;
  assert_in_range(n, 4, 8);
  for (int i = 0; i < n; i++) listed += !strcmp(info[i].name, "EMU+NV:sm_90") && info[i].usable && info[i].emulated;
  assert_int_equal(listed, 1);
  assert_nothing_left();
}

int main(void) {
#define T(name) cmocka_unit_test_setup(name, fresh)
  const struct CMUnitTest tests[] = {
      T(opens_with_what_the_driver_wants),
      T(opens_on_every_branch),
      T(version_from_elsewhere),
      T(refusals),
      T(failures_name_what_failed),
      T(every_call_may_fail),
      T(memory_kinds),
      T(two_gpus_share_addresses),
      T(peers_that_cannot),
      T(local_memory_sizes),
      T(local_memory_grows),
      T(timestamps_are_host_time),
      T(a_hang_times_out),
      T(errors_lose_the_device),
      T(long_waits_poll),
      T(listing),
      T(a_channel_that_does_not_stop),
      T(keeps_clocks_stable),
  };
  return cmocka_run_group_tests(tests, script_start, script_stop);
}
