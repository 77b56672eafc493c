/* The code of traced programs and the addresses of traced instructions. In recordings of real GPUs, where they are
 * present, every instruction has the address and the name that an independent decoder found. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include "../../frontend/files/files.h"
#include "../../frontend/prof/code.h"
#include "../emu/asm.h"
#include "../hcq/sqtt_recordings.h"
#include "../ok.h"

const char *db_error(void);

/* Some recordings contain code in a file that has sections but no ELF header, so it is not opened as ELF. */
static int open_code(struct prof_code *c, const char *file, enum sqtt_layout layout) {
  size_t size;
  uint8_t *bytes = recorded_bytes(file, &size);
  Elf64_Ehdr header;
  Elf64_Shdr section;
  memcpy(&header, bytes, sizeof header);
  int err = 0;
  if (header.e_machine) {
    err = prof_code_elf(c, bytes, size, NULL, layout);
  } else {
    for (unsigned i = 0; i < header.e_shnum; i++) {
      memcpy(&section, bytes + header.e_shoff + i * sizeof section, sizeof section);
      if (section.sh_flags & SHF_EXECINSTR) break;
    }
    err = prof_code_raw(c, bytes + section.sh_offset, section.sh_size, section.sh_addr, layout);
  }
  free(bytes);
  return err;
}

static void name_of(char *name, size_t cap, const char *text, const char *end) {
  static const char *const suffixes[] = {"_e32", "_e64"}; /* LLVM and the listing differ in these */
  snprintf(name, cap, "%.*s", (int)strcspn(text, end), text);
  size_t n = strlen(name);
  for (unsigned i = 0; i < 2; i++)
    if (n > 4 && !strcmp(name + n - 4, suffixes[i])) name[n - 4] = 0;
}

/* Compares the instructions of a trace with its listing, which is in the order of the trace. */
static unsigned compare_insts(const char *file, const struct sqtt_trace *t, const struct prof_code *c) {
  enum { TIME, PACKET, SLOT, ADDRESS, TEXT };
  char row[1024], *cell[RECORDED_COLUMNS], name[80], expected[80];
  FILE *list = recorded_file(file);
  if (!list) return 0;
  assert_non_null(fgets(row, sizeof row, list));
  for (uint32_t i = 0; i < t->ninsts; i++) {
    const struct sqtt_inst *in = &t->insts[i];
    if (!fgets(row, sizeof row, list)) fail_msg("%s has %u instructions, the trace %u", file, i, t->ninsts);
    recorded_split(row, cell);
    const char *text = in->pc == SQTT_NONE ? "?" : c->text[in->pc / 4];
    name_of(name, sizeof name, text, " ");
    name_of(expected, sizeof expected, cell[TEXT], "(");
    if (!strncmp(name, "v_dual_", 7)) strcpy(name, "VOPD"); /* the listing's name of all dual instructions */
    if (in->time != strtoull(cell[TIME], NULL, 10) || strcmp(sqtt_type_name(in->type), cell[PACKET]) != 0 ||
        t->waves[in->wave].slot != strtoull(cell[SLOT], NULL, 10) ||
        c->address + in->pc != strtoull(cell[ADDRESS], NULL, 16) || strcmp(name, expected) != 0)
      fail_msg("%s, instruction %u: time %" PRIu64 ", %s, slot %u, 0x%" PRIx64 " %s; expected %s %s %s %s %s", file, i,
               in->time, sqtt_type_name(in->type), t->waves[in->wave].slot, c->address + in->pc, name, cell[TIME],
               cell[PACKET], cell[SLOT], cell[ADDRESS], cell[TEXT]);
  }
  assert_null(fgets(row, sizeof row, list));
  fclose(list);
  return t->ninsts;
}

/* The list has the instructions of each wave as "slot:number slot:number", in the order of their start. */
static void compare_waves(const char *file, const struct sqtt_trace *t, const char *text) {
  for (uint32_t i = 0; i < t->nwaves; i++) {
    const struct sqtt_wave *w = &t->waves[i];
    char *end;
    if (!w->traced) continue;
    if (strtoul(text, &end, 10) != w->slot || *end != ':') fail_msg("%s: slot %u, expected %s", file, w->slot, text);
    if (strtoul(end + 1, &end, 10) != w->insts) fail_msg("%s: %u instructions, expected %s", file, w->insts, text);
    text = end + strspn(end, " ,;");
  }
  if (*text) fail_msg("%s: no wave %s", file, text);
}

/* Every instruction that a unit executes has a time when it began to. */
static void check_durations(const char *file, const struct sqtt_trace *t, const struct prof_code *c) {
  for (uint32_t i = 0; i < t->ninsts; i++) {
    const struct sqtt_inst *in = &t->insts[i];
    bool executes = in->class == SQTT_CLASS_SALU || in->class == SQTT_CLASS_SMEM || in->class == SQTT_CLASS_VALU ||
                    in->class == SQTT_CLASS_LDS || in->class == SQTT_CLASS_MEMORY;
    if (executes != (in->duration != SQTT_NONE))
      fail_msg("%s: instruction %u, %s: duration %u", file, i, c->text[in->pc / 4], in->duration);
  }
}

static void recorded_addresses(void **state) {
  FILE *f = recorded_summary();
  char line[4096], name[200], *column[RECORDED_COLUMNS];
  unsigned traces = 0, insts = 0, listed = 0;
  while (fgets(line, sizeof line, f)) {
    size_t size;
    struct sqtt_trace t;
    struct prof_code c;
    recorded_split(line, column);
    if (strtol(column[RECORDED_INSTS], NULL, 10) < 0) continue; /* without instructions, or of CDNA */
    bool gfx12 = !strncmp(column[RECORDED_ARCH], "gfx12", 5);
    snprintf(name, sizeof name, "%s/%s/k%s.elf", column[RECORDED_ARCH], column[RECORDED_CAPTURE],
             column[RECORDED_KERN]);
    if (open_code(&c, name, gfx12 ? SQTT_GFX12 : SQTT_GFX11)) fail_msg("%s: %s", name, db_error());
    recorded_name(name, column, "sqtt");
    void *bytes = recorded_bytes(name, &size);
    if (sqtt_decode(&t, bytes, size, &c.code, 1)) fail_msg("%s: %s", name, db_error());
    if (t.out_of_step)
      fail_msg("%s: %u waves do not agree with the code, the first at nibble %" PRIu64 ", 0x%" PRIx64, name,
               t.out_of_step, t.first_out_of_step.offset, c.address + t.first_out_of_step.pc);
    assert_int_equal(t.ninsts, strtoul(column[RECORDED_INSTS], NULL, 10));
    compare_waves(name, &t, column[RECORDED_INSTS_PER_WAVE]);
    check_durations(name, &t, &c);
    recorded_name(name, column, "insts.tsv");
    listed += compare_insts(name, &t, &c);
    insts += t.ninsts, traces++;
    sqtt_free(&t), prof_code_free(&c), free(bytes);
  }
  fclose(f);
  print_message("%u traces, %u instructions, %u with a listing\n", traces, insts, listed);
}

/* ---- code ---- */

/* What a trace needs of instructions of both generations. */
static void kinds_of_instructions(void **state) {
  static const struct {
    const char *text;
    unsigned class, jump;
    bool silent, barrier_wait, indirect;
  } expected[] = {{"s_load_b64 s[0:1], s[0:1], 0x10", SQTT_CLASS_SMEM},
                  {"s_add_u32 s0, s0, 0x12345", SQTT_CLASS_SALU},
                  {"v_lshlrev_b32 v0, 2, v0", SQTT_CLASS_VALU},
                  {"s_delay_alu instid0(VALU_DEP_1)", SQTT_CLASS_IMMEDIATE, .silent = true},
                  {"global_load_b32 v1, v0, s[0:1]", SQTT_CLASS_MEMORY},
                  {"ds_store_b32 v0, v1", SQTT_CLASS_LDS},
                  {"s_cbranch_scc1 5", SQTT_CLASS_BRANCH, .jump = 24},
                  {"s_nop 3", SQTT_CLASS_IMMEDIATE},
                  {"s_setpc_b64 s[0:1]", SQTT_CLASS_BRANCH, .indirect = true},
                  {"s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", SQTT_CLASS_MESSAGE},
                  {"s_endpgm", SQTT_CLASS_END}};
  for (unsigned gfx12 = 0; gfx12 < 2; gfx12++) {
    char text[1024] = "";
    uint8_t bytes[4096];
    struct prof_code c;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) strcat(strcat(text, expected[i].text), "\n");
    strcat(text, gfx12 ? "s_barrier_wait -1\n" : "s_barrier\n");
    size_t size = asm_text(text, gfx12 ? "gfx1200" : "gfx1100", "", bytes, sizeof bytes);
    assert_true(size > 0);
    OK(prof_code_raw(&c, bytes, size, 0x1000, gfx12 ? SQTT_GFX12 : SQTT_GFX11));
    assert_int_equal(c.code.size, size);
    uint32_t at = 0;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++, at += c.code.at[at / 4].bytes) {
      const struct sqtt_code_inst *in = &c.code.at[at / 4];
      if (in->class != expected[i].class || in->jump != (int)expected[i].jump || in->silent != expected[i].silent ||
          in->indirect != expected[i].indirect)
        fail_msg("%s: %s: class %s, jump %d", expected[i].text, c.text[at / 4], sqtt_class_name(in->class), in->jump);
    }
    assert_int_equal(c.code.at[at / 4].class, SQTT_CLASS_BARRIER);
    assert_int_equal(c.code.at[at / 4].barrier_wait, gfx12);
    prof_code_free(&c);
  }
}

static void code_of_a_kernel(void **state) {
  struct mapping m;
  struct prof_code c;
  OK(map_file(KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co", &m));
  OK(prof_code_elf(&c, m.bytes, m.size, "saxpy", SQTT_GFX11));
  assert_non_null(c.text[c.code.entry / 4]);
  prof_code_free(&c);
  OK(prof_code_elf(&c, m.bytes, m.size, NULL, SQTT_GFX11));
  prof_code_free(&c);
  assert_int_equal(prof_code_elf(&c, m.bytes, m.size, "no", SQTT_GFX11), -ENOENT);
  assert_non_null(strstr(db_error(), "no kernel 'no'"));
  prof_code_free(&c);
  assert_int_not_equal(prof_code_elf(&c, m.bytes, 100, NULL, SQTT_GFX11), 0);
  prof_code_free(&c);
  unmap_file(&m);
}

/* The instructions of CDNA have no listing. They agree with the code from its first instruction to the last. */
static void addresses_of_cdna(void **state) {
  FILE *f = recorded_summary();
  char line[4096], name[200], *column[RECORDED_COLUMNS];
  unsigned waves = 0, insts = 0;
  while (fgets(line, sizeof line, f)) {
    size_t size;
    struct sqtt_trace t;
    struct prof_code c;
    recorded_split(line, column);
    if (strcmp(column[RECORDED_ARCH], "gfx950") != 0) continue;
    snprintf(name, sizeof name, "gfx950/%s/k%s.elf", column[RECORDED_CAPTURE], column[RECORDED_KERN]);
    if (open_code(&c, name, SQTT_CDNA)) fail_msg("%s: %s", name, db_error());
    recorded_name(name, column, "sqtt");
    void *bytes = recorded_bytes(name, &size);
    if (sqtt_decode(&t, bytes, size, &c.code, 1)) fail_msg("%s: %s", name, db_error());
    if (t.out_of_step)
      fail_msg("%s: the first wave that does not agree with the code does so at nibble %" PRIu64 ", 0x%" PRIx64, name,
               t.first_out_of_step.offset, c.address + t.first_out_of_step.pc);
    for (uint32_t i = 0; i < t.nwaves; i++) {
      const struct sqtt_wave *w = &t.waves[i];
      if (!w->insts) continue;
      assert_string_equal(c.text[t.insts[w->last].pc / 4], "s_endpgm");
      waves++, insts += w->insts;
    }
    sqtt_free(&t), prof_code_free(&c), free(bytes);
  }
  fclose(f);
  print_message("%u waves, %u instructions\n", waves, insts);
  assert_true(waves > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_of_instructions), cmocka_unit_test(code_of_a_kernel),
                                     cmocka_unit_test(recorded_addresses), cmocka_unit_test(addresses_of_cdna)};
  return cmocka_run_group_tests_name("prof", tests, NULL, NULL);
}
