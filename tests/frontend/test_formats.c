/* Files of tensors: reads files that Python wrote (tests/data/formats/make.py), reads back files written here, and
 * rejects malformed ones. */
#include "support.h"
#include "folder.h"
#include "../../frontend/files/pickle.h"
#include "../../frontend/nn.h"
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA(name) DATA_DIR "/formats/" name

static db_tensor *tensor_of(struct db_named *t, unsigned n, const char *name) {
  for (unsigned i = 0; i < n; i++)
    if (!strcmp(t[i].name, name)) return t[i].tensor;
  fail_msg("no tensor %s", name);
  return NULL;
}

/* Expects that element i is i + first. */
static void expect_counts(db_tensor *t, db_dtype dtype, double first, db_list shape) {
  assert_int_equal(db_dtype_of(t), dtype);
  assert_int_equal(db_rank(t), shape.n);
  for (unsigned i = 0; i < shape.n; i++) assert_int_equal(db_dim(t, (int)i), shape.v[i]);
  double *got = malloc((size_t)db_numel(t) * sizeof *got + 1);
  {
    DB_SCOPED;
    must_read(db_cast(t, DB_F64), got, (size_t)db_numel(t) * sizeof *got);
  }
  for (int64_t i = 0; i < db_numel(t); i++)
    assert_true(got[i] == (dtype == DB_BOOL ? (double)(i % 2) : (double)i + first));
  free(got);
}

static void safetensors_of_python(void **state) {
  static const db_dtype types[] = {DB_BOOL, DB_I8,  DB_U8,  DB_I16, DB_U16, DB_I32,
                                   DB_U32,  DB_I64, DB_U64, DB_F16, DB_F32, DB_F64};
  static const char *const names[] = {"BOOL", "I8",  "U8",  "I16", "U16", "I32",
                                      "U32",  "I64", "U64", "F16", "F32", "F64"};
  struct db_named *t;
  unsigned n;
  if (db_load(DATA("types.safetensors"), NULL, &t, &n)) fail_msg("%s", db_error());
  assert_int_equal(n, 15);
  for (unsigned i = 0; i < 12; i++) {
    char name[32];
    snprintf(name, sizeof name, "layer.%u.%s", i, names[i]);
    expect_counts(tensor_of(t, n, name), types[i], names[i][0] == 'U' ? 0 : -2, DB_LIST(2, 3));
  }
  expect_counts(tensor_of(t, n, "half brain"), DB_BF16, -2, DB_LIST(4));
  expect_counts(tensor_of(t, n, "scalar"), DB_F32, -2, DB_LIST());
  expect_counts(tensor_of(t, n, "empty"), DB_F32, 0, DB_LIST(0, 4));
  db_named_free(t, n);
}

static void numpy_files(void **state) {
  struct db_named *t;
  unsigned n;
  if (db_load(DATA("plain.npz"), NULL, &t, &n)) fail_msg("%s", db_error());
  assert_int_equal(n, 3);
  expect_counts(tensor_of(t, n, "a"), DB_F32, -2, DB_LIST(2, 3));
  expect_counts(tensor_of(t, n, "b.weight"), DB_I64, -2, DB_LIST(4));
  expect_counts(tensor_of(t, n, "empty"), DB_F32, 0, DB_LIST(0));
  db_named_free(t, n);
  if (db_load(DATA("packed.npz"), NULL, &t, &n)) fail_msg("%s", db_error());
  assert_int_equal(n, 2);
  expect_counts(tensor_of(t, n, "a"), DB_F32, -2, DB_LIST(2, 3));
  assert_int_equal(db_dim(tensor_of(t, n, "zeros"), 0), 1000);
  db_named_free(t, n);
  if (db_load(DATA("fortran.npy"), NULL, &t, &n)) fail_msg("%s", db_error());
  expect_counts(t->tensor, DB_I32, -2, DB_LIST(2, 3));
  db_named_free(t, n);
  if (db_load(DATA("scalar.npy"), NULL, &t, &n)) fail_msg("%s", db_error());
  expect_counts(t->tensor, DB_F64, -2, DB_LIST());
  assert_string_equal(t->name, "");
  db_named_free(t, n);
}

static unsigned files_there(void) {
  unsigned n = 0;
  DIR *d = opendir(folder);
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static void files_of_torch(void **state) {
  struct db_named *t;
  unsigned n;
  if (db_load(DATA("torch.pt"), NULL, &t, &n)) fail_msg("%s", db_error());
  assert_int_equal(n, 12);
  expect_counts(tensor_of(t, n, "model.0.weight"), DB_F16, -2, DB_LIST(2, 3));
  expect_counts(tensor_of(t, n, "model.0.bias"), DB_F16, -2, DB_LIST(2));
  expect_counts(tensor_of(t, n, "list.0"), DB_I64, -2, DB_LIST(3, 2)); /* column-major */
  expect_counts(tensor_of(t, n, "list.1"), DB_F32, -2, DB_LIST(2, 3)); /* views of one storage */
  expect_counts(tensor_of(t, n, "list.2"), DB_F32, -2, DB_LIST(6));
  expect_counts(tensor_of(t, n, "7"), DB_U16, 0, DB_LIST(3));
  expect_counts(tensor_of(t, n, "f8"), DB_F8E4M3, -2, DB_LIST(4));
  expect_counts(tensor_of(t, n, "half"), DB_BF16, -2, DB_LIST(4));
  expect_counts(tensor_of(t, n, "parameter"), DB_F32, -2, DB_LIST(2));
  expect_counts(tensor_of(t, n, "mask"), DB_BOOL, 0, DB_LIST(4));
  expect_counts(tensor_of(t, n, "empty"), DB_F32, 0, DB_LIST(0, 4));
  expect_counts(tensor_of(t, n, "scalar"), DB_F32, -2, DB_LIST());
  db_named_free(t, n);
  db_params *p = db_params_new(NULL, 1);
  db_linear l = db_linear_new(p, "0", 3, 2, true);
  const struct db_rename rename = {"model.", ""};
  assert_int_equal(db_params_import(p, DATA("torch.pt"), .partial = true, .rename = &rename, .nrename = 1), 0);
  expect_counts(l.weight->tensor, DB_F16, -2, DB_LIST(2, 3));
  db_params_free(p);
  /* An index over such files. */
  unlink(in_folder("pytorch.pt"));
  assert_int_equal(symlink(DATA("torch.pt"), in_folder("pytorch.pt")), 0);
  FILE *f = fopen(in_folder("pytorch.index.json"), "w");
  fputs("{\"weight_map\": {\"half\": \"pytorch.pt\", \"mask\": \"pytorch.pt\"}}", f);
  fclose(f);
  if (db_load(in_folder("pytorch.index.json"), NULL, &t, &n)) fail_msg("%s", db_error());
  assert_int_equal(n, 2);
  expect_counts(tensor_of(t, n, "half"), DB_BF16, -2, DB_LIST(4));
  db_named_free(t, n);
}

#define STORAGE "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\6tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n("

/* Everything but tensors and plain containers is refused, by name and offset. */
static void refused_pickles(void **state) {
  static const struct {
    const char *bytes;
    size_t n;
    const char *why;
  } pickles[] = {
#define P(bytes, why) {bytes, sizeof bytes - 1, why}
      P("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R.", "byte 2 of the pickle: refused: the global 'os.system'"),
      P("\x8c\5posix\x8c\6system\x93.", "refused: the global 'posix.system'"),
      P("\x80\2}\x81.", "byte 3 of the pickle: refused: the opcode 0x81"),
      P("i", "refused: the opcode 0x69"),
      P("", "ends without a result"),
      P("\x80\2", "ends without a result"),
      P(".", "there is no result"),
      P("X\xff\xff\xff\xffx", "a text of 4294967295 bytes is longer than the pickle"),
      P("h\7.", "memo 7 is empty"),
      P("}r\xff\xff\xff\xff.", "memo 4294967295 of a pickle of 7 bytes"),
      P("t", "there is no mark"),
      P("a", "the stack is empty"),
      P("NK\1a.", "items for a list, but the stack has None"),
      P("}(K\1u.", "a key without a value"),
      P("]}b.", "attributes of a list"),
      P("ctorch\nFloatStorage\n)R.", "refused: a call of torch.FloatStorage"),
      P("NQ.", "None where a tuple is needed"),
      P(")Q.", "an external object that is not a storage"),
      P(REBUILD STORAGE "K\1K\6\x85K\1\x85\x89NtR.", "needs element 6 of a storage of 6 elements"),
      P(REBUILD STORAGE "J\xff\xff\xff\xffK\1\x85K\1\x85\x89NtR.", "of a storage of 6 elements"),
      P(REBUILD STORAGE "K\0K\7\x85K\0\x85\x89NtR.", "a tensor has more elements than its storage"),
      P(REBUILD STORAGE "K\0J\xff\xff\xff\xff\x85K\1\x85\x89NtR.", "a size or stride is not a number"),
      P(REBUILD STORAGE "K\0K\2K\3\x86K\1\x85\x89NtR.", "a tensor has 2 sizes, but 1 strides"),
      P(REBUILD STORAGE "K\0\x8a\x08\0\0\0\0\0\0\0\x40\x85\x8a\x08\0\0\0\0\0\0\0\x40\x85\x89NtR.",
        "a tensor is too large"),
      P("]q\0h\0a.", "containers"),
  };
  for (unsigned i = 0; i < sizeof pickles / sizeof *pickles; i++) {
    struct pickle p;
    char why[512] = "";
    assert_int_not_equal(pickle_parse(pickles[i].bytes, pickles[i].n, &p, why, sizeof why), 0);
    assert_contains(why, pickles[i].why);
  }
}

/* Several files and their index: they are read back, replaced, and refused if something is missing. */
static void shards(void **state) {
  DB_SCOPED;
  struct db_named out[5], *in;
  unsigned n;
  const char *path = in_folder("big.safetensors.index.json");
  static const char *const names[] = {"a", "b", "c", "d", "e"};
  for (int i = 0; i < 5; i++) out[i] = (struct db_named){names[i], db_add(db_arange(0, 6, 1, DB_F32, NULL), i)};
  for (unsigned round = 0; round < 3; round++) { /* shards of 2, 1 and 5 tensors */
    static const size_t most[] = {48, 10, 1000};
    static const unsigned files[] = {4, 6, 2};
    unsigned before = files_there();
    if (db_save_shards(path, out, 5, most[round])) fail_msg("%s", db_error());
    assert_int_equal(files_there() - before + (round ? files[round - 1] : 0), files[round]);
    if (db_load(path, NULL, &in, &n)) fail_msg("%s", db_error());
    assert_int_equal(n, 5);
    for (int i = 0; i < 5; i++) expect_counts(tensor_of(in, n, names[i]), DB_F32, i, DB_LIST(6));
    db_named_free(in, n);
  }
  out[0].tensor = db_reshape(out[0].tensor, 7);
  assert_int_not_equal(db_save_shards(path, out, 5, 48), 0);
  assert_contains(db_error(), "reshape at");
  assert_int_equal(db_load(path, NULL, &in, &n), 0);
  db_named_free(in, n);
  assert_int_not_equal(db_save_shards(in_folder("x.safetensors"), out + 1, 4, 48), 0);
  assert_contains(db_error(), "must end in .safetensors.index.json");
  static const struct {
    const char *text, *why;
  } bad[] = {{"{", "not JSON"},
             {"{}", "there is no object weight_map"},
             {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "a: the value is not the name of a file"},
             {"{\"weight_map\": {\"a\": 3}}", "a: the value is not the name of a file"},
             {"{\"weight_map\": {\"a\": \"nowhere.safetensors\"}}", "nowhere.safetensors"},
             {"{\"weight_map\": {\"z\": \"big-00001-of-00001.safetensors\"}}", "has 0 of the 1 tensors"}};
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    FILE *f = fopen(in_folder("bad.index.json"), "w");
    fputs(bad[i].text, f);
    fclose(f);
    assert_int_not_equal(db_load(in_folder("bad.index.json"), NULL, &in, &n), 0);
    assert_contains(db_error(), bad[i].why);
  }
}

static void round_trips(void **state) {
  const char *paths[] = {in_folder("x.safetensors"), in_folder("x.npz")};
  for (unsigned k = 0; k < 2; k++) {
    DB_SCOPED;
    struct db_named out[] = {{"a \"quoted\" name", db_add(db_arange(0, 6, 1, DB_F32, NULL), 1)},
                             {"transposed", db_transpose(db_reshape(db_arange(0, 6, 1, DB_I16, NULL), 2, 3), 0, 1)},
                             {"none", db_zeros(DB_F64, NULL, 3, 0)}},
                    *in = NULL;
    unsigned n = 0;
    if (db_save(paths[k], out, 3) || db_load(paths[k], NULL, &in, &n)) fail_msg("%s", db_error());
    assert_int_equal(n, 3);
    expect_counts(tensor_of(in, n, "a \"quoted\" name"), DB_F32, 1, DB_LIST(6));
    int16_t got[6], want[] = {0, 3, 1, 4, 2, 5};
    must_read(tensor_of(in, n, "transposed"), got, sizeof got);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(db_numel(tensor_of(in, n, "none")), 0);
    db_named_free(in, n);
  }
  {
    DB_SCOPED;
    struct db_named one = {"", db_arange(0, 5, 1, DB_I8, NULL)}, *in = NULL,
                    two[2] = {{"x", one.tensor}, {"x", one.tensor}};
    unsigned n = 0;
    if (db_save(in_folder("x.npy"), &one, 1) || db_load(in_folder("x.npy"), NULL, &in, &n)) fail_msg("%s", db_error());
    expect_counts(in->tensor, DB_I8, 0, DB_LIST(5));
    db_named_free(in, n);
    assert_int_not_equal(db_save(in_folder("x.npy"), two, 2), 0);
    assert_contains(db_error(), "holds one tensor, not 2");
    assert_int_not_equal(db_save(in_folder("y.safetensors"), two, 2), 0);
    assert_contains(db_error(), "two tensors have the name 'x'");
    assert_int_not_equal(db_save(in_folder("x.txt"), two, 1), 0);
    assert_contains(db_error(), "the name must end in");
    assert_int_not_equal(db_save("/nowhere/x.npz", two, 1), 0);
    assert_contains(db_error(), "/nowhere/x.npz");
    two[0].tensor = db_reshape(one.tensor, 7);
    assert_int_not_equal(db_save(in_folder("z.npz"), two, 1), 0);
    assert_contains(db_error(), "reshape at");
  }
}

static void parameters(void **state) {
  db_params *p = db_params_new(NULL, 1), *q = db_params_new(NULL, 2), *r = db_params_new(NULL, 3);
  db_linear_new(db_params_at(p, "layer1.%d", 0), "fc", 3, 2, true);
  db_linear_new(db_params_at(q, "layer1.%d", 0), "fc", 3, 2, true);
  db_linear_new(r, "fc", 3, 2, true);
  float a[6], b[6];
  const char *path = in_folder("net.safetensors");
  if (db_params_save(p, path)) fail_msg("%s", db_error());
  must_read(db_params_find(p, "layer1.0.fc.weight")->tensor, a, sizeof a);
  must_read(db_params_find(q, "layer1.0.fc.weight")->tensor, b, sizeof b);
  assert_memory_not_equal(a, b, sizeof a);
  if (db_params_load(q, path, false)) fail_msg("%s", db_error());
  must_read(db_params_find(q, "layer1.0.fc.weight")->tensor, b, sizeof b);
  assert_memory_equal(a, b, sizeof a);
  assert_int_not_equal(db_params_load(r, path, false), 0);
  assert_contains(db_error(), "there is no parameter 'layer1.0.fc.");
  assert_int_not_equal(db_params_load(r, path, true), 0);
  assert_contains(db_error(), "none of its 2 tensors");
  db_linear_new(q, "more", 1, 1, false);
  assert_int_not_equal(db_params_load(q, path, false), 0);
  assert_contains(db_error(), "the file has no parameter 'more.weight'");
  assert_int_equal(db_params_load(q, path, true), 0);
  db_params_free(p), db_params_free(q), db_params_free(r);
}

/* A file with these bytes must be rejected with a message. */
static void refuse(const char *name, const void *bytes, size_t n, const char *why) {
  struct db_named *t;
  unsigned count;
  FILE *f = fopen(in_folder(name), "wb");
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  fclose(f);
  assert_int_not_equal(db_load(in_folder(name), NULL, &t, &count), 0);
  assert_null(t);
  assert_contains(db_error(), why);
  assert_contains(db_error(), name);
}

static void malformed(void **state) {
  static const struct {
    const char *header, *why;
    size_t data;
  } headers[] = {
      {"{", "the header is not JSON", 0},
      {"[]", "not a JSON object", 0},
      {"{}", "8 bytes follow the last tensor", 8},
      {"{\"a\":1}", "a: no dtype", 0},
      {"{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,4]}}", "elements of type 'F4'", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":3,\"data_offsets\":[0,4]}}", "a: shape is not a list", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "a: size 0", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,8],\"data_offsets\":[0,4]}}", "a: size 1", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]}}",
       "a: the shape is too large", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "a: data_offsets", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
       "a: bytes 0 to 8 are not within the 4 bytes of data", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "a: 4 bytes, but its shape needs 8", 4},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "a: bytes 4 to 0", 4},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
       "offsets\":[1,3]}}",
       "b: tensors overlap", 3},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "a: tensors overlap, or there is a gap", 2},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{}}", "duplicate", 1},
  };
  uint8_t bytes[512] = {0};
  for (unsigned i = 0; i < sizeof headers / sizeof *headers; i++) {
    size_t n = strlen(headers[i].header);
    bytes[0] = (uint8_t)n;
    memcpy(bytes + 8, headers[i].header, n);
    refuse("bad.safetensors", bytes, 8 + n + headers[i].data, headers[i].why);
  }
  refuse("bad.safetensors", "", 0, "0 bytes");
  refuse("bad.safetensors", "\x10\0\0\0\0\0\0\0{}", 10, "cut short");
  refuse("bad.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "cut short");
  refuse("bad.npy", "NUMPY", 5, "not a .npy file");
  refuse("bad.npz", "PK\3\4", 4, "bad.npz: ");
  refuse("bad.npz", "", 0, "bad.npz: ");
  FILE *f = fopen(DATA("plain.npz"), "rb");
  static uint8_t npz[4096];
  size_t n = fread(npz, 1, sizeof npz, f);
  fclose(f);
  refuse("bad.npz", npz, n - 30, "bad.npz: ");
  npz[190] ^= 1; /* changes an element of a: detected by the checksum */
  refuse("bad.npz", npz, n, "bad.npz: a.npy cannot be read");
  struct db_named *t;
  unsigned count;
  assert_int_not_equal(db_load("/nowhere/x.npy", NULL, &t, &count), 0);
  assert_contains(db_error(), "/nowhere/x.npy: No such file");
  assert_int_not_equal(db_load("/tmp/.npz", NULL, &t, &count), 0);
}

static int identity(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_add(in[0], *(db_tensor **)ctx);
  return 0;
}

static char *contents(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  char *bytes = malloc(1 << 20);
  if (!f || !bytes) fail_msg("%s: %s", path, strerror(errno));
  *size = fread(bytes, 1, 1 << 20, f);
  fclose(f);
  return bytes;
}
/* If the disk becomes full while a file is written, the previous file remains and no part of the new one. */
static void full_disk(void **state) {
  static const char *const names[] = {"full.safetensors", "full.npz", "full.npy", "full.dbj"};
  enum { N = 4096 };
  static float numbers[N];
  DB_SCOPED;
  for (int i = 0; i < N; i++) numbers[i] = (float)i;
  db_tensor *x = db_from(numbers, DB_F32, NULL, N), *bias = db_from(numbers, DB_F32, NULL, N), *out[1];
  db_jit *j = db_jit_new(identity, &bias, 1, 1);
  for (int i = 0; i < 3; i++) assert_int_equal(db_jit_call(j, &x, out), 0);
  struct db_named named = {"x", x};
  signal(SIGXFSZ, SIG_IGN);
  for (int k = 0; k < 4; k++) {
    char path[128];
    size_t size, after;
    struct rlimit limit, small;
    snprintf(path, sizeof path, "%s/%s", folder, names[k]);
    assert_int_equal(k < 3 ? db_save(path, &named, 1) : db_jit_save(j, path, NULL, 0), 0);
    char *before = contents(path, &size);
    unsigned files = files_there();
    assert_true(size > N * sizeof(float));
    getrlimit(RLIMIT_FSIZE, &limit);
    small = (struct rlimit){8192, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    int err = k < 3 ? db_save(path, &named, 1) : db_jit_save(j, path, NULL, 0);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_true(err < 0);
    assert_contains(db_error(), names[k]);
    if (k != 1) assert_contains(db_error(), "File too large");
    char *now = contents(path, &after);
    assert_int_equal(after, size);
    assert_memory_equal(now, before, size);
    assert_int_equal(files_there(), files);
    free(before);
    free(now);
  }
  db_jit_free(j);
}

/* What exists under the name determines where the data goes and the permissions: a link is followed, a device is
 * written. */
static void links_and_devices(void **state) {
  char path[128], link[128], other[160];
  struct stat st;
  DB_SCOPED;
  db_tensor *x = db_full(7, DB_F32, NULL, 3);
  struct db_named named = {"x", x}, *got;
  unsigned n;
  snprintf(path, sizeof path, "%s/real.npy", folder);
  snprintf(link, sizeof link, "%s/link.npy", folder);
  assert_int_equal(db_save(path, &named, 1), 0);
  assert_int_equal(chmod(path, 0600), 0);
  assert_int_equal(symlink("real.npy", link), 0);
  named.tensor = db_full(8, DB_F32, NULL, 3);
  assert_int_equal(db_save(link, &named, 1), 0);
  assert_int_equal(lstat(link, &st), 0);
  assert_true(S_ISLNK(st.st_mode));
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(db_load(path, NULL, &got, &n), 0);
  EXPECT_FLOATS(got[0].tensor, 8, 8, 8);
  db_named_free(got, n);
  snprintf(other, sizeof other, "%s/full.npy", folder);
  unlink(other);
  assert_int_equal(symlink("/dev/full", other), 0);
  assert_int_equal(db_save(other, &named, 1), -ENOSPC);
  assert_contains(db_error(), "No space left on device");
  snprintf(other, sizeof other, "%s/nowhere/x.npy", folder);
  assert_int_equal(db_save(other, &named, 1), -ENOENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(safetensors_of_python),
                                     cmocka_unit_test(numpy_files),
                                     cmocka_unit_test(round_trips),
                                     cmocka_unit_test(files_of_torch),
                                     cmocka_unit_test(refused_pickles),
                                     cmocka_unit_test(shards),
                                     cmocka_unit_test(parameters),
                                     cmocka_unit_test(malformed),
                                     cmocka_unit_test(full_disk),
                                     cmocka_unit_test(links_and_devices)};
  return cmocka_run_group_tests_name("formats", tests, make_folder, remove_folder);
}
