/* Shared by suites of all folders: a check that a call returns 0, and timeouts in seconds. */
#ifndef DOORBELL_TESTS_OK_H
#define DOORBELL_TESTS_OK_H
#define SECOND 1000000000ull
#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    int ok_ = (call);                                                                                                  \
    if (ok_) fail_msg("%s: %d: %s", #call, ok_, db_error());                                                           \
  } while (0)
#endif
