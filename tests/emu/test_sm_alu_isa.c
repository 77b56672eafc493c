/* The fidelity table of SASS: it is complete and agrees with the builders. */
#include "emu/nv/exec/sass_isa.h"
#include "sm_one.h"

static void reports_each_row(void **state) {
  char *text = sass_isa_report("sm_90"), *old = sass_isa_report("sm_80");
  assert_non_null(text);
  assert_non_null(strstr(text, "\nMUFU             approximate: "));
  assert_non_null(strstr(text, "\nIADD3            exact\n"));
  assert_non_null(strstr(text, "\nTEX              missing: graphics\n"));
  assert_non_null(strstr(text, "\nVIMNMX           exact\n"));
  assert_non_null(strstr(text, "\nresults only: "));
  assert_non_null(strstr(text, "a wait runs correctly here"));
  assert_non_null(old);
  assert_null(strstr(old, "\nVIMNMX "));
  free(text), free(old);
  assert_null(sass_isa_report("sm_70"));
}
/* Operations marked as missing are rejected. */
static void refused(void **state) {
  struct one *o = one_new();
  assert_true(sm_executes(SASS_IADD3));
  assert_false(sm_executes(SASS_FSWZADD));
  struct word w = word(0x022, 4);
  put(&w, 16, 8, RD), put(&w, 24, 8, RA), put(&w, 64, 8, RB);
  assert_false(run_word(o, w));
  one_free(o);
}
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reports_each_row), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
