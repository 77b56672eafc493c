/* Assembles AMDGPU instructions with LLVM, an independent source of their encoding. */
#ifndef DOORBELL_TESTS_ASM_H
#define DOORBELL_TESTS_ASM_H
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

static inline LLVMTargetMachineRef asm_machine(const char *cpu, const char *features) {
  static int ready;
  if (!ready) {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmParser();
    LLVMInitializeAMDGPUAsmPrinter();
    ready = 1;
  }
  LLVMTargetRef target;
  char *error = NULL;
  if (LLVMGetTargetFromTriple("amdgcn-amd-amdhsa", &target, &error)) {
    fprintf(stderr, "%s\n", error);
    LLVMDisposeMessage(error);
    return NULL;
  }
  return LLVMCreateTargetMachine(target, "amdgcn-amd-amdhsa", cpu, features, LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                 LLVMCodeModelDefault);
}

/* Assembles instructions and stores the bytes of .text in out. Returns their number, or 0 if LLVM rejects the text. */
static inline size_t asm_text(const char *text, const char *cpu, const char *features, void *out, size_t cap) {
  LLVMTargetMachineRef tm = asm_machine(cpu, features);
  if (!tm) return 0;
  LLVMContextRef ctx = LLVMContextCreate();
  LLVMModuleRef m = LLVMModuleCreateWithNameInContext("asm", ctx);
  LLVMSetTarget(m, "amdgcn-amd-amdhsa");
  LLVMSetModuleInlineAsm2(m, text, strlen(text));
  LLVMMemoryBufferRef object = NULL;
  char *error = NULL;
  size_t size = 0;
  if (!LLVMTargetMachineEmitToMemoryBuffer(tm, m, LLVMObjectFile, &error, &object)) {
    const char *base = LLVMGetBufferStart(object);
    const Elf64_Ehdr *eh = (const void *)base;
    const Elf64_Shdr *sh = (const void *)(base + eh->e_shoff);
    const char *names = base + sh[eh->e_shstrndx].sh_offset;
    for (int i = 0; i < eh->e_shnum; i++)
      if (!strcmp(names + sh[i].sh_name, ".text") && sh[i].sh_size <= cap) {
        size = sh[i].sh_size;
        memcpy(out, base + sh[i].sh_offset, size);
      }
    LLVMDisposeMemoryBuffer(object);
  } else {
    fprintf(stderr, "%s\n", error);
    LLVMDisposeMessage(error);
  }
  LLVMDisposeModule(m);
  LLVMContextDispose(ctx);
  LLVMDisposeTargetMachine(tm);
  return size;
}
#endif
