/* doorbell prof --html from outside: the page is one file that needs nothing else, its data are complete, and texts of
 * a record cannot become markup. tests/page runs the page in a browser. */
#include "command.h"
#include <ctype.h>
#include <zlib.h>

#define EVIL "</script><img src=x onerror=alert(1)>"

static char *page; /* the file's text */

static void read_page(const char *name) {
  char path[96];
  size_t n = 0;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  free(page);
  page = NULL;
  assert_true(getdelim(&page, &n, 0, f) > 0);
  fclose(f);
}

/* ---- the data ---- */

static int digit_of(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = memchr(digits, c, 64);
  return at ? (int)(at - digits) : -1;
}

static size_t decode_base64(const char *text, size_t n, uint8_t *bytes) {
  uint32_t word = 0;
  size_t size = 0;
  unsigned bits = 0;
  for (size_t i = 0; i < n && digit_of(text[i]) >= 0; i++) {
    word = word << 6 | (uint32_t)digit_of(text[i]);
    bits += 6;
    if (bits >= 8) bytes[size++] = (uint8_t)(word >> (bits -= 8));
  }
  return size;
}

/* The data of the page. Free them with json_decref. */
static json_t *read_data(void) {
  static const char head[] = "<script id=\"data\" type=\"application/octet-stream\">";
  enum { MOST = 8 << 20 };
  const char *text = strstr(page, head);
  assert_non_null(text);
  text += strlen(head);
  size_t n = strcspn(text, "<");
  uint8_t *compressed = malloc(n), *plain = malloc(MOST);
  uLongf size = MOST;
  json_error_t error;
  assert_int_equal(uncompress(plain, &size, compressed, decode_base64(text, n, compressed)), Z_OK);
  json_t *data = json_loadb((const char *)plain, size, 0, &error);
  if (!data) fail_msg("no JSON: %s", error.text);
  free(compressed);
  free(plain);
  return data;
}

/* The value at a path of keys and indices. */
static const json_t *at(const json_t *v, const char *path) {
  for (char key[64]; v && *path; path += strspn(path, ".")) {
    size_t n = strcspn(path, ".");
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    v = isdigit((unsigned char)*key) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
    path += n;
  }
  if (!v) fail_msg("the data have no such value");
  return v;
}
static long long integer_at(const json_t *v, const char *path) { return json_integer_value(at(v, path)); }
static const char *text_at(const json_t *v, const char *path) { return json_string_value(at(v, path)); }

/* ---- records ---- */

#define PROCESS                                                                                                        \
  "{\"type\":\"process\",\"version\":1,\"pid\":7,\"rank\":-1,\"pass\":0,\"begin_ns\":1000,\"command\":[\"" EVIL "\"]}" \
  "\n"
#define DEVICE "{\"type\":\"device\",\"id\":0,\"name\":\"CPU\",\"arch\":\"gfx1100\",\"description\":\"" EVIL "\"}\n"
#define KERNEL                                                                                                         \
  "{\"type\":\"kernel\",\"id\":0,\"device\":0,\"name\":\"" EVIL "\",\"grid\":[1,1,1],\"block\":[64,1,1],"              \
  "\"registers\":32,\"local_bytes\":0,\"private_bytes\":0,\"wave\":32}\n"
#define CALL(begin, end) "{\"type\":\"call\",\"kernel\":0,\"queue\":2,\"begin_ns\":" #begin ",\"end_ns\":" #end "}\n"
#define COPY             "{\"type\":\"copy\",\"device\":0,\"bytes\":64,\"queue\":1,\"begin_ns\":1200,\"end_ns\":1260}\n"
#define HOST                                                                                                           \
  "{\"type\":\"host\",\"work\":\"compile\",\"thread\":9,\"begin_ns\":1100,\"end_ns\":1150,\"name\":\"" EVIL "\"}\n"
#define CODE                                                                                                           \
  "{\"type\":\"code\",\"device\":0,\"name\":\"" EVIL "\",\"texts\":{\"plan\":\"upcast a:4\",\"c\":\"int " EVIL "\"}}"  \
  "\n"
#define LINES                                                                                                          \
  "{\"type\":\"lines\",\"device\":0,\"name\":\"" EVIL "\",\"source\":\"thread trace\",\"columns\":[\"count\"],"        \
  "\"rows\":[[16,3,\"s_nop " EVIL "\"]]}\n"
#define SCHEDULE                                                                                                       \
  "{\"type\":\"schedule\",\"buffers\":[\"f32[4]\"],\"items\":[{\"device\":\"CPU\",\"name\":\"k\",\"writes\":[0],"      \
  "\"reads\":[],\"why\":[\"it is an output\"]}]}\n"
#define END "{\"type\":\"end\",\"at_ns\":9000}\n"

static void make_page(void) {
  EXPECT(0, "version; mkdir -p evil");
  write_text("evil/7.prof", PROCESS DEVICE KERNEL CALL(1500, 1700) CALL(1400, 1450) COPY HOST CODE LINES SCHEDULE END);
  EXPECT(0, "prof --html evil.html report evil");
  read_page("evil.html");
}

static void contains_what_the_record_has(void **state) {
  make_page();
  json_t *data = read_data();
  assert_string_equal(text_at(data, "report.kernels.0.name"), EVIL);
  assert_int_equal(integer_at(data, "report.kernels.0.calls"), 2);
  assert_int_equal(json_array_size(at(data, "tracks")), 3);
  assert_string_equal(text_at(data, "tracks.0.kind"), "kernels");
  assert_int_equal(integer_at(data, "tracks.0.number"), 2);
  /* Begins are differences, in the order of the record, from the begin of the session. */
  assert_int_equal(integer_at(data, "tracks.0.gap.0"), 500);
  assert_int_equal(integer_at(data, "tracks.0.gap.1"), -100);
  assert_int_equal(integer_at(data, "tracks.0.ns.1"), 50);
  assert_int_equal(integer_at(data, "tracks.1.bytes.0"), 64);
  assert_int_equal(integer_at(data, "tracks.2.number"), 9);
  assert_string_equal(text_at(data, "names.2"), "compile: " EVIL);
  assert_string_equal(text_at(data, "code.0.texts.plan"), "upcast a:4");
  assert_int_equal(integer_at(data, "code.0.lines.rows.0.1"), 3);
  assert_string_equal(text_at(data, "schedules.0.buffers.0"), "f32[4]");
  assert_int_equal(integer_at(data, "machines.CPU.unit.waves"), 16);
  assert_true(json_is_null(at(data, "machines.CPU.peaks")));
  assert_int_equal(integer_at(data, "processes.0.end_ns"), 8000);
  json_decref(data);
}

static void needs_no_other_file(void **state) {
  static const char *const loads[] = {"src=", "href=", "url(", "@import", "https:", "import(", "fetch(", "XMLHttp"};
  make_page();
  for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
    if (strstr(page, loads[i])) fail_msg("the page has '%s'", loads[i]);
  /* The only address is the name of SVG's elements, which is not loaded. */
  const char *address = strstr(page, "http:");
  assert_int_equal(strncmp(address, "http://www.w3.org/2000/svg'", 27), 0);
  assert_null(strstr(address + 1, "http:"));
  assert_non_null(strstr(page, "default-src 'none'"));
  assert_int_equal(strncmp(page, "<!doctype html>\n", 16), 0);
  assert_non_null(strstr(page, "</html>\n"));
}

static void has_no_text_of_the_record_as_markup(void **state) {
  make_page();
  assert_null(strstr(page, "<img"));
  assert_null(strstr(page, "onerror"));
  /* The page's own code makes no markup from texts. */
  assert_null(strstr(page, "innerHTML"));
  assert_null(strstr(page, "insertAdjacentHTML"));
  assert_null(strstr(page, "document.write"));
}

static void shows_a_program(void **state) {
  EXPECT(0, "prof --json --html run.html -- " DOORBELL " bench --case dot --dev CPU 2>/dev/null; exit $?");
  json_t *report = json_out(), *data;
  read_page("run.html");
  data = read_data();
  assert_int_equal(json_array_size(at(data, "report.kernels")), json_array_size(json_object_get(report, "kernels")));
  json_decref(report);
  assert_string_equal(text_at(data, "report.kernels.0.name"), "r_2");
  assert_true(json_array_size(at(data, "tracks")) >= 2);
  json_decref(data);
}

/* How many times the instructions of a kernel with a text were executed. */
static double executed(const json_t *lines, const char *text) {
  size_t i;
  json_t *row;
  double sum = 0;
  json_array_foreach(at(lines, "rows"), i, row) {
    const char *of_row = json_string_value(json_array_get(row, json_array_size(row) - 1));
    if (!strncmp(of_row, text, strlen(text))) sum += json_number_value(json_array_get(row, 1));
  }
  return sum;
}

static void contains_how_kernels_are_compiled(void **state) {
  EXPECT(0, "prof --code --html code.html -- " DOORBELL " bench --case softmax --dev " EMULATED);
  read_page("code.html");
  json_t *data = read_data();
  assert_string_equal(text_at(data, "code.0.name"), text_at(data, "report.kernels.0.name"));
  assert_string_equal(text_at(data, "code.0.arch"), "gfx1100");
  assert_non_null(strstr(text_at(data, "code.0.texts.c"), text_at(data, "code.0.name")));
  assert_non_null(strstr(text_at(data, "code.0.texts.graph"), "STORE"));
  assert_non_null(strstr(text_at(data, "code.0.texts.assembly"), "s_endpgm"));
  assert_true(*text_at(data, "code.0.texts.plan"));
  assert_string_equal(text_at(data, "schedules.0.items.0.name"), text_at(data, "code.0.name"));
  assert_true(json_array_size(at(data, "schedules.0.items.0.reads")) > 0);
  json_decref(data);
}

static void contains_rewrites(void **state) {
  EXPECT(0, "version; VIZ=1 " DOORBELL " prof --html viz.html -- " DOORBELL " bench --case softmax --dev CPU");
  read_page("viz.html");
  json_t *data = read_data();
  assert_int_equal(strncmp(text_at(data, "code.0.texts.rewrites"), "lower\tcompiler/rules/decompose.rules:", 35), 0);
  const char *rewrites = text_at(data, "schedules.0.rewrites");
  assert_int_equal(strncmp(rewrites, "schedule\tgraph/rules/", 21), 0);
  assert_non_null(strstr(rewrites, " => "));
  assert_non_null(strstr(text_at(data, "code.0.texts.linear"), "STORE"));
  assert_non_null(strstr(text_at(data, "schedules.0.graph"), "REDUCE"));
  json_decref(data);
}

/* Each wave ends once. */
static void counts_instructions_of_emulated_devices(void **state) {
  EXPECT(0, "prof --annotate --html annotated.html -- " DOORBELL " bench --case softmax --dev " EMULATED);
  read_page("annotated.html");
  json_t *data = read_data();
  const json_t *kernel = at(data, "report.kernels.0");
  double waves = (double)integer_at(kernel, "calls") * (double)integer_at(kernel, "grid.0");
  for (unsigned i = 0; i < 3; i++) waves *= (double)json_integer_value(json_array_get(at(kernel, "block"), i));
  assert_float_equal(executed(at(data, "code.0.lines"), "s_endpgm"), waves / (double)integer_at(kernel, "wave"), 0);
  json_decref(data);
}

/* Without counts, the record has the code of kernels that doorbell run loads. */
static void contains_code_of_files(void **state) {
  static const struct {
    const char *file, *dev, *first, *last;
  } cases[] = {{KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co", EMULATED, "s_load", "s_endpgm"},
               {DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin", "EMU+NV:sm_90", "LDC", "EXIT"}};
  for (unsigned i = 0; i < 2; i++) {
    EXPECT(0,
           "prof --code --html file.html run %s --grid 4 --block 256 --arg f32[1024]=ones --arg f32[1024]=iota "
           "--arg f32:2 --arg u32:1024 --dev %s",
           cases[i].file, cases[i].dev);
    read_page("file.html");
    json_t *data = read_data();
    bool first = false, last = false;
    size_t k;
    json_t *row;
    json_array_foreach(at(data, "code.0.lines.rows"), k, row) {
      const char *text = json_string_value(json_array_get(row, 1));
      first |= !strncmp(text, cases[i].first, strlen(cases[i].first));
      last |= strstr(text, cases[i].last) != NULL;
    }
    assert_true(first && last);
    json_decref(data);
  }
}

/* For NVIDIA GPUs, kernels of tensor programs have the instructions that ptxas makes, beside the PTX. */
static void contains_sass_of_tensor_kernels(void **state) {
  if (!has_ptxas()) skip();
  EXPECT(0, "prof --code --html sass.html -- " DOORBELL " bench --case dot --dev EMU+NV:sm_90");
  read_page("sass.html");
  json_t *data = read_data();
  bool ends = false;
  size_t k;
  json_t *row;
  json_array_foreach(at(data, "code.0.lines.rows"), k, row) ends |=
      !strcmp(json_string_value(json_array_get(row, 1)), "EXIT");
  assert_true(ends);
  assert_int_equal(json_array_size(at(data, "code.0.lines.columns")), 0);
  assert_non_null(strstr(text_at(data, "code.0.texts.assembly"), ".entry"));
  json_decref(data);
}

static void contains_counts_of_thread_traces(void **state) {
  EXPECT(0, "prof --html traced.html run " KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co --grid 96 --block 256 --arg "
            "f32[24576]=ones --arg f32[24576]=iota --arg f32:2 --arg u32:24576 --thread-trace t --dev " EMULATED);
  read_page("traced.html");
  json_t *data = read_data();
  assert_string_equal(text_at(data, "code.0.name"), "saxpy");
  assert_string_equal(text_at(data, "code.0.lines.columns.1"), "stall");
  double ends = executed(at(data, "code.0.lines"), "s_endpgm");
  assert_true(ends > 0 && executed(at(data, "code.0.lines"), "global_load") == 2 * ends);
  json_decref(data);
}

/* The samples beside each line of SASS are those that the command prints. */
static void contains_pc_samples(void **state) {
#define SAMPLED                                                                                                        \
  "run " DATA_DIR "/nv/cubin/12.4.sm_80.cubin --kernel saxpy --grid 96 --block 256 --arg f32[24576]=ones --arg "       \
  "f32[24576]=iota --arg f32:2 --arg u32:24576 --pc-samples --dev EMU+NV:sm_86"
  EXPECT(0, SAMPLED " --json");
  json_t *printed = json_loads(out, 0, NULL), *row;
  assert_non_null(printed);
  EXPECT(0, "prof --html sampled.html " SAMPLED);
  read_page("sampled.html");
  json_t *data = read_data();
  const char *const columns[] = {"samples", "issued", "other", "instruction fetch", "execution dependency"};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    assert_string_equal(json_string_value(json_array_get(at(data, "code.0.lines.columns"), i)), columns[i]);
  assert_non_null(strstr(text_at(data, "code.0.lines.source"), "PC samples of the last launch"));
  json_int_t samples = 0, issued = 0;
  bool exits = false;
  size_t i;
  json_array_foreach(at(data, "code.0.lines.rows"), i, row) {
    samples += json_integer_value(json_array_get(row, 1)), issued += json_integer_value(json_array_get(row, 2));
    exits |= !strcmp(json_string_value(json_array_get(row, json_array_size(row) - 1)), "EXIT");
  }
  assert_true(exits && samples > 100 && issued > 0);
  assert_int_equal(samples, json_integer_value(at(printed, "pc_samples.samples")));
  assert_int_equal(issued, json_integer_value(at(printed, "pc_samples.issued")));
  assert_int_equal(json_integer_value(at(printed, "pc_samples.lost")), 0);
  assert_int_equal(json_integer_value(at(printed, "pc_samples.elsewhere")), 0);
  json_decref(data), json_decref(printed);
  EXPECT(0, SAMPLED);
  assert_contains(out, "pc samples ");
  assert_contains(out, "memory dependency    FFMA");
  EXPECT(1, "run " DATA_DIR
            "/../../bench/kernels/saxpy.sm_90.cubin --grid 1 --block 32 --arg f32[32]=ones --arg f32[32]=ones --arg "
            "f32:2 --arg u32:32 --pc-samples --dev EMU+NV:sm_90");
  assert_contains(out, "--pc-samples: EMU+NV:sm_90: not supported: PC sampling of sm_90, because its registers");
}

static void names_what_fails(void **state) {
  make_page();
  EXPECT(1, "prof --html no/such/folder.html report evil");
  assert_contains(out, "--html no/such/folder.html: No such file or directory");
  write_text("report.json", "{\"version\":1,\"kernels\":[]}");
  EXPECT(1, "prof --html x.html report report.json");
  assert_contains(out, "report.json: Not a directory");
}

/* Skipped where there is no browser; `make test-page` installs one. */
static void works_in_a_browser(void **state) {
  char line[512], text[256];
  snprintf(line, sizeof line, "python3 " DATA_DIR "/../page/test_page.py " DOORBELL " 2>&1");
  FILE *p = popen(line, "r");
  assert_non_null(p);
  while (fgets(text, sizeof text, p)) fputs(text, stderr);
  int status = pclose(p);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) skip();
  assert_int_equal(WEXITSTATUS(status), 0);
}

static int end(void **state) {
  free(page);
  return finish(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(contains_what_the_record_has),
      cmocka_unit_test(needs_no_other_file),
      cmocka_unit_test(has_no_text_of_the_record_as_markup),
      cmocka_unit_test(shows_a_program),
      cmocka_unit_test(contains_how_kernels_are_compiled),
      cmocka_unit_test(contains_rewrites),
      cmocka_unit_test(counts_instructions_of_emulated_devices),
      cmocka_unit_test(contains_code_of_files),
      cmocka_unit_test(contains_sass_of_tensor_kernels),
      cmocka_unit_test(contains_counts_of_thread_traces),
      cmocka_unit_test(contains_pc_samples),
      cmocka_unit_test(names_what_fails),
      cmocka_unit_test(works_in_a_browser),
  };
  return cmocka_run_group_tests_name("prof page", tests, begin, end);
}
