/* Compiles an LLVM module to an object in memory (PTX text for NVIDIA), and disassembles an object to text, both inside
 * this process.
 *
 * One LLVM target machine per target lives as long as the compiler. Modules are verified before code generation,
 * because LLVM aborts on what it cannot lower. */
#define _GNU_SOURCE
#include "internal.h"
#include "plan/matrix.h"
#include <ctype.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Object.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MACHINES = 16 };
struct assembler {
  struct {
    const struct target *target;
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
    char *cpu, *features;
    bool group;
  } machines[MAX_MACHINES];
  unsigned n;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void init_llvm(void) {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTarget();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUAsmPrinter();
  LLVMInitializeAMDGPUAsmParser(); /* of inline assembly */
  LLVMInitializeAMDGPUDisassembler();
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  LLVMInitializeNativeDisassembler();
}

/* Lowered kernels are simple, so few passes suffice: they promote memory to registers and remove common subexpressions
 * and dead code. */
#define PASSES                                                                                                         \
  "always-inline,function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,loop-mssa(licm),simplifycfg,"         \
  "early-cse,dce)"

/* On the host, loops that the renderer marks are unrolled, and no others. */
#define UNROLL ",function(loop-unroll<no-partial;no-runtime;no-upperbound;no-peeling;full-unroll-max=0>,early-cse,dce)"

const struct code_options *code_options_of(const struct target *t) {
  /* The host's code may be loaded more than 2 GiB away from the libraries that it calls, so every address has 64
   * bits. */
  static const struct code_options host = {PASSES UNROLL, LLVMCodeGenLevelDefault, LLVMRelocStatic, LLVMCodeModelLarge},
                                   gpu = {PASSES, LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelDefault};
  return t->kind == TARGET_HOST ? &host : &gpu;
}

/* The processor's name, and its features; free both with LLVMDisposeMessage. */
static char *cpu_of(const struct target *t) { return t->cpu ? LLVMCreateMessage(t->cpu) : LLVMGetHostCPUName(); }
static char *features_of(const struct target *t) {
  if (t->features) return LLVMCreateMessage(t->features);
  const char *more = target_llvm_features();
  char *found = LLVMGetHostCPUFeatures(), *all;
  if (!*more || asprintf(&all, "%s%s%s", found, *found ? "," : "", more) < 0) return found;
  LLVMDisposeMessage(found);
  found = LLVMCreateMessage(all);
  free(all);
  return found;
}

char *code_recipe(const struct target *t, const struct code_options *o, const char *tool, const char *plan) {
  char *text = NULL, *cpu = cpu_of(t), *features = features_of(t);
  size_t n = 0;
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  FILE *f = open_memstream(&text, &n);
  if (f) {
    fprintf(f, "LLVM %u.%u.%u\n%s %s\n", major, minor, patch, t->arch, t->triple);
    fprintf(f, "cpu %s\nfeatures %s\npasses %s\n", cpu, features, o->passes);
    fprintf(f, "level %d, relocation %d, model %d\n%s\n", o->level, o->relocation, o->model, tool);
    fprintf(f, "plan %s\n", plan);
    if (fclose(f)) {
      free(text);
      text = NULL;
    }
  }
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  return text;
}

struct assembler *assembler_new(void) {
  pthread_once(&once, init_llvm);
  return calloc(1, sizeof(struct assembler));
}

void assembler_free(struct assembler *a) {
  for (unsigned i = 0; a && i < a->n; i++) {
    LLVMDisposeTargetData(a->machines[i].layout);
    LLVMDisposeTargetMachine(a->machines[i].machine);
    LLVMDisposeMessage(a->machines[i].cpu);
    LLVMDisposeMessage(a->machines[i].features);
  }
  free(a);
}

bool uses_groups(const struct codegen *k) {
  bool found = k->tile[MATRIX_B].group || k->local_bytes > k->target->local_bytes;
  for (unsigned i = 0; i < k->nparts; i++) found = found || k->parts[i].tile[MATRIX_B].group;
  return k->target->group_cpu && found;
}

static int machine_of(struct assembler *a, struct codegen *k) {
  for (unsigned i = 0; i < a->n; i++)
    if (a->machines[i].target == k->target && a->machines[i].group == uses_groups(k)) return (int)i;
  const struct target *t = k->target;
  LLVMTargetRef target;
  char *message = NULL;
  if (a->n == MAX_MACHINES || LLVMGetTargetFromTriple(t->triple, &target, &message)) {
    codegen_fail(k, "%s: %s", t->triple, message ? message : "too many targets");
    LLVMDisposeMessage(message);
    return -1;
  }
  bool group = uses_groups(k);
  char *cpu = group ? LLVMCreateMessage(t->group_cpu) : cpu_of(t);
  char *features = group ? LLVMCreateMessage(t->group_features) : features_of(t);
  const struct code_options *o = code_options_of(t);
  LLVMTargetMachineRef m = LLVMCreateTargetMachine(target, t->triple, cpu, features, (LLVMCodeGenOptLevel)o->level,
                                                   (LLVMRelocMode)o->relocation, (LLVMCodeModel)o->model);
  if (!m) {
    codegen_fail(k, "LLVM does not support %s %s", t->triple, cpu);
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(features);
    return -1;
  }
  a->machines[a->n].target = t;
  a->machines[a->n].machine = m;
  a->machines[a->n].layout = LLVMCreateTargetDataLayout(m);
  a->machines[a->n].group = group;
  a->machines[a->n].cpu = cpu, a->machines[a->n].features = features;
  return (int)a->n++;
}

/* Pairs stores to workgroup memory before the barrier with other work-items' loads after it. Other memory needs no
 * ordering here (LLVM AMDGPUUsage, "Memory Model GFX10-GFX11"). */
static const char amd_barrier[] = "define internal void @barrier() alwaysinline convergent nounwind {\n"
                                  "  fence syncscope(\"workgroup\") release, !mmra !0\n"
                                  "  call void @llvm.amdgcn.s.barrier()\n"
                                  "  fence syncscope(\"workgroup\") acquire, !mmra !0\n"
                                  "  ret void\n"
                                  "}\n"
                                  "declare void @llvm.amdgcn.s.barrier()\n"
                                  "!0 = !{!\"amdgpu-as\", !\"local\"}\n";
static const char nvidia_barrier[] = "define internal void @barrier() alwaysinline convergent nounwind {\n"
                                     "  call void @llvm.nvvm.barrier0()\n"
                                     "  ret void\n"
                                     "}\n"
                                     "declare void @llvm.nvvm.barrier0()\n";

module_ref assembler_module(struct assembler *a, struct codegen *k, context_ref context) {
  k->stage = "assemble";
  int i = machine_of(a, k);
  if (i < 0) return NULL;
  LLVMModuleRef m = NULL;
  bool barrier = false;
  for (size_t j = 0; j < k->nlinear; j++) barrier = barrier || (k->linear[j]->op == OP_BARRIER && !k->linear[j]->aux);
  if (barrier) {
    char *message = NULL;
    const char *ir = k->target->kind == TARGET_NVPTX ? nvidia_barrier : amd_barrier;
    LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRange(ir, strlen(ir), "barrier", 1);
    if (LLVMParseIRInContext(context, text, &m, &message)) {
      codegen_fail(k, "%s", message);
      LLVMDisposeMessage(message);
      return NULL;
    }
    LLVMSetModuleIdentifier(m, k->name, strlen(k->name));
    LLVMSetSourceFileName(m, k->name, strlen(k->name));
  } else
    m = LLVMModuleCreateWithNameInContext(k->name, context);
  LLVMSetTarget(m, k->target->triple);
  LLVMSetModuleDataLayout(m, a->machines[i].layout);
  if (k->target->kind == TARGET_AMDGPU) /* code object version 5 */
    LLVMAddModuleFlag(m, LLVMModuleFlagBehaviorError, "amdhsa_code_object_version", 26,
                      LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(context), 500, 0)));
  return m;
}

static void diagnostic(LLVMDiagnosticInfoRef info, void *context) {
  struct codegen *k = context;
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
  char *text = LLVMGetDiagInfoDescription(info);
  codegen_fail(k, "%s", text);
  LLVMDisposeMessage(text);
}

bool assemble(struct assembler *a, struct codegen *k, module_ref m, void **image, size_t *size) {
  k->stage = "assemble";
  int i = machine_of(a, k);
  if (i < 0) return false;
  LLVMContextSetDiagnosticHandler(LLVMGetModuleContext(m), diagnostic, k);
  char *message = NULL;
  if (LLVMVerifyModule(m, LLVMReturnStatusAction, &message)) {
    codegen_fail(k, "%s", message);
    LLVMDisposeMessage(message);
    return false;
  }
  LLVMDisposeMessage(message);
  message = NULL;
  k->err[0] = 0;
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(m, code_options_of(k->target)->passes, a->machines[i].machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (error) {
    message = LLVMGetErrorMessage(error);
    codegen_fail(k, "%s", message);
    LLVMDisposeErrorMessage(message);
    return false;
  }
  LLVMMemoryBufferRef object = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(a->machines[i].machine, m,
                                          k->target->kind == TARGET_NVPTX ? LLVMAssemblyFile : LLVMObjectFile, &message,
                                          &object)) {
    codegen_fail(k, "%s", message);
    LLVMDisposeMessage(message);
    return false;
  }
  if (k->err[0]) { /* the diagnostic handler wrote an error */
    LLVMDisposeMemoryBuffer(object);
    return false;
  }
  *size = LLVMGetBufferSize(object);
  *image = malloc(*size);
  if (*image) memcpy(*image, LLVMGetBufferStart(object), *size);
  LLVMDisposeMemoryBuffer(object);
  if (!*image) return codegen_fail(k, "out of memory");
  return k->target->kind != TARGET_NVPTX || ptx_avoid_defects(k, image, size);
}

char *disassemble(struct assembler *a, const struct target *t, const void *image, size_t size) {
  char *text = NULL, line[512];
  size_t length = 0;
  FILE *f = open_memstream(&text, &length);
  if (!f) return NULL;
  const char *cpu = "", *features = "";
  for (unsigned i = 0; i < a->n; i++)
    if (a->machines[i].target == t) cpu = a->machines[i].cpu, features = a->machines[i].features;
  LLVMDisasmContextRef d = LLVMCreateDisasmCPUFeatures(t->triple, cpu, features, NULL, 0, NULL, NULL);
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(image, size, "", 0);
  char *message = NULL;
  LLVMBinaryRef binary = d ? LLVMCreateBinary(buffer, NULL, &message) : NULL;
  LLVMDisposeMessage(message);
  if (binary) {
    LLVMSectionIteratorRef s = LLVMObjectFileCopySectionIterator(binary);
    for (; !LLVMObjectFileIsSectionIteratorAtEnd(binary, s); LLVMMoveToNextSection(s)) {
      const char *name = LLVMGetSectionName(s);
      if (!name || (strcmp(name, ".text") && strcmp(name, ".ltext"))) continue; /* .ltext: large code model */
      uint8_t *code = (uint8_t *)LLVMGetSectionContents(s);
      uint64_t n = LLVMGetSectionSize(s), at = 0;
      while (at < n) {
        size_t used = LLVMDisasmInstruction(d, code + at, n - at, at, line, sizeof line);
        const char *p = line;
        while (isspace((unsigned char)*p)) p++;
        if (!strncmp(p, "s_code_end", 10)) break; /* padding after a kernel, for the instruction prefetcher */
        if (used)
          fprintf(f, "%6llx: %s\n", (unsigned long long)at, p);
        else
          fprintf(f, "%6llx: .byte 0x%02x\n", (unsigned long long)at, code[at]);
        at += used ? used : 1;
      }
    }
    LLVMDisposeSectionIterator(s);
    LLVMDisposeBinary(binary);
  }
  LLVMDisposeMemoryBuffer(buffer);
  if (d) LLVMDisasmDispose(d);
  fclose(f);
  return text;
}
