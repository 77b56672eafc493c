/* Objects for tests, assembled in process through LLVM's C API. */
#ifndef DOORBELL_TESTS_LLVM_EMIT_H
#define DOORBELL_TESTS_LLVM_EMIT_H
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

/* Compiles textual IR to a relocatable object, which the caller frees. Fails the test on an error. */
static inline void *llvm_emit(const char *triple, const char *cpu, const char *ir, LLVMRelocMode reloc,
                              LLVMCodeModel model, size_t *size) {
  static int ready;
  if (!ready++) {
    LLVMInitializeAllTargetInfos();
    LLVMInitializeAllTargets();
    LLVMInitializeAllTargetMCs();
    LLVMInitializeAllAsmPrinters();
    LLVMInitializeAllAsmParsers();
  }
  char *message = NULL;
  LLVMTargetRef target;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) fail_msg("%s", message);
  LLVMTargetMachineRef machine =
      LLVMCreateTargetMachine(target, triple, cpu, "", LLVMCodeGenLevelDefault, reloc, model);
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module;
  if (LLVMParseIRInContext(context, LLVMCreateMemoryBufferWithMemoryRangeCopy(ir, strlen(ir), "test"), &module,
                           &message))
    fail_msg("%s", message);
  LLVMSetTarget(module, triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  LLVMMemoryBufferRef object;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &object)) fail_msg("%s", message);
  *size = LLVMGetBufferSize(object);
  void *copy = malloc(*size);
  memcpy(copy, LLVMGetBufferStart(object), *size);
  LLVMDisposeMemoryBuffer(object);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  LLVMDisposeTargetMachine(machine);
  return copy;
}

#endif
