/* The emulated RM's profiler object: the order of reservations, the stream, register operations, credits. Requests are
 * numbers; tests/hcq/test_nv_samples.c samples kernels. */
#include "nv_client.h"

enum {
  PROFILER = 0xb2cc,
  BUFFER = 0x3e1,
  BYTES = 0x3e2,
  SIZE = 1 << 16,
  OK = 0,
  BAD_ARGUMENT = 0x1f,
  BAD_STATE = 0x40,
  IN_USE = 0x63,
};

static struct nv_client c;

static int sm_86(void **state) {
  nv_open_machine("sm_86");
  c = nv_connect();
  assert_int_equal(nv_vaspace(&c, 0, VAS, 0), 0);
  struct rm_channel_group_alloc group = {.va_space = VAS, .engine_type = 1};
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, GROUP, 0xa06c, &group), 0);
  assert_int_equal(nv_memory(&c, 0, BUFFER, SIZE, true), 0);
  struct rm_memory_alloc bytes = {.owner = c.root,
                                  .type = 13,
                                  .flags = 0xc101,
                                  .attr = 1u << 25 | 3u << 27 | 1u << 29,
                                  .attr2 = 1u << 22 | 2u << 2 | 1,
                                  .size = 4096,
                                  .alignment = 4096,
                                  .limit = 4095};
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, BYTES, 0x3e, &bytes), 0);
  return 0;
}
static int close_machine(void **state) {
  nv_close_machine();
  return 0;
}

static uint32_t new_profiler(uint32_t handle, uint32_t client, uint32_t context) {
  uint32_t p[2] = {client, context};
  return nv_alloc(c.ctl, c.root, SUBDEVICE, handle, 0xb2cc, p);
}
static uint32_t plain(uint32_t profiler, uint32_t cmd) { return nv_control(c.ctl, c.root, profiler, cmd, NULL, 0); }
static uint32_t reserve_monitors(uint32_t profiler) {
  uint8_t per_context = 0;
  return nv_control(c.ctl, c.root, profiler, 0xb0cc0101, &per_context, 1);
}
static uint32_t new_stream(uint32_t profiler, uint32_t buffer, uint64_t size, uint32_t bytes) {
  struct rm_pma_stream p = {.buffer = buffer, .buffer_size = size, .bytes = bytes, .channel = 99};
  uint32_t status = nv_control(c.ctl, c.root, profiler, 0xb0cc0105, &p, 56);
  if (!status) assert_int_equal(p.channel, 0);
  return status;
}
static uint32_t operate(uint32_t mode, uint32_t n, struct rm_reg_op *op, bool *passed) {
  static struct rm_reg_ops p;
  memset(&p, 0, sizeof p);
  p.count = n, p.mode = mode;
  memcpy(p.ops, op, n * sizeof *op);
  uint32_t status = nv_control(c.ctl, c.root, PROFILER, 0xb0cc010a, &p, 3980);
  memcpy(op, p.ops, n * sizeof *op);
  *passed = p.passed;
  return status;
}

static void context_is_checked(void **state) {
  assert_int_equal(new_profiler(PROFILER, c.root, 0x123), 0x33);
  assert_int_equal(new_profiler(PROFILER, 0x77, GROUP), 0x23);
  assert_int_equal(new_profiler(PROFILER, c.root, BUFFER), 0x33);
  assert_int_equal(new_profiler(PROFILER, 0, 0), OK);
  assert_int_equal(plain(PROFILER, 0xb0cc010b), BAD_ARGUMENT);
  assert_reason("the profiler has no hContextTarget");
}

static void resources_are_exclusive(void **state) {
  assert_int_equal(new_profiler(PROFILER, c.root, GROUP), OK);
  assert_int_equal(new_profiler(PROFILER + 1, c.root, GROUP), OK);
  assert_int_equal(new_stream(PROFILER, BUFFER, SIZE, BUFFER), BAD_ARGUMENT);
  assert_reason("is writable for the process");
  assert_int_equal(new_stream(PROFILER, BUFFER, SIZE + 4096, BYTES), BAD_ARGUMENT);
  assert_int_equal(new_stream(PROFILER, BUFFER, 0, BYTES), BAD_ARGUMENT);
  struct rm_pma_stream odd = {.buffer = BUFFER, .buffer_size = SIZE, .bytes = BYTES, .bytes_offset = 2};
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0105, &odd, 56), BAD_ARGUMENT);
  assert_reason("at 0x2 is not aligned to 4");
  assert_int_equal(new_stream(PROFILER, BUFFER, SIZE, BYTES), OK);
  assert_int_equal(new_stream(PROFILER + 1, BUFFER, SIZE, BYTES), IN_USE);
  assert_int_equal(plain(PROFILER, 0xb0cc0102), BAD_STATE); /* nothing is reserved */
  assert_int_equal(reserve_monitors(PROFILER), OK);
  assert_int_equal(reserve_monitors(PROFILER + 1), IN_USE);
  assert_int_equal(plain(PROFILER, 0xb0cc010b), OK);
  assert_int_equal(plain(PROFILER + 1, 0xb0cc010b), IN_USE);
  assert_int_equal(plain(PROFILER, 0xb0cc0108), BAD_STATE); /* not bound */
  assert_int_equal(plain(PROFILER, 0xb0cc0107), OK);
  assert_int_equal(plain(PROFILER, 0xb0cc0107), BAD_STATE);
  assert_int_equal(plain(PROFILER, 0xb0cc010c), BAD_STATE); /* bound */
  /* Freeing a profiler gives everything back. */
  assert_int_equal(nv_free(c.ctl, c.root, PROFILER), OK);
  assert_int_equal(new_stream(PROFILER + 1, BUFFER, SIZE, BYTES), OK);
  assert_int_equal(reserve_monitors(PROFILER + 1), OK);
  assert_int_equal(plain(PROFILER + 1, 0xb0cc010b), OK);
}

static void make_ready(void) {
  assert_int_equal(new_profiler(PROFILER, c.root, GROUP), OK);
  assert_int_equal(new_stream(PROFILER, BUFFER, SIZE, BYTES), OK);
  assert_int_equal(reserve_monitors(PROFILER), OK);
  assert_int_equal(plain(PROFILER, 0xb0cc010b), OK);
  assert_int_equal(plain(PROFILER, 0xb0cc0107), OK);
}

static void registers_need_reservations(void **state) {
  struct rm_reg_op op = {.op = 1, .offset = 0x24a620, .value = 1, .mask = ~0u};
  struct rm_hs_credits credits = {.count = 1, .credit = {{2, 0, 6}}};
  bool passed;
  assert_int_equal(new_profiler(PROFILER, c.root, GROUP), OK);
  assert_int_equal(operate(1, 1, &op, &passed), BAD_STATE);
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc010e, &credits, 256), BAD_STATE);
  assert_int_equal(plain(PROFILER, 0xb0cc0107), OK);
  assert_int_equal(operate(1, 1, &op, &passed), BAD_STATE);
  assert_reason("the monitors and the PC sampler are not reserved and bound");
}

static void registers_are_allowed_one_by_one(void **state) {
  struct rm_reg_op op[] = {
      {.op = 1, .offset = 0x24a65c, .value = 0x1234, .mask = ~0u},
      {.op = 1, .offset = 0x24a65c + 4 * 14, .value = 1, .mask = ~0u}, /* there are 7 GPCs */
      {.op = 1, .type = 1, .offset = 0x24a620, .value = 1, .mask = ~0u},
      {.op = 1, .offset = 0x180000 + 0x400 + 0x44, .value = 1, .mask = ~0u},
      {.op = 3, .offset = 0x24a65c, .value = 1, .mask = ~0u},
      {.op = 1, .type = 0x20, .offset = 0x24a65c, .value = 1, .mask = ~0u},
      {.op = 1, .offset = 0x180000 + 0x400 + 0x128, .value = 0x700, .mask = 0xff00},
      {.op = 1, .type = 1, .offset = 0x419bdc, .value = 1, .mask = ~0u},
  };
  const uint8_t refused[] = {0, 4, 4, 4, 8, 2, 0, 0};
  bool passed;
  make_ready();
  assert_int_equal(operate(0, 8, op, &passed), 0x37); /* all or none */
  struct rm_reg_op read[] = {{.op = 0, .offset = 0x24a65c}, {.op = 0, .offset = 0x180528}};
  assert_int_equal(operate(1, 2, read, &passed), OK);
  assert_true(passed && read[0].value == 0 && read[1].value == 0);
  assert_int_equal(operate(1, 8, op, &passed), OK);
  assert_false(passed);
  for (int i = 0; i < 8; i++) assert_int_equal(op[i].status, refused[i]);
  assert_int_equal(operate(1, 2, read, &passed), OK);
  assert_true(read[0].value == 0x1234 && read[1].value == 0x700);
  op[6].value = 0x21, op[6].mask = 0xff;
  assert_int_equal(operate(0, 1, &op[6], &passed), OK);
  assert_int_equal(operate(1, 2, read, &passed), OK);
  assert_int_equal(read[1].value, 0x721);
  assert_int_equal(operate(2, 1, op, &passed), BAD_ARGUMENT);
  assert_int_equal(operate(1, 0, op, &passed), BAD_ARGUMENT);
  /* What is unbound loses its values. */
  assert_int_equal(plain(PROFILER, 0xb0cc0108), OK);
  assert_int_equal(plain(PROFILER, 0xb0cc0107), OK);
  assert_int_equal(operate(1, 2, read, &passed), OK);
  assert_true(read[0].value == 0 && read[1].value == 0);
  /* The context is gone. */
  assert_int_equal(nv_free(c.ctl, c.root, GROUP), OK);
  assert_int_equal(operate(1, 2, read, &passed), 0x33);
}

static void credits_name_gpcs(void **state) {
  struct rm_hs_credits p = {.count = 2, .credit = {{2, 6, 6}, {2, 7, 1}}};
  make_ready();
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc010e, &p, 256), OK);
  assert_true(p.status == 2 && p.failed == 1);
  p.credit[1] = (struct rm_hs_credit){2, 0, 7};
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc010e, &p, 256), OK);
  assert_true(p.status == 1 && p.failed == 1);
  p.count = 64;
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc010e, &p, 256), BAD_ARGUMENT);
}

static void the_stream_starts_empty(void **state) {
  struct rm_pma_get_put p = {.update = 1, .wait = 1, .return_put = 1, .available = 5, .put = 5};
  struct rm_power_request power = {.control = 0x545};
  make_ready();
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0109, &p, 48), OK);
  assert_true(!p.available && !p.put && !p.overflow);
  p.consumed = 32;
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0109, &p, 48), BAD_ARGUMENT);
  p.consumed = 0, p.channel = 1;
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0109, &p, 48), BAD_ARGUMENT);
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0301, &power, 12), OK);
  power.control = 3;
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0301, &power, 12), BAD_ARGUMENT);
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0302, &(uint32_t){0xfcf}, 4), OK);
  assert_int_equal(nv_control(c.ctl, c.root, PROFILER, 0xb0cc0302, &(uint32_t){1}, 4), BAD_ARGUMENT);
  /* A descriptor of memory that the process may only read cannot be mapped for writing. */
  int fd = nv_open("/dev/nvidiactl");
  assert_int_equal(nv_map_fd(&c, 0, BYTES, 0, 4096, 0, fd, NULL), 0);
  assert_true(os_map_failed(os->mmap(os, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)));
  os->close(os, fd);
}

#define ON(f) cmocka_unit_test_setup_teardown(f, sm_86, close_machine)
int main(void) {
  const struct CMUnitTest tests[] = {
      ON(context_is_checked),          ON(resources_are_exclusive),
      ON(registers_need_reservations), ON(registers_are_allowed_one_by_one),
      ON(credits_name_gpcs),           ON(the_stream_starts_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
