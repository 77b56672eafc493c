/* The thread's last failure: what db_error() returns. */
#ifndef DOORBELL_HCQ_ERROR_H
#define DOORBELL_HCQ_ERROR_H

/* Stores the formatted message for db_error() and returns negative_errno. `return db_fail(-EINVAL, ...)` is the only
 * way to fail. An argument may be the previous message itself: db_fail(err, "loading %s: %s", name, db_error()). */
int db_fail(int negative_errno, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__
/* The analyzer does not see into error.c; this shows it which value db_fail returns. */
static inline int db_fail_returns(int result, int negative_errno) { return negative_errno; }
#define db_fail(negative_errno, ...) db_fail_returns(db_fail(negative_errno, __VA_ARGS__), negative_errno)
#endif
/* Appends `what` to the thread's next message for -EBADMSG, which a played trace (trace.h) returns when a call differs
 * from the recording. */
void db_fail_differs(const char *what);
/* Like db_fail, for functions that return a pointer. */
#define db_fail_null(negative_errno, ...) ((void)db_fail(negative_errno, __VA_ARGS__), NULL)

/* Fails with -EINVAL because an argument is NULL. Usually the call that should have made the object failed, so the
 * message repeats that failure. call: name of the public function; what: the argument. */
int db_fail_argument(const char *call, const char *what);
#ifdef __clang_analyzer__
#define db_fail_argument(call, what) db_fail_returns(db_fail_argument(call, what), -1)
#endif
#define db_null(what)    db_fail_argument(__func__, what)
#define db_null_of(what) ((void)db_fail_argument(__func__, what), NULL)

#endif
