/* Counters of the CPU device, around kernels of known size. What a machine counts differs: in virtual machines often
 * only the kernel's own events. */
#define _GNU_SOURCE
#include "saxpy.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/ok.h"

enum { N = 1 << 20, GROUPS = N / SAXPY_ITEMS, PAGE = 4096 };
static db_device *dev;
static db_program *saxpy;
static db_buffer *x, *y;
static db_queue *q;

static int begin(void **state) {
  size_t size;
  void *image = saxpy_image(&machines[0], &size);
  dev = db_open("CPU");
  if (!dev || !image) return -1;
  saxpy = saxpy_load(&machines[0], dev, image, size);
  free(image);
  x = db_alloc(dev, N * 4, 0), y = db_alloc(dev, N * 4, 0);
  q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  if (!saxpy || !x || !y || !q) return -1;
  memset(db_buffer_host(x), 0, N * 4), memset(db_buffer_host(y), 0, N * 4);
  return 0;
}
static int finish(void **state) {
  db_queue_release(q);
  db_program_release(saxpy);
  db_buffer_release(x);
  db_buffer_release(y);
  db_close(dev);
  return 0;
}

static int find(const char *name, struct db_counter *out) {
  struct db_counter all[64];
  int n = db_counters(dev, all, 64);
  assert_true(n > 0 && n <= 64);
  for (int i = 0; i < n; i++)
    if (!strcmp(all[i].name, name)) return *out = all[i], 0;
  return -ENOENT;
}
static bool counts(const char *name) { return !find(name, &(struct db_counter){0}); }

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Runs saxpy on `to` between the begin and the end of counting. */
static void run(db_counter_set *set, db_buffer *to, unsigned pass) {
  uint64_t when;
  OK(db_queue_counters_begin(q, set, pass));
  OK(saxpy_record(&machines[0], q, saxpy, to, x, 1, 0, N));
  OK(db_queue_counters_end(q));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 60000000000ull));
}

static uint64_t read_sum(db_counter_set *set, unsigned i) {
  uint64_t sum;
  OK(db_counter_set_read(set, i, NULL, 0, &sum));
  return sum;
}

static void counts_workgroups_of_each_worker(void **state) {
  struct db_counter info;
  OK(find("WORKGROUPS", &info));
  db_counter_set *set = db_counter_set_new(dev, (const char *[]){"WORKGROUPS"}, 1);
  uint64_t values[256], sum, added = 0;
  assert_non_null(set);
  for (int i = 0; i < 3; i++) run(set, y, 0);
  OK(db_counter_set_read(set, 0, values, 256, &sum));
  for (unsigned i = 0; i < info.instances && i < 256; i++) added += values[i];
  assert_int_equal(sum, GROUPS);
  assert_int_equal(added, GROUPS);
  db_counter_set_release(set);
}

static void counts_time_and_replays(void **state) {
  struct db_counter info;
  if (find("TASK_CLOCK", &info)) skip();
  db_counter_set *set = db_counter_set_new(dev, (const char *[]){"TASK_CLOCK", "WORKGROUPS"}, 2);
  assert_non_null(set);
  uint64_t when;
  OK(db_queue_counters_begin(q, set, 0));
  OK(saxpy_record(&machines[0], q, saxpy, y, x, 1, 0, N));
  OK(db_queue_counters_end(q));
  db_recording *r = db_queue_bind(q);
  assert_non_null(r);
  for (int i = 0; i < 3; i++) {
    double start = now_ns();
    OK(db_recording_submit(r, &when));
    OK(db_wait(db_queue_timeline(q), when, 60000000000ull));
    double wall = now_ns() - start, counted = (double)read_sum(set, 0);
    assert_true(counted > 0 && counted <= wall * info.instances);
    assert_int_equal(read_sum(set, 1), GROUPS);
  }
  db_recording_release(r);
  db_counter_set_release(set);
}

/* The first kernel that writes to memory makes the kernel map its pages, the second does not. */
static void counts_page_faults(void **state) {
  if (!counts("PAGE_FAULTS")) skip();
  db_counter_set *set = db_counter_set_new(dev, (const char *[]){"PAGE_FAULTS"}, 1);
  void *fresh = mmap(NULL, N * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(fresh != MAP_FAILED);
  madvise(fresh, N * 4, MADV_NOHUGEPAGE);
  db_buffer *to = db_import_host(dev, fresh, N * 4);
  assert_true(set && to);
  run(set, to, 0);
  assert_true(read_sum(set, 0) >= N * 4 / PAGE);
  run(set, to, 0);
  assert_true(read_sum(set, 0) < N * 4 / PAGE / 2);
  db_counter_set_release(set);
  db_buffer_release(to);
  munmap(fresh, N * 4);
}

static void counts_instructions_or_says_why_not(void **state) {
  static const char *const names[] = {"CYCLES", "INSTRUCTIONS", "BRANCHES", "BRANCH_MISSES", "CACHE_MISSES"};
  if (!counts("INSTRUCTIONS")) {
    assert_null(db_counter_set_new(dev, names, 2));
    if (!strstr(db_error(), "performance monitoring unit") && !strstr(db_error(), "perf_event_paranoid"))
      fail_msg("%s", db_error());
    return;
  }
  db_counter_set *set = db_counter_set_new(dev, names, 5);
  assert_non_null(set);
  assert_int_equal(db_counter_set_passes(set), 2); /* four registers, and the check is of another block */
  for (unsigned pass = 0; pass < 2; pass++) run(set, y, pass);
  assert_true(read_sum(set, 0) > 0);
  assert_true(read_sum(set, 1) > N / 16); /* at least an instruction per vector */
  db_counter_set_release(set);
}

static void refuses_unknown_counters(void **state) {
  assert_null(db_counter_set_new(dev, (const char *[]){"SQ_WAVES"}, 1));
  assert_non_null(strstr(db_error(), "CPU: the device has no counter SQ_WAVES"));
}

/* Makes perf_event_open fail with an error in this process, as the kernel does where it forbids counters. */
static int forbid(int error) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof program / sizeof *program, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int look_where_forbidden(int error, const char *name, const char *why) {
  struct db_counter only[64];
  if (forbid(error)) return 77;
  db_device *own = db_open("CPU");
  if (db_counters(own, only, 64) != 1 || strcmp(only[0].name, "WORKGROUPS") != 0) return 1;
  if (db_counter_set_new(own, &name, 1)) return 2;
  if (!strstr(db_error(), why)) return fprintf(stderr, "%s\n", db_error()), 3;
  db_close(own);
  return 0;
}

static void says_why_the_kernel_forbids(void **state) {
  static const struct {
    int error;
    const char *name, *why;
  } cases[] = {{EACCES, "CYCLES", "CPU: the kernel forbids counter CYCLES: perf_event_paranoid is "},
               {EPERM, "TASK_CLOCK", "CPU: the kernel forbids counter TASK_CLOCK: perf_event_paranoid is "},
               {ENOENT, "CYCLES", "counter CYCLES needs a performance monitoring unit"},
               {ENOSYS, "PAGE_FAULTS", "CPU: counter PAGE_FAULTS: Function not implemented"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    pid_t pid = fork();
    if (!pid) _exit(look_where_forbidden(cases[i].error, cases[i].name, cases[i].why));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_workgroups_of_each_worker),
      cmocka_unit_test(counts_time_and_replays),
      cmocka_unit_test(counts_page_faults),
      cmocka_unit_test(counts_instructions_or_says_why_not),
      cmocka_unit_test(refuses_unknown_counters),
      cmocka_unit_test(says_why_the_kernel_forbids),
  };
  return cmocka_run_group_tests_name("counters of the CPU", tests, begin, finish);
}
