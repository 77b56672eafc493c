/* PM4 packets, word by word. The expected words and field positions are taken from the Linux amdgpu driver's soc15d.h
 * and nvd.h, its gc_11_0_0 register headers and AMD's PAL headers, not from the encoder's tables. */
#include "words_test.h"
#include <string.h>
#include "hcq/amd/pm4.h"

static void header_fields(unsigned opcode, unsigned payload) {
  assert_int_equal(field(w.w[0], 31, 30), 3);           /* type 3 */
  assert_int_equal(field(w.w[0], 29, 16), payload - 1); /* count */
  assert_int_equal(field(w.w[0], 15, 8), opcode);
  assert_int_equal(field(w.w[0], 7, 0), 0);
  assert_int_equal(w.n, payload + 1);
  assert_int_equal(w.packets, 1);
}

static void set_sh_regs(void **state) {
  pm4_set_sh_regs(&w, 0x2e40, (uint32_t[]){0x11, 0x22, 0x33}, 3);
  header_fields(0x76, 4);
  EXPECT(0xc0037600, 0x240, 0x11, 0x22, 0x33);
  words_reset(&w);
  pm4_set_sh_reg(&w, 0x2e12, 0xabcd);
  EXPECT(0xc0017600, 0x212, 0xabcd);
}

static void acquire_mem(void **state) {
  pm4_acquire_mem(&w);
  header_fields(0x58, 7);
  EXPECT(0xc0065800, 0, 0xffffffff, 0xff, 0, 0, 0, 0xc3f1);
  uint32_t gcr = w.w[7];
  assert_int_equal(field(gcr, 1, 0), 1);   /* GLI_INV: instruction cache, all */
  assert_int_equal(field(gcr, 3, 2), 0);   /* GL1_RANGE: all */
  assert_int_equal(field(gcr, 7, 6), 3);   /* GLK: scalar cache, write back and invalidate */
  assert_int_equal(field(gcr, 8, 8), 1);   /* GLV_INV: vector L0 */
  assert_int_equal(field(gcr, 9, 9), 1);   /* GL1_INV */
  assert_int_equal(field(gcr, 13, 13), 0); /* GL2_DISCARD would lose data */
  assert_int_equal(field(gcr, 15, 14), 3); /* GL2: write back and invalidate */
  assert_int_equal(field(gcr, 31, 16), 0); /* SEQ parallel, virtual addresses */
}

static void cs_partial_flush(void **state) {
  pm4_cs_partial_flush(&w);
  header_fields(0x46, 1);
  EXPECT(0xc0004600, 0x407); /* event 7, index 4 */
}

static void release_mem_signal(void **state) {
  pm4_release_mem(&w, &(struct pm4_release){
                          .address = 0x7f1234567888, .value = 0x123456789abcdef0, .data = PM4_DATA_64, .flush = true});
  header_fields(0x49, 7);
  EXPECT(0xc0064900, 0x0070f514, 0x40000000, 0x34567888, 0x7f12, 0x9abcdef0, 0x12345678, 0);
  uint32_t d1 = w.w[1];
  assert_int_equal(field(d1, 5, 0), 20);      /* CACHE_FLUSH_AND_INV_TS_EVENT */
  assert_int_equal(field(d1, 11, 8), 5);      /* end of pipe */
  assert_int_equal(field(d1, 14, 14), 1);     /* GLV_INV */
  assert_int_equal(field(d1, 15, 15), 1);     /* GL1_INV */
  assert_int_equal(field(d1, 19, 19), 0);     /* GL2_DISCARD */
  assert_int_equal(field(d1, 20, 20), 1);     /* GL2_INV */
  assert_int_equal(field(d1, 21, 21), 1);     /* GL2_WB */
  assert_int_equal(field(d1, 23, 22), 1);     /* SEQ forward */
  assert_int_equal(field(w.w[2], 17, 16), 0); /* DST_SEL memory */
  assert_int_equal(field(w.w[2], 26, 24), 0); /* no interrupt */
  assert_int_equal(field(w.w[2], 31, 29), 2); /* 64-bit data */
}

static void release_mem_interrupt(void **state) {
  pm4_release_mem(&w, &(struct pm4_release){.address = 0x1000,
                                            .value = 0xdeadbeef00000007,
                                            .data = PM4_DATA_32,
                                            .interrupt = PM4_INT_AFTER_WRITE,
                                            .event_id = 77});
  EXPECT(0xc0064900, 0x514, 0x22000000, 0x1000, 0, 7, 0, 77);
  assert_int_equal(field(w.w[2], 26, 24), 2); /* interrupt after write confirm */
  assert_int_equal(field(w.w[2], 31, 29), 1); /* low 32 bits */
}

static void release_mem_timestamp(void **state) {
  pm4_release_mem(&w, &(struct pm4_release){.address = 0x7fff00000010, .value = 5, .data = PM4_DATA_GPU_CLOCK});
  EXPECT(0xc0064900, 0x514, 0x60000000, 0x10, 0x7fff, 0, 0, 0);
}

static void waits(void **state) {
  pm4_wait_mem64(&w, 0x123400000008, 0x500000006);
  header_fields(0x93, 8);
  EXPECT(0xc0079300, 0x15, 8, 0x1234, 6, 5, 0xffffffff, 0xffffffff, 4);
  assert_int_equal(field(w.w[1], 2, 0), 5); /* >= */
  assert_int_equal(field(w.w[1], 5, 4), 1); /* memory */
  words_reset(&w);
  pm4_wait_mem32(&w, 0x123400000008, 9);
  header_fields(0x3c, 6);
  EXPECT(0xc0053c00, 0x15, 8, 0x1234, 9, 0xffffffff, 4);
  words_reset(&w);
  pm4_hdp_flush(&w);
  EXPECT(0xc0053c00, 0x45, 0xe26, 0xe27, 0xffffffff, 0xffffffff, 4);
  assert_int_equal(field(w.w[1], 7, 6), 1); /* write, then wait */
}

static void dispatch(void **state) {
  const uint32_t user[] = {0xaaaa0000, 0x7f00};
  pm4_dispatch(&w, &(struct pm4_dispatch){.entry = 0x7fa512345600,
                                          .rsrc1 = 0x60af0100,
                                          .rsrc2 = 0x99d,
                                          .rsrc3 = 0x30,
                                          .lds_bytes = 513,
                                          .scratch_base = 0x7f8800001000,
                                          .scratch_waves = 1536,
                                          .scratch_wave_bytes = 5632,
                                          .user_data = user,
                                          .nuser = 2,
                                          .groups = {10, 11, 12},
                                          .threads = {32, 4, 2},
                                          .wave32 = true});
  EXPECT(0xc00a7600, 0x204, 0, 0, 0, 32, 4, 2, 0, 0, 0xa5123456,
         0x7f, /* START, NUM_THREAD, STAT, COUNT, PGM: address / 256 */
         0xc0047600, 0x210, 0x88000010, 0x7f, 0x60af0100,
         0x1099d,                               /* scratch base / 256, RSRC1, RSRC2 with 2 x 512 bytes of LDS */
         0xc0017600, 0x215, 0,                  /* RESOURCE_LIMITS */
         0xc0017600, 0x218, 0x16600,            /* TMPRING_SIZE: 22 x 256 bytes, 1536 waves */
         0xc0037600, 0x21b, 0, 0, 0,            /* RESTART */
         0xc0017600, 0x228, 0x30,               /* RSRC3 */
         0xc0027600, 0x240, 0xaaaa0000, 0x7f00, /* USER_DATA */
         0xc0031500, 10, 11, 12, 0x8005);
  assert_int_equal(w.packets, 8);
  assert_int_equal(field(w.w[17], 23, 15), 2);   /* LDS_SIZE */
  assert_int_equal(field(w.w[17], 5, 1), 14);    /* USER_SGPR unchanged */
  assert_int_equal(field(w.w[23], 11, 0), 1536); /* WAVES */
  assert_int_equal(field(w.w[23], 26, 12), 22);  /* WAVESIZE */
  uint32_t initiator = w.w[w.n - 1];
  assert_int_equal(field(initiator, 0, 0), 1);   /* COMPUTE_SHADER_EN */
  assert_int_equal(field(initiator, 1, 1), 0);   /* PARTIAL_TG_EN */
  assert_int_equal(field(initiator, 2, 2), 1);   /* FORCE_START_AT_000 */
  assert_int_equal(field(initiator, 5, 5), 0);   /* dimensions are workgroups */
  assert_int_equal(field(initiator, 15, 15), 1); /* CS_W32_EN */

  words_reset(&w);
  pm4_dispatch(&w, &(struct pm4_dispatch){.entry = 0x100, .groups = {1, 1, 1}, .threads = {64, 1, 1}});
  assert_int_equal(w.packets, 7); /* no user data, no packet for it */
  assert_int_equal(w.w[w.n - 1], 5);
}

static void indirect_buffers(void **state) {
  pm4_indirect_buffer(&w, 0x7f0000001000, 0x12345);
  header_fields(0x3f, 3);
  EXPECT(0xc0023f00, 0x1000, 0x7f00, 0x812345);
  words_reset(&w);
  pm4_chain(&w, 0x7f0000001000, 16);
  EXPECT(0xc0023f00, 0x1000, 0x7f00, 0x900010);
}

static void data_packets(void **state) {
  pm4_write_data(&w, 0x7f0000001000, (uint32_t[]){1, 2}, 2);
  header_fields(0x37, 5);
  EXPECT(0xc0043700, 0x100500, 0x1000, 0x7f00, 1, 2);
  words_reset(&w);
  pm4_copy_data(&w, PM4_COPY_GPU_CLOCK, 0, 0x7f0000001000, true);
  header_fields(0x40, 5);
  EXPECT(0xc0044000, 0x110209, 0, 0, 0x1000, 0x7f00);
  words_reset(&w);
  pm4_copy_data(&w, PM4_COPY_PERF, 0xd200, 0x7f0000001000, false);
  EXPECT(0xc0044000, 0x100204, 0xd200, 0, 0x1000, 0x7f00);
}

static void nops(void **state) {
  pm4_nop(&w, 1);
  EXPECT(0xffff1000);
  words_reset(&w);
  pm4_nop(&w, 3);
  EXPECT(0xc0011000, 0, 0);
  words_reset(&w);
  pm4_nop(&w, 0x4001);
  assert_int_equal(w.n, 0x4001);
  size_t at = 0;
  while (at < w.n) {
    assert_int_equal(field(w.w[at], 15, 8), 0x10);
    uint32_t count = field(w.w[at], 29, 16);
    at += count == 0x3fff ? 1 : count + 2;
  }
  assert_int_equal(at, w.n);
}

/* Linux: gc_11_0_0_offset.h gives offsets in segment 0 of GC, which begins at dword 0x1260; gc_11_0_0_sh_mask.h the
 * masks. */
static void registers(void **state) {
  const struct {
    const char *name;
    uint32_t offset, mask;
  } rows[] = {
      {"COMPUTE_DISPATCH_INITIATOR", 0x1ba0, 0x0003ec7f},
      {"COMPUTE_START_X", 0x1ba4, 0xffffffff},
      {"COMPUTE_NUM_THREAD_X", 0x1ba7, 0xffffffff},
      {"COMPUTE_PGM_LO", 0x1bac, 0xffffffff},
      {"COMPUTE_PGM_HI", 0x1bad, 0xff},
      {"COMPUTE_DISPATCH_SCRATCH_BASE_LO", 0x1bb0, 0xffffffff},
      {"COMPUTE_PGM_RSRC1", 0x1bb2, 0xe5bfffff},
      {"COMPUTE_PGM_RSRC2", 0x1bb3, 0x7fffffff},
      {"COMPUTE_RESOURCE_LIMITS", 0x1bb5, 0x07fff3ff},
      {"COMPUTE_TMPRING_SIZE", 0x1bb8, 0x07ffffff},
      {"COMPUTE_RESTART_X", 0x1bbb, 0xffffffff},
      {"COMPUTE_PGM_RSRC3", 0x1bc8, 0x80000fff},
      {"COMPUTE_USER_DATA_0", 0x1be0, 0xffffffff},
      {"COMPUTE_USER_DATA_15", 0x1bef, 0xffffffff},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t address = rows[i].offset + 0x1260;
    const char *name = gfx11_register_name(address);
    if (!name) fail_msg("no register at 0x%x", address);
    assert_string_equal(name, rows[i].name);
    if (gfx11_register_bits(address) != rows[i].mask)
      fail_msg("%s has bits 0x%x, expected 0x%x", name, gfx11_register_bits(address), rows[i].mask);
  }
  assert_null(gfx11_register_name(0x2e4f + 1));
  assert_int_equal(gfx11_register_bits(0x1234), 0);
}

/* Everything that the encoders write is inside the fields and lengths of the table that readers use. */
static void encoders_stay_in_fields(void **state) {
  pm4_acquire_mem(&w);
  pm4_cs_partial_flush(&w);
  pm4_release_mem(&w, &(struct pm4_release){.address = ~7ull,
                                            .value = ~0ull,
                                            .data = PM4_DATA_64,
                                            .interrupt = PM4_INT_AFTER_WRITE,
                                            .event_id = ~0u,
                                            .flush = true});
  pm4_wait_mem64(&w, ~7ull, ~0ull);
  pm4_wait_mem32(&w, ~3ull, ~0u);
  pm4_hdp_flush(&w);
  pm4_indirect_buffer(&w, ~3ull, 0xfffff);
  pm4_chain(&w, ~3ull, 0xfffff);
  pm4_write_data(&w, ~3ull, (uint32_t[]){~0u}, 1);
  pm4_copy_data(&w, PM4_COPY_GPU_CLOCK, 0, ~7ull, true);
  pm4_dispatch(&w, &(struct pm4_dispatch){.entry = 0xffffffffff00,
                                          .rsrc1 = 0x60af0100,
                                          .rsrc2 = 0x99d,
                                          .lds_bytes = 65536,
                                          .scratch_base = 0xffffffffff00,
                                          .scratch_waves = 0xfff,
                                          .scratch_wave_bytes = 0x7fff00,
                                          .groups = {~0u, ~0u, ~0u},
                                          .threads = {1024, 1024, 1024},
                                          .wave32 = true});
  unsigned packets = 0;
  for (size_t at = 0; at < w.n; packets++) {
    unsigned opcode = field(w.w[at], 15, 8), payload = field(w.w[at], 29, 16) + 1;
    struct pm4_packet_info info = pm4_packet_info(opcode);
    if (!info.name) fail_msg("opcode 0x%x is not in the table", opcode);
    assert_in_range(payload, info.least, info.most);
    for (unsigned d = 1; d <= payload; d++)
      if (w.w[at + d] & ~pm4_packet_bits(opcode, d))
        fail_msg("%s dword %u: 0x%x sets reserved bits", info.name, d, w.w[at + d]);
    if (opcode == 0x76)
      for (unsigned d = 2; d <= payload; d++) {
        uint32_t reg = w.w[at + 1] + 0x2c00 + d - 2;
        if (w.w[at + d] & ~gfx11_register_bits(reg))
          fail_msg("register 0x%x: 0x%x sets reserved bits", reg, w.w[at + d]);
      }
    at += payload + 1;
  }
  assert_int_equal(packets, w.packets);
}

static void out_of_memory_is_sticky(void **state) {
  struct words b = {.cap = SIZE_MAX / 4 - 1, .n = SIZE_MAX / 4 - 1};
  pm4_acquire_mem(&b);
  assert_true(b.failed);
  size_t n = b.n;
  pm4_cs_partial_flush(&b);
  assert_int_equal(b.n, n);
  words_reset(&w);
  for (int i = 0; i < 10000; i++) pm4_set_sh_reg(&w, 0x2e40, (uint32_t)i);
  assert_false(w.failed);
  assert_int_equal(w.n, 30000);
  assert_int_equal(w.w[29999], 9999);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(set_sh_regs, reset),
      cmocka_unit_test_setup(acquire_mem, reset),
      cmocka_unit_test_setup(cs_partial_flush, reset),
      cmocka_unit_test_setup(release_mem_signal, reset),
      cmocka_unit_test_setup(release_mem_interrupt, reset),
      cmocka_unit_test_setup(release_mem_timestamp, reset),
      cmocka_unit_test_setup(waits, reset),
      cmocka_unit_test_setup(dispatch, reset),
      cmocka_unit_test_setup(indirect_buffers, reset),
      cmocka_unit_test_setup(data_packets, reset),
      cmocka_unit_test_setup(nops, reset),
      cmocka_unit_test_setup(registers, reset),
      cmocka_unit_test_setup(encoders_stay_in_fields, reset),
      cmocka_unit_test_setup(out_of_memory_is_sticky, reset),
  };
  return cmocka_run_group_tests_name("pm4", tests, NULL, release);
}
