/* Pushbuffers of NVIDIA channels, word by word. Expected words are taken from NVIDIA's open-gpu-doc class headers
 * (clc56f.h, clcbc0.h, clc8b5.h) and not from the encoder's tables. */
#include "words_test.h"
#include <string.h>
#include "hcq/nv/pushbuffer.h"

/* The same, then clears the buffer. */
#define TOOK(...)                                                                                                      \
  do {                                                                                                                 \
    EXPECT(__VA_ARGS__);                                                                                               \
    words_reset(&w);                                                                                                   \
  } while (0)

/* INC is opcode 1 in bits 31:29, the count in 28:16, the subchannel in 15:13, the address's dword in 11:0. */
static void headers(void **state) {
  uint32_t *p = push_methods(&w, 1, 0x2b4, 1);
  p[0] = 0x12345678;
  assert_int_equal(w.packets, 1);
  TOOK(0x200120ad, 0x12345678);
  push_method(&w, 4, 0x300, 0x182);
  TOOK(0x200180c0, 0x182);
  push_immediate(&w, 1, 0x1698, 0x1011); /* IMMD is opcode 4 */
  TOOK(0x901125a6);
  push_pair(&w, 1, 0x790, 0x12345678abc00000);
  TOOK(0x200221e4, 0x12345678, 0xabc00000);
  push_set_object(&w, 1, 0xcbc0);
  TOOK(0x20012000, 0xcbc0);
  push_set_object(&w, 4, 0xc8b5);
  TOOK(0x20018000, 0xc8b5);
}

/* SEM_ADDR_LO 0x5c .. SEM_EXECUTE 0x6c. */
static void semaphores(void **state) {
  /* ACQ_CIRC_GEQ 3, ACQUIRE_SWITCH_TSG bit 12, 64-bit payload bit 24 */
  push_acquire(&w, 0x000000ab12345678, 77);
  TOOK(0x20050017, 0x12345678, 0xab, 77, 0, 0x01001003);
  /* RELEASE 1, RELEASE_WFI bit 20, 64-bit payload */
  push_release(&w, 0x000000ab12345678, 0xfffffffe);
  TOOK(0x20050017, 0x12345678, 0xab, 0xfffffffe, 0, 0x01100001);
  /* and RELEASE_TIMESTAMP bit 25 */
  push_release_stamped(&w, 0x01ffffff00000020, 0x500000004);
  TOOK(0x20050017, 0x20, 0x01ffffff, 4, 5, 0x03100001);
  push_wait_for_idle(&w); /* WFI 0x78, scope 0 */
  TOOK(0x8000001e);
}

static void compute(void **state) {
  push_shader_windows(&w, 0x0000000400000000, 0x00007ff700000000);
  TOOK(0x200220a8, 0x4, 0x0, 0x200221ec, 0x7ff7, 0x0);
  push_local_memory(&w, 0x0000002345600000, 0x160000);
  TOOK(0x200221e4, 0x23, 0x45600000, 0x200320b9, 0x0, 0x160000, 0xff);
  push_invalidate_shader_caches(&w); /* INSTRUCTION bit 0, GLOBAL_DATA bit 4, CONSTANT bit 12 */
  TOOK(0x901125a6);
  push_launch(&w, 0x000000fedcba9800); /* SEND_PCAS_A: address >> 8; PCAS_ACTION 9: PREFETCH_SCHEDULE */
  TOOK(0x200120ad, 0xfedcba98, 0x800920b0);
}

/* SET_INLINE_QMD_ADDRESS_A (bits 48:40, and 384 bytes in bit 30) and _B, then LOAD_INLINE_QMD_DATA. */
static void inline_launch(void **state) {
  uint32_t qmd[96];
  for (uint32_t i = 0; i < 96; i++) qmd[i] = 0x1000 + i;
  push_launch_inline(&w, 0x0001234567890a00, qmd, 96);
  assert_int_equal(w.n, 99);
  assert_int_equal(w.w[0], 0x206220c6);
  assert_int_equal(w.w[1], 1 << 30 | 0x123);
  assert_int_equal(w.w[2], 0x4567890a);
  assert_memory_equal(w.w + 3, qmd, sizeof qmd);
  words_reset(&w);
  push_launch_inline(&w, 0x0000004567890a00, qmd, 64);
  assert_int_equal(w.n, 67);
  assert_int_equal(w.w[0], 0x204220c6);
  assert_int_equal(w.w[1], 0);
}

static void copy(void **state) {
  /* LAUNCH_DMA: NON_PIPELINED 2, FLUSH_ENABLE bit 2, both layouts PITCH bits 7 and 8 */
  push_copy(&w, 0x0000001122334455, 0x0000009988776655, 1000);
  TOOK(0x20048100, 0x99, 0x88776655, 0x11, 0x22334455, 0x20018106, 1000, 0x200180c0, 0x186);
  push_copy(&w, 0x1000, 0x2000, 0);
  assert_int_equal(w.n, 0);
}

/* Pieces of 2 GiB; only the first one waits for earlier copies (PIPELINED 1). */
static void long_copies(void **state) {
  uint64_t n = 0x80000000ull * 2 + 12;
  push_copy(&w, 0x00000010fffff000, 0x0000002000000000, n);
  TOOK(0x20048100, 0x20, 0x0, 0x10, 0xfffff000, 0x20018106, 0x80000000, 0x200180c0, 0x186,        /**/
       0x20048100, 0x20, 0x80000000, 0x11, 0x7ffff000, 0x20018106, 0x80000000, 0x200180c0, 0x185, /**/
       0x20048100, 0x21, 0x0, 0x11, 0xfffff000, 0x20018106, 12, 0x200180c0, 0x185);
  push_copy(&w, 0x1000, 0x200000000, 0x80000000);
  assert_int_equal(w.n, 9);
}

/* Address bits 31:2 in dword 0, bits 39:32 in bits 7:0 of dword 1, the length in its bits 30:10. */
static void gp_entries(void **state) {
  assert_int_equal(push_gp_entry(0xab12345678, 5), 0x000014ab12345678);
  assert_int_equal(push_gp_entry(0xfffffffffc, 0x1fffff), 0x7ffffcfffffffffc);
  assert_int_equal(push_gp_entry(0x1000, 1), 0x0000040000001000);
}

/* ---- the table ---- */

static const struct nv_method *find(uint32_t object_class, uint32_t address, uint32_t *bits) {
  enum nv_method_set set = NV_SET_HOST;
  unsigned group = 0;
  assert_true(nv_class_group(object_class, &set, &group));
  const struct nv_method *m = nv_method_find(set, group, address), *index[4096];
  nv_method_index(set, group, index);
  if (!(address & 3)) assert_ptr_equal(m, index[address / 4]);
  *bits = m ? m->bits[group] : 0;
  return m;
}
static void method(uint32_t object_class, uint32_t address, const char *name, uint32_t want) {
  uint32_t bits;
  const struct nv_method *m = find(object_class, address, &bits);
  if (!m) fail_msg("class %x has no method 0x%x", object_class, address);
  assert_string_equal(m->name, name);
  if (bits != want) fail_msg("%x %s: bits 0x%x, expected 0x%x", object_class, name, bits, want);
}
static void no_method(uint32_t object_class, uint32_t address) {
  uint32_t bits;
  const struct nv_method *m = find(object_class, address, &bits);
  if (m) fail_msg("class %x: 0x%x is %s", object_class, address, m->name);
}

static void methods_by_class(void **state) {
  method(0xc7c0, 0x790, "SET_SHADER_LOCAL_MEMORY_A", 0x1ffff);
  method(0xcbc0, 0x790, "SET_SHADER_LOCAL_MEMORY_A", 0x1ffffff);
  method(0xc6c0, 0x2c0, "SEND_SIGNALING_PCAS2_B", 0xf);
  method(0xcec0, 0x2c0, "SEND_SIGNALING_PCAS2_B", 0xffff0f);
  method(0xc9c0, 0x318, "SET_INLINE_QMD_ADDRESS_A", ~0u);
  method(0xcbc0, 0x318, "SET_INLINE_QMD_ADDRESS_A", 0x400001ff);
  method(0xcbc0, 0x324, "LOAD_INLINE_QMD_DATA", ~0u); /* an array: its second element */
  method(0xcbc0, 0x49c, "LOAD_INLINE_QMD_DATA_64", ~0u);
  no_method(0xc9c0, 0x49c); /* a QMD of 256 bytes */
  no_method(0xcbc0, 0x4a0);
  no_method(0xc6c0, 0x168);
  method(0xc7c0, 0x168, "REPORT_SEMAPHORE_EXECUTE", 0x7fff);
  method(0xcbc0, 0x194, "SET_DST_BLOCK_SIZE", 0xfff);
  no_method(0xcdc0, 0x194);
  no_method(0xcdc0, 0x20c);
  method(0xcec0, 0x20c, "UPDATE_ALL_COMPUTE_CONTROL", 0x11);
  method(0xcbc0, 0x1b0, "LAUNCH_DMA", 0xf37f);
  no_method(0xcbc0, 0x1b1);
  no_method(0xcbc0, 0x3ffc);
  method(0xc6b5, 0x400, "OFFSET_IN_UPPER", 0x1ffff);
  method(0xc8b5, 0x400, "OFFSET_IN_UPPER", 0x1ffffff);
  no_method(0xc6b5, 0x24c);
  method(0xc7b5, 0x24c, "SET_SEMAPHORE_PAYLOAD_UPPER", ~0u);
  method(0xc8b5, 0x300, "LAUNCH_DMA", 0x0effffff);
  method(0xc9b5, 0x300, "LAUNCH_DMA", 0x0efff7ff); /* no FORCE_RMWDISABLE */
  method(0xc56f, 0x60, "SEM_ADDR_HI", 0xff);
  method(0xc86f, 0x60, "SEM_ADDR_HI", 0x1ffffff);
  method(0xc56f, 0x1c, "SEMAPHORED", 0xf910101f);
  no_method(0xc86f, 0x1c);
  method(0xc86f, 0x6c, "SEM_EXECUTE", 0xfb101007);
  method(0xca6f, 0x6c, "SEM_EXECUTE", 0xfb141007);
}

/* No two methods of a class have the same address, and each named field is inside the bits that some class defines. */
static void methods_do_not_overlap(void **state) {
  size_t n;
  const struct nv_method *m = nv_methods(&n);
  assert_true(n > 200);
  for (size_t i = 0; i < n; i++) {
    assert_true(m[i].count && !(m[i].address & 3) && m[i].address + 4u * m[i].count <= 0x4000);
    for (size_t j = i + 1; j < n; j++)
      for (unsigned g = 0; g < 5; g++)
        if (m[i].set == m[j].set && m[i].bits[g] && m[j].bits[g] && m[i].address < m[j].address + 4 * m[j].count &&
            m[j].address < m[i].address + 4 * m[i].count)
          fail_msg("%s and %s", m[i].name, m[j].name);
  }
  static const struct {
    enum nv_method_set set;
    uint32_t method, mask;
    const char *name;
  } fields[] = {
#define NV_METHOD(set, name, address, count, bits)
#define NV_FIELD(set, method, field, hi, lo) {NV_SET_##set, NV_##set##_##method, BITS_SPAN(hi, lo), #method "_" #field},
#include "hcq/nv/methods.def"
#undef NV_METHOD
#undef NV_FIELD
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    bool inside = false;
    for (unsigned g = 0; g < 5 && !inside; g++) {
      const struct nv_method *found = nv_method_find(fields[i].set, g, fields[i].method);
      inside = found && !(fields[i].mask & ~found->bits[g]);
    }
    if (!inside) fail_msg("%s", fields[i].name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(headers, reset, release),
      cmocka_unit_test_setup_teardown(semaphores, reset, release),
      cmocka_unit_test_setup_teardown(compute, reset, release),
      cmocka_unit_test_setup_teardown(inline_launch, reset, release),
      cmocka_unit_test_setup_teardown(copy, reset, release),
      cmocka_unit_test_setup_teardown(long_copies, reset, release),
      cmocka_unit_test(gp_entries),
      cmocka_unit_test(methods_by_class),
      cmocka_unit_test(methods_do_not_overlap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
