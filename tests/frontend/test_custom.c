/* Kernels of the user's as operations on tensors. */
#include "support.h"
#include "../hcq/host_object.h"
#include <signal.h>
#include <sys/stat.h>

enum { N = 300 };

static const char host_kernels[] =
    "#include <stdint.h>\n#include <string.h>\n"
    "void saxpy(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  struct { float *y; const float *x; float a; uint32_t n; } a; memcpy(&a, k, sizeof a);\n"
    "  for (uint32_t i = x * 256; i < x * 256 + 256 && i < a.n; i++)\n"
    "    a.y[i] = __builtin_fmaf(a.a, a.x[i], a.y[i]);\n}\n"
    "void divide(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  struct { const int32_t *x, *by; int32_t *whole; int16_t *rest; int64_t n; } a; memcpy(&a, k, sizeof a);\n"
    "  for (int64_t i = 0; i < a.n; i++) a.whole[i] = a.x[i] / a.by[i], a.rest[i] = (int16_t)(a.x[i] % a.by[i]);\n}\n";
static const struct db_param saxpy_params[] = {{"y", 0, 8, DB_PARAM_BUFFER},
                                               {"x", 8, 8, DB_PARAM_BUFFER},
                                               {"a", 16, 4, DB_PARAM_VALUE},
                                               {"n", 20, 4, DB_PARAM_VALUE}};
static const struct db_param divide_params[] = {{"x", 0, 8, DB_PARAM_BUFFER},
                                                {"by", 8, 8, DB_PARAM_BUFFER},
                                                {"whole", 16, 8, DB_PARAM_BUFFER},
                                                {"rest", 24, 8, DB_PARAM_BUFFER},
                                                {"n", 32, 8, DB_PARAM_VALUE}};

static void *read_image(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s is missing", path);
  void *bytes = malloc(1 << 20);
  *size = fread(bytes, 1, 1 << 20, f);
  fclose(f);
  return bytes;
}

/* y[i] += a * x[i] for i < n, by workgroups of 256 elements. */
static db_program *saxpy_of(db_device *dev) {
  size_t size = 0;
  bool host = !strcmp(db_device_arch(dev), "x86_64") || !strcmp(db_device_arch(dev), "aarch64");
  const char *path = strncmp(db_device_arch(dev), "sm_", 3) ? KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co"
                                                            : DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin";
  void *image = host ? host_object(host_kernels, "", &size) : read_image(path, &size);
  db_program *p = db_program_load(dev, image, size, "saxpy", host ? saxpy_params : NULL, host ? 4 : 0);
  if (!p) fail_msg("%s", db_error());
  free(image);
  return p;
}

/* y + a * x of N elements. One work-item of the CPU computes 256 of them. */
static db_tensor *saxpy(db_device *dev, db_program *p, float a, db_tensor *x, db_tensor *y) {
  int64_t block = strcmp(db_device_name(dev), "CPU") ? 256 : 1;
  return db_custom(p, DB_LIST((N + 255) / 256), DB_LIST(block), NULL, DB_INOUT(y), DB_IN(x), DB_IN(a), DB_IN(N));
}

static void expect_line(db_tensor *t, float from, float step) {
  float got[N];
  must_read(t, got, sizeof got);
  for (int i = 0; i < N; i++)
    if (got[i] != from + step * (float)i) fail_msg("element %d is %g", i, (double)got[i]);
}

/* A launch is lazy, reads what other kernels compute, in any layout, and leaves its inputs alone. */
static void between_operations(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_program *p = saxpy_of(dev);
    {
      DB_SCOPED;
      db_tensor *line = db_contiguous(db_arange(0, N, 1, DB_F32, dev)), *ones = db_ones(DB_F32, dev, N);
      assert_int_equal(db_realize(line), 0);
      unsigned before = kernels_so_far(dev);
      db_tensor *y = saxpy(dev, p, 2, line, ones), *unused = saxpy(dev, p, 5, line, ones);
      assert_int_equal(kernels_so_far(dev), before);
      expect_line(db_mul(y, 10), 10, 20);
      assert_int_equal(kernels_so_far(dev), before + 3); /* the ones, the launch, and the product */
      expect_line(line, 0, 1);
      expect_line(ones, 1, 0);
      expect_line(unused, 1, 5);
      db_tensor *grid = db_reshape(line, 3, N / 3), *back = db_transpose(db_contiguous(db_transpose(grid, 0, 1)), 0, 1);
      db_tensor *twice = saxpy(dev, p, -1, db_add(back, 1), saxpy(dev, p, 3, db_flip(db_flip(grid, 0), 0), back));
      expect_line(twice, -1, 3); /* i + 3 i - (i + 1) */
      db_tensor *w = db_zeros(DB_F32, dev, N), *old = saxpy(dev, p, 1, w, line);
      db_assign(w, old);
      expect_line(saxpy(dev, p, 1, w, w), 0, 2);
      expect_line(old, 0, 1);
      expect_line(
          db_custom(p, DB_LIST(1, 1), DB_LIST(1, 1, 1), NULL, DB_INOUT(line), DB_IN(line), DB_IN(9.f), DB_IN(0)), 0, 1);
    }
    db_program_release(p);
    db_close(dev);
  }
}

/* ---- kernels from source: saxpy, for up to 256 elements of a workgroup ---- */

static const char opencl[] = "__kernel void saxpy(__global float *y, __global const float *x, float a, uint n) {\n"
                             "  uint i = get_global_id(0);\n"
                             "  if (i < n) y[i] = fma(a, x[i], y[i]);\n}\n";
/* The same for both vendors, but for the pointers' address space, the place of the group's and the item's number. */
static const char llvm_ir[] =
    "%s\n"
    "define %s void @saxpy(ptr addrspace(1) %%y, ptr addrspace(1) %%x, float %%a, i32 %%n) {\n"
    "  %%g = call i32 @llvm.%s()\n  %%l = call i32 @llvm.%s()\n  %%b = mul i32 %%g, 256\n  %%i = add i32 %%b, %%l\n"
    "  %%in = icmp ult i32 %%i, %%n\n  br i1 %%in, label %%work, label %%end\nwork:\n"
    "  %%o = zext i32 %%i to i64\n  %%p = getelementptr float, ptr addrspace(1) %%x, i64 %%o\n"
    "  %%q = getelementptr float, ptr addrspace(1) %%y, i64 %%o\n"
    "  %%u = load float, ptr addrspace(1) %%p\n  %%v = load float, ptr addrspace(1) %%q\n"
    "  %%m = fmul float %%u, %%a\n  %%s = fadd float %%m, %%v\n  store float %%s, ptr addrspace(1) %%q\n"
    "  br label %%end\nend:\n  ret void\n}\n"
    "declare i32 @llvm.%s()\ndeclare i32 @llvm.%s()\n";
static const char ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n) {\n"
    "  .reg .pred %p;\n  .reg .b32 %i, %g, %b, %n;\n  .reg .f32 %a, %u, %v;\n  .reg .b64 %x, %y, %o;\n"
    "  ld.param.u64 %y, [y];\n  ld.param.u64 %x, [x];\n  ld.param.f32 %a, [a];\n  ld.param.u32 %n, [n];\n"
    "  mov.u32 %i, %tid.x;\n  mov.u32 %g, %ctaid.x;\n  mov.u32 %b, %ntid.x;\n  mad.lo.u32 %i, %g, %b, %i;\n"
    "  setp.ge.u32 %p, %i, %n;\n  @%p ret;\n  mul.wide.u32 %o, %i, 4;\n  add.u64 %x, %x, %o;\n"
    "  add.u64 %y, %y, %o;\n  ld.global.f32 %u, [%x];\n  ld.global.f32 %v, [%y];\n  fma.rn.f32 %v, %a, %u, %v;\n"
    "  st.global.f32 [%y], %v;\n  ret;\n}\n";

static void expect_saxpy(db_device *dev, enum db_language language, const char *text) {
  DB_SCOPED;
  db_program *p = db_program_compile(dev, language, text, "saxpy", NULL, 0);
  if (!p) fail_msg("%s: language %d: %s", db_device_name(dev), (int)language, db_error());
  db_tensor *line = db_arange(0, N, 1, DB_F32, dev), *y = saxpy(dev, p, 3, line, db_ones(DB_F32, dev, N));
  expect_line(db_mul(y, 2), 2, 6);
  db_program_release(p);
}
static void expect_refusal(db_device *dev, enum db_language language, const char *text, const char *message) {
  assert_null(db_program_compile(dev, language, text, NULL, NULL, 0));
  assert_contains(db_error(), message);
}

static void from_source(void **state) {
  char text[2048];
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    bool nv = !strncmp(db_device_arch(dev), "sm_", 3);
    const char *g = nv ? "nvvm.read.ptx.sreg.ctaid.x" : "amdgcn.workgroup.id.x";
    const char *l = nv ? "nvvm.read.ptx.sreg.tid.x" : "amdgcn.workitem.id.x";
    snprintf(text, sizeof text, llvm_ir, nv ? "target triple = \"nvptx64-nvidia-cuda\"" : "",
             nv ? "ptx_kernel" : "amdgpu_kernel", g, l, g, l);
    expect_saxpy(dev, DB_LLVM_IR, text);
    expect_saxpy(dev, nv ? DB_PTX : DB_OPENCL_C, nv ? ptx : opencl);
    expect_refusal(dev, nv ? DB_OPENCL_C : DB_PTX, opencl,
                   nv ? "not supported: OpenCL C for sm_90" : "PTX for gfx1100");
    expect_refusal(dev, nv ? DB_PTX : DB_OPENCL_C, nv ? ".version 7.0\nnothing" : "nothing", nv ? "ptxas" : "nothing");
    expect_refusal(dev, DB_LLVM_IR, "", "kernel");
    expect_refusal(dev, 7, "", "program_compile: 7 is not a language");
    expect_refusal(dev, DB_LLVM_IR, NULL, "program_compile: the source is NULL");
    char *tool = nv ? getenv("PTXAS") : getenv("CLANG"), before[512], *path = strdup(getenv("PATH"));
    snprintf(before, sizeof before, "%s", tool ? tool : "");
    setenv(nv ? "PTXAS" : "CLANG", "/nonexistent/tool", 1);
    expect_refusal(dev, nv ? DB_PTX : DB_OPENCL_C, nv ? ptx : opencl, "/nonexistent/tool");
    tool ? setenv(nv ? "PTXAS" : "CLANG", before, 1) : unsetenv(nv ? "PTXAS" : "CLANG");
    setenv("PATH", "/nonexistent", 1);
    if (!getenv("CLANG"))
      expect_refusal(dev, DB_LLVM_IR, text, "LLVM IR needs a compiler: clang-19 was not found; install it or name it");
    setenv("PATH", path, 1);
    free(path);
    db_close(dev);
  }
  db_device *cpu = open_device("CPU");
  expect_refusal(cpu, DB_LLVM_IR, "", "not supported: LLVM IR for ");
  db_device *group = db_group(&cpu, 1);
  expect_refusal(group, DB_LLVM_IR, "", "is several devices");
  db_close(group);
  db_close(cpu);
}

/* A compiler that dies is reported with its signal, and one runs in a program that ignores SIGCHLD. */
static void compilers_end(void **state) {
  db_device *dev = open_device("EMU+AMD:gfx1100");
  char folder[] = "/tmp/doorbell.XXXXXX", script[64], *old = getenv("CLANG"), before[512];
  snprintf(before, sizeof before, "%s", old ? old : "");
  void (*handler)(int) = signal(SIGCHLD, SIG_IGN);
  expect_saxpy(dev, DB_OPENCL_C, opencl);
  signal(SIGCHLD, handler);
  assert_non_null(mkdtemp(folder));
  snprintf(script, sizeof script, "%s/clang", folder);
  FILE *f = fopen(script, "w");
  assert_non_null(f);
  fprintf(f, "#!/bin/sh\nkill -SEGV $$\n");
  assert_int_equal(fclose(f), 0);
  assert_int_equal(chmod(script, 0700), 0);
  setenv("CLANG", script, 1);
  expect_refusal(dev, DB_OPENCL_C, opencl, "was ended by signal 11");
  old ? setenv("CLANG", before, 1) : unsetenv("CLANG");
  unlink(script);
  rmdir(folder);
  db_close(dev);
}

struct both {
  db_device *dev;
  db_program *p;
  db_tensor *w;
};
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct both *b = ctx;
  db_tensor *y = saxpy(b->dev, b->p, 0.5f, db_mul(in[0], 2), b->w);
  db_assign(b->w, y);
  out[0] = db_add(saxpy(b->dev, b->p, -1, in[0], y), 1);
  return 0;
}

/* A captured launch runs again with new inputs and the state of the step before. */
static void captured(void **state) {
  FOR_DEVICES {
    struct both b = {.dev = open_device(DEVICE_NAME)};
    b.p = saxpy_of(b.dev);
    db_scope_begin();
    b.w = db_zeros(DB_F32, b.dev, N);
    db_jit *j = db_jit_new(step, &b, 1, 1);
    for (int i = 1; i <= 5; i++) {
      DB_SCOPED;
      db_tensor *x = db_mul(db_arange(0, N, 1, DB_F32, b.dev), i), *out;
      assert_int_equal(db_realize(x), 0);
      if (db_jit_call(j, &x, &out)) fail_msg("%s", db_error());
      expect_line(out, 1, (float)(i * (i + 1) / 2 - i));
      expect_line(b.w, 0, (float)(i * (i + 1) / 2));
    }
    db_jit_free(j);
    db_scope_end();
    db_program_release(b.p);
    db_close(b.dev);
  }
}

static int saxpy_gradient(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx) {
  struct both *b = ctx;
  dx[0] = saxpy(b->dev, b->p, 4, dy, db_zeros_like(dy));
  dx[1] = dy;
  return 0;
}

/* The gradient that the user gives is used, and may be a launch; without one there is an error. */
static void gradients(void **state) {
  FOR_DEVICES {
    struct both b = {.dev = open_device(DEVICE_NAME)};
    b.p = saxpy_of(b.dev);
    {
      DB_SCOPED;
      db_tensor *x = db_requires_grad(db_contiguous(db_arange(0, N, 1, DB_F32, b.dev)));
      db_tensor *in[] = {db_mul(x, 3), db_square(x)}, *y = saxpy(b.dev, b.p, 4, in[0], in[1]);
      assert_contains(db_poison(db_grad(db_sum(y), x)), "db_custom_gradient gives");
      db_tensor *loss = db_sum(db_custom_gradient(y, in, 2, saxpy_gradient, &b));
      assert_int_equal(db_backward(loss), 0);
      expect_line(db_grad_of(x), 12, 2); /* of 12 x + x^2 */
      double want = 12 * (N - 1) / 2.0 + (N - 1) * (2 * N - 1) / 6.0;
      assert_true(fabs(must_item(db_mean(y)) - want) < 1e-5 * want);
    }
    db_program_release(b.p);
    db_close(b.dev);
  }
}

/* Two results of different types come from one launch; one of them alone, too. */
static void two_results(void **state) {
  size_t size = 0;
  db_device *dev = open_device("CPU");
  void *image = host_object(host_kernels, "", &size);
  db_program *p = db_program_load(dev, image, size, "divide", divide_params, 5);
  if (!p) fail_msg("%s", db_error());
  for (int only = 0; only < 3; only++) {
    DB_SCOPED;
    db_tensor *x = db_from(((int32_t[]){17, -9, 100}), DB_I32, dev, 3), *by = db_add(db_zeros_like(x), 7), *r[2];
    db_tensor *whole =
        db_custom(p, DB_LIST(1), DB_LIST(1), r, DB_IN(x), DB_IN(by), DB_OUT(DB_I32, 3), DB_OUT(DB_I16, 1, 3), DB_IN(3));
    assert_ptr_equal(whole, r[0]);
    unsigned before = kernels_so_far(dev);
    assert_int_equal(only == 2 ? db_realize(r[0], r[1]) : db_realize(r[only]), 0);
    assert_int_equal(kernels_so_far(dev), before + 2);
    db_tensor *sum =
        db_add(db_mul(whole, 7), db_cast(db_reshape(r[1], 3), DB_I32)); /* runs it again unless both are there */
    EXPECT_FLOATS(db_cast(sum, DB_F32), 17, -9, 100);
    EXPECT_FLOATS(db_cast(r[1], DB_F32), 3, -2, 2);
  }
  free(image);
  db_program_release(p);
  db_close(dev);
}

/* The error names what does not fit. */
/* A parameter that is read and written takes two buffers of the launch. */
static void too_many_buffers(void **state) {
  enum { PARAMS = 100 };
  static struct db_param params[PARAMS];
  static db_kernel_arg args[PARAMS];
  db_device *dev = open_device("CPU");
  size_t size = 0;
  void *image = host_object(host_kernels, "", &size);
  for (unsigned i = 0; i < PARAMS; i++) params[i] = (struct db_param){"x", 8 * i, 8, DB_PARAM_BUFFER};
  db_program *p = db_program_load(dev, image, size, "saxpy", params, PARAMS);
  assert_non_null(p);
  free(image);
  db_scope_begin();
  db_tensor *results[PARAMS];
  for (unsigned i = 0; i < PARAMS; i++) args[i] = DB_INOUT(db_ones(DB_F32, dev, N));
  db_custom_at(DB_HERE, p, DB_LIST(1), DB_LIST(1), results, args, PARAMS);
  assert_contains(db_poison(results[0]), "200 inputs and results, more than 192");
  assert_contains(db_poison(results[PARAMS - 1]), "200 inputs and results, more than 192");
  db_scope_end();
  db_program_release(p);
  db_close(dev);
}

static void bad_calls(void **state) {
  db_device *dev = open_device("CPU"), *other = open_device(EMULATED);
  db_program *p = saxpy_of(dev);
  db_scope_begin();
  db_tensor *x = db_ones(DB_F32, dev, N), *there = db_ones(DB_F32, other, N), *none = db_zeros(DB_F32, dev, 0), *r[3];
#define BAD(part, grid, block, ...) assert_contains(db_poison(db_custom(p, grid, block, r, __VA_ARGS__)), part)
  BAD("kernel saxpy has 4 parameters, but 1 arguments", DB_LIST(1), DB_LIST(1), DB_OUT(DB_F32, 1));
  BAD("argument 1 is on EMU+AMD:gfx1100, but the program is on CPU", DB_LIST(1), DB_LIST(1), DB_INOUT(x), DB_IN(there),
      DB_IN(1.f), DB_IN(N));
  BAD("argument 0 is a number, but parameter 0 of kernel saxpy is a buffer", DB_LIST(1), DB_LIST(1), DB_IN(1), DB_IN(x),
      DB_IN(1.f), DB_IN(N));
  BAD("argument 2 is a tensor, but parameter 2 of kernel saxpy is a value", DB_LIST(1), DB_LIST(1), DB_INOUT(x),
      DB_IN(x), DB_IN(x), DB_IN(N));
  BAD("argument 3, the whole number 4294967296, is not a value of 4 bytes", DB_LIST(1), DB_LIST(1), DB_INOUT(x),
      DB_IN(x), DB_IN(1.f), DB_IN(1ll << 32));
  BAD("no argument is a result", DB_LIST(1), DB_LIST(1), DB_IN(x), DB_IN(x), DB_IN(1.f), DB_IN(N));
  BAD("the grid has 4 numbers", DB_LIST(1, 1, 1, 1), DB_LIST(1), DB_INOUT(x), DB_IN(x), DB_IN(1.f), DB_IN(N));
  BAD("number 2 of the block is 0", DB_LIST(1), DB_LIST(1, 0), DB_INOUT(x), DB_IN(x), DB_IN(1.f), DB_IN(N));
  BAD("argument 0 is NULL", DB_LIST(1), DB_LIST(1), DB_INOUT((db_tensor *)NULL), DB_IN(x), DB_IN(1.f), DB_IN(N));
  BAD("argument 1 has no elements", DB_LIST(1), DB_LIST(1), DB_INOUT(x), DB_IN(none), DB_IN(1.f), DB_IN(N));
  BAD("argument 0 has no elements", DB_LIST(1), DB_LIST(1), DB_OUT(DB_F32, 0), DB_IN(x), DB_IN(1.f), DB_IN(N));
  BAD("argument 0: 99 is not an element type", DB_LIST(1), DB_LIST(1), DB_OUT((db_dtype)99, 2), DB_IN(x), DB_IN(1.f),
      DB_IN(N));
  BAD("reshape at", DB_LIST(1), DB_LIST(1), DB_OUT(DB_F32, N), DB_IN(db_reshape(x, 7)), DB_IN(1.f), DB_IN(N));
  BAD("reshape at", DB_LIST(1), DB_LIST(1), DB_INOUT(db_reshape(x, 7)), DB_OUT(DB_F32, N), DB_IN(1.f), DB_IN(N));
  assert_contains(db_poison(r[1]), "reshape at");
  assert_contains(
      db_poison(db_custom(p, DB_LIST(1), DB_LIST(1), NULL, DB_INOUT(x), DB_OUT(DB_F32, N), DB_IN(1.f), DB_IN(N))),
      "the array for 2 results is NULL");
  BAD("argument 3 is a symbolic size", DB_LIST(1), DB_LIST(1), DB_INOUT(x), DB_IN(x), DB_IN(1.f),
      DB_IN(db_bind("n", 1, N, 7)));
  BAD("number 1 of the grid is a symbolic size", DB_LIST(db_bind("n", 1, N, 7)), DB_LIST(1), DB_INOUT(x), DB_IN(x),
      DB_IN(1.f), DB_IN(N));
  db_program_load(dev, "?", 1, NULL, NULL, 0);
  db_tensor *unloaded = db_custom(NULL, DB_LIST(1), DB_LIST(1), NULL, DB_INOUT(x));
  assert_contains(db_poison(unloaded), "the program is NULL; the last failure was: ");
  db_device *two[] = {dev, other};
  db_tensor *whole = db_shard(x, two, 2, -1);
  BAD("argument 0 is on several devices", DB_LIST(1), DB_LIST(1), DB_INOUT(whole), DB_IN(x), DB_IN(1.f), DB_IN(N));
  db_tensor *launched = db_custom(p, DB_LIST(1), DB_LIST(64), NULL, DB_INOUT(x), DB_IN(x), DB_IN(1.f), DB_IN(N));
  assert_null(db_poison(launched)); /* the device refuses the launch */
  assert_int_not_equal(db_realize(launched), 0);
  assert_contains(db_error(), "a workgroup of this device is one work-item");
  expect_line(saxpy(dev, p, 1, x, x), 2, 0);
  db_scope_end();
  db_program_release(p);
  db_close(dev);
  db_close(other);
}

static int finish(void **state) { return db_shutdown(); }
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(between_operations), cmocka_unit_test(captured),
                                     cmocka_unit_test(from_source),        cmocka_unit_test(compilers_end),
                                     cmocka_unit_test(gradients),          cmocka_unit_test(two_results),
                                     cmocka_unit_test(bad_calls),          cmocka_unit_test(too_many_buffers)};
  return cmocka_run_group_tests_name("custom", tests, NULL, finish);
}
