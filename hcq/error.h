/* The thread's last failure: what db_error() returns. */
#ifndef DOORBELL_HCQ_ERROR_H
#define DOORBELL_HCQ_ERROR_H

/* Remembers the formatted message for db_error() and returns negative_errno, so that `return db_fail(-EINVAL, ...)` is
 * the one way to fail. An argument may be the previous message itself: db_fail(err, "loading %s: %s", name,
 * db_error()). */
int db_fail(int negative_errno, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__
/* The analyzer does not see into error.c: this shows it which value db_fail returns. */
static inline int db_fail_returns(int result, int negative_errno) { return negative_errno; }
#define db_fail(negative_errno, ...) db_fail_returns(db_fail(negative_errno, __VA_ARGS__), negative_errno)
#endif
/* The thread's next message for -EBADMSG, with which a played trace (trace.h) answers, ends in what differs. */
void db_fail_differs(const char *what);
/* The same for functions that return a pointer. */
#define db_fail_null(negative_errno, ...) ((void)db_fail(negative_errno, __VA_ARGS__), NULL)

/* -EINVAL for an argument that is NULL, most often because the call that should have made it failed: the message goes
 * on with that failure. call: the public function's name. */
int db_fail_argument(const char *call, const char *what);
#ifdef __clang_analyzer__
#define db_fail_argument(call, what) db_fail_returns(db_fail_argument(call, what), -1)
#endif
#define db_null(what)    db_fail_argument(__func__, what)
#define db_null_of(what) ((void)db_fail_argument(__func__, what), NULL)

#endif
