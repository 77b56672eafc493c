/* Reads arbitrary bytes as what the emulator counted in a process (PID.emu), beside the record of that process, whose
 * kernels give their names to the emulator's. If they are accepted, makes the report and the page as fuzz_prof does. */
#include "prof_folder.h"

static const char process[] =
    "{\"type\":\"process\",\"version\":1,\"doorbell\":\"0.1.0\",\"pid\":7,\"rank\":-1,\"pass\":0,\"begin_ns\":1,"
    "\"command\":[\"x\"]}\n"
    "{\"type\":\"device\",\"id\":0,\"name\":\"NV\",\"arch\":\"sm_86\",\"description\":\"\"}\n"
    "{\"type\":\"kernel\",\"id\":0,\"device\":0,\"name\":\"saxpy\",\"grid\":[4,1,1],\"block\":[64,1,1],"
    "\"address\":4096,\"registers\":8,\"local_bytes\":0,\"private_bytes\":0,\"wave\":32}\n"
    "{\"type\":\"call\",\"kernel\":0,\"queue\":0,\"begin_ns\":2,\"end_ns\":9}\n"
    "{\"type\":\"end\",\"at_ns\":10}\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  write_record(0, "7.prof", process, sizeof process - 1);
  write_record(1, "7.emu", data, size);
  use_folder();
  return 0;
}
