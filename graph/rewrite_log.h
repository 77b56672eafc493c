/* The rewrites of a thread as text, for people who want to see what the rules do. */
#ifndef DOORBELL_GRAPH_REWRITE_LOG_H
#define DOORBELL_GRAPH_REWRITE_LOG_H
#include <stdio.h>

struct rewrite_log {
  const char *const *stage;
  FILE *f;
  char *text;
  size_t size;
  unsigned n;
};
/* Records this thread's rewrites until rewrite_log_end. *stage names the stage at the time of each. */
void rewrite_log_begin(struct rewrite_log *log, const char *const *stage);
/* Returns the text, which the caller frees, or NULL if memory ran out or log is all zero. A line is a stage, a rule's
 * file and line, the rule, and both sides, separated by tabs. The last line is a number if that many rewrites were left
 * out. */
char *rewrite_log_end(struct rewrite_log *log);
#endif
