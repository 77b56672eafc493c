/* Assembles LLVM IR that was written as text, for kernels that are not made of an ast. */
#include "internal.h"
#include "ptxas.h"
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Target.h>
#include <stdlib.h>
#include <string.h>

/* Parses the text into a module for the target. */
static bool parse(struct codegen *k, LLVMContextRef context, LLVMModuleRef m, const char *ir) {
  LLVMModuleRef parsed;
  char *message = NULL;
  LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRange(ir, strlen(ir), "ir", 1);
  if (LLVMParseIRInContext(context, text, &parsed, &message)) {
    codegen_fail(k, "%s", message);
    LLVMDisposeMessage(message);
    return false;
  }
  LLVMSetTarget(parsed, k->target->triple);
  LLVMSetModuleDataLayout(parsed, LLVMGetModuleDataLayout(m));
  return !LLVMLinkModules2(m, parsed) || codegen_fail(k, "the text cannot be linked"); /* frees parsed */
}

/* Replaces PTX by the image that ptxas makes of it. */
static bool assemble_ptx(const struct codegen *k, const char *ptxas, void **image, size_t *size) {
  struct ptxas *pool = ptxas_new(ptxas, 1, 0);
  struct ptxas_job *job = pool ? ptxas_start(pool, k->target->arch, *image, *size, NULL) : NULL;
  void *ptx = *image;
  *image = NULL;
  bool ok = job && ptxas_finish(job, image, size, k->err, k->errcap);
  if (!job) snprintf(k->err, k->errcap, "out of memory");
  ptxas_free(pool);
  free(ptx);
  return ok;
}

bool compiler_assemble(const struct target *t, const char *ptxas, const char *name, const char *ir, void **image,
                       size_t *size, char *err, size_t errcap) {
  struct codegen *k = calloc(1, sizeof *k);
  struct assembler *a = assembler_new();
  LLVMContextRef context = LLVMContextCreate();
  bool ok = k && a;
  if (!ok) snprintf(err, errcap, "out of memory");
  if (k) k->target = t, k->err = err, k->errcap = errcap, snprintf(k->name, sizeof k->name, "%s", name);
  LLVMModuleRef m = ok ? assembler_module(a, k, context) : NULL;
  ok = m && parse(k, context, m, ir) && assemble(a, k, m, image, size);
  if (ok && t->kind == TARGET_NVPTX) ok = assemble_ptx(k, ptxas, image, size);
  if (m) LLVMDisposeModule(m);
  LLVMContextDispose(context);
  assembler_free(a);
  free(k);
  return ok;
}
