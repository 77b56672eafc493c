/* Device names, the registry, and the list of this machine's devices. */
#include "hcq/hcq.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void opens_devices_by_name(void **state) {
  const struct {
    const char *name, *says;
  } cases[] = {
      {"GPU", "unknown device 'GPU'; known: CPU, AMD, AMD:1, EMU+AMD:gfx1100, NV, NV:1, EMU+NV:sm_90"},
      {"cpu", "unknown device 'cpu'"},
      {"EMU+CPU", "unknown device 'EMU+CPU'"},
      {"EMU+", "unknown device"},
      {":1", "unknown device"},
      {"EMU+NV", "needs its ISA, as in EMU+NV:sm_90"},
      {"EMU+NV:sm_10", "sm_90"},
      {"NV:x", "'x' is not a device index"},
      {"CPU:", "'' is not a device index"},
      {"CPU:-1", "'-1' is not a device index"},
      {"CPU:1x", "'1x' is not a device index"},
      {"CPU:99999999999999999999", "is not a device index"},
      {"EMU+AMD", "needs its ISA, as in EMU+AMD:gfx1100"},
      {"EMU+AMD:", "needs its ISA"},
      {"EMU+AMD:gfx1100:one", "'one' is not a device index"},
      {"EMU+AMD:gfx803", "gfx1100"}, /* lists the known names */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_null(db_open(cases[i].name));
    if (!strstr(db_error(), cases[i].says))
      fail_msg("%s: \"%s\" does not contain \"%s\"", cases[i].name, db_error(), cases[i].says);
  }
  char longest[4096];
  memset(longest, 'A', sizeof longest);
  longest[sizeof longest - 1] = 0;
  assert_null(db_open(longest));
  assert_non_null(strstr(db_error(), "too long"));
  memcpy(longest, "EMU+AMD:", 8);
  longest[120] = 0;
  assert_null(db_open(longest));
  assert_non_null(strstr(db_error(), "too long"));
}

static void reads_the_environment(void **state) {
  setenv("DEV", "CPU:2", 1);
  db_device *dev = db_open(NULL);
  assert_non_null(dev);
  assert_string_equal(db_device_name(dev), "CPU:2");
  db_close(dev);
  setenv("DEV", "nonsense", 1);
  assert_null(db_open(NULL));
  assert_non_null(strstr(db_error(), "nonsense"));
  unsetenv("DEV");
  dev = db_open(NULL);
  assert_string_equal(db_device_name(dev), "CPU");
  assert_int_equal(db_device_synchronize(dev, 0), 0);
  db_close(dev);
  db_close(NULL);
}

/* Without a GPU, the message says so and names an emulated one. With one, it opens or the message says why not, and a
 * GPU that the machine does not have is rejected. */
static void hardware(const char *vendor, const char *node, const char *emulated) {
  char says[128], name[16];
  db_device *dev = db_open(vendor);
  if (access(node, F_OK)) {
    assert_null(dev);
    snprintf(says, sizeof says, "%s: cannot open %s: No such file or directory", vendor, node);
    assert_non_null(strstr(db_error(), says));
    assert_non_null(strstr(db_error(), emulated));
    return;
  }
  snprintf(says, sizeof says, "%s: ", vendor);
  if (!dev) assert_int_equal(strncmp(db_error(), says, strlen(says)), 0);
  if (dev) assert_true(*db_device_arch(dev) && *db_device_description(dev));
  if (dev) assert_int_equal(db_device_synchronize(dev, 1000000000), 0);
  snprintf(name, sizeof name, "%s:63", vendor);
  assert_null(db_open(name));
  assert_int_equal(strncmp(db_error(), vendor, strlen(vendor)), 0);
  if (dev) assert_non_null(strstr(db_error(), "numbered from 0"));
  db_close(dev);
}
static void amd_hardware(void **state) { hardware("AMD", "/dev/kfd", "EMU+AMD:gfx1100"); }
static void nvidia_hardware(void **state) { hardware("NV", "/dev/nvidiactl", "EMU+NV:sm_90"); }

static void lists_devices(void **state) {
  struct db_device_info all[64], few[1];
  int n = db_devices(all, 64);
  assert_in_range(n, 5, 64);
  assert_int_equal(db_devices(few, 1), n);
  assert_string_equal(few[0].name, "CPU");
  assert_int_equal(db_devices(NULL, 0), n);
  int cpu = 0, nv = 0, emulated = 0, amd = 0;
  for (int i = 0; i < n; i++) {
    assert_int_equal(all[i].usable, !all[i].reason[0]);
    if (!strcmp(all[i].name, "CPU")) cpu += all[i].usable && all[i].memory > 1 << 20 && all[i].description[0];
    if (!strcmp(all[i].name, "NV")) nv++;
    if (!strncmp(all[i].name, "AMD", 3)) amd++;
    if (!strcmp(all[i].name, "EMU+AMD:gfx1100")) {
      assert_true(all[i].emulated && all[i].usable);
      assert_string_equal(all[i].arch, "gfx1100");
      assert_int_equal(all[i].memory, 25753026560ull);
      emulated++;
    }
    if (!strcmp(all[i].name, "EMU+NV:sm_90")) {
      assert_true(all[i].emulated && all[i].usable);
      assert_string_equal(all[i].arch, "sm_90");
      assert_true(all[i].memory > 1ull << 34);
      emulated++;
    }
    if (!all[i].usable) continue;
    db_device *dev = db_open(all[i].name); /* a device listed as usable can be opened */
    if (!dev) fail_msg("%s: %s", all[i].name, db_error());
    assert_string_equal(db_device_arch(dev), all[i].arch);
    db_close(dev);
  }
  assert_int_equal(cpu, 1);
  assert_true(nv >= 1);
  assert_true(amd >= 1);
  assert_int_equal(emulated, 2);
}

/* The error message is per thread. */
static void *other_thread(void *arg) {
  assert_string_equal(db_error(), "");
  for (int i = 0; i < 20; i++) {
    db_device *dev = db_open("CPU:3");
    db_buffer *b = db_alloc(dev, 100, 0);
    char c = 5;
    if (db_buffer_write(b, 99, &c, 1)) return arg;
    db_device *again = db_device_retain(dev);
    db_close(dev);
    db_buffer_release(b);
    db_close(again);
  }
  return NULL;
}
static void threads(void **state) {
  assert_null(db_open("nothing"));
  pthread_t t;
  void *failed;
  assert_int_equal(pthread_create(&t, NULL, other_thread, (void *)1), 0);
  for (int i = 0; i < 20; i++) {
    db_device *dev = db_open("CPU:4");
    db_close(dev);
  }
  pthread_join(t, &failed);
  assert_null(failed);
  assert_non_null(strstr(db_error(), "nothing"));
}

static void bounds(void **state) {
  db_device *dev = db_open("CPU");
  db_buffer *b = db_alloc(dev, 100, 0);
  char c[101] = "x";
  assert_int_equal(db_buffer_write(b, 0, c, 101), -EINVAL);
  assert_int_equal(db_buffer_write(b, 101, c, 0), -EINVAL);
  assert_int_equal(db_buffer_read(b, (size_t)-1, c, 2), -EINVAL);
  assert_non_null(strstr(db_error(), "buffer of 100"));
  assert_int_equal(db_buffer_read(b, 100, c, 0), 0);
  assert_null(db_alloc(dev, 0, 0));
  assert_null(db_alloc(dev, 10, 1u << 30));
  assert_null(db_queue_new(dev, (enum db_queue_kind)7));
  db_buffer_release(b);
  db_buffer_release(NULL);
  db_signal_release(NULL);
  db_program_release(NULL);
  db_queue_release(NULL);
  db_close(dev);
}

int main(void) {
  unsetenv("DEV");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opens_devices_by_name),
      cmocka_unit_test(reads_the_environment),
      cmocka_unit_test(amd_hardware),
      cmocka_unit_test(nvidia_hardware),
      cmocka_unit_test(lists_devices),
      cmocka_unit_test(threads),
      cmocka_unit_test(bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
