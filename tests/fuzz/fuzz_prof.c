/* Reads arbitrary bytes as the record of a process. If they are accepted, makes the report, prints it, compares it with
 * itself, and makes the data of the page. */
#include "prof_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  write_record(0, "1.prof", data, size);
  use_folder();
  return 0;
}
