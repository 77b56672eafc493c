/* Records the rewrites of a thread as text. */
#include "rewrite_log.h"
#include "rules.h"

enum { MOST = 1000 /* rewrites that are recorded */, SIDE = 240 /* bytes of an expression */ };

static void add_rewrite(void *ctx, const struct ruleset *s, const struct rule *rule, const struct uop *before,
                        const struct uop *after) {
  struct rewrite_log *log = ctx;
  char from[SIDE], to[SIDE];
  if (log->n++ >= MOST) return;
  fprintf(log->f, "%s\t%s:%u\t%s\t%s\t%s\n", *log->stage, s->file, rule->line, rule->text,
          uop_expr(before, from, sizeof from), uop_expr(after, to, sizeof to));
}

void rewrite_log_begin(struct rewrite_log *log, const char *const *stage) {
  *log = (struct rewrite_log){.stage = stage};
  log->f = open_memstream(&log->text, &log->size);
  if (log->f) graph_watch_rewrites(add_rewrite, log);
}

char *rewrite_log_end(struct rewrite_log *log) {
  if (!log->f) return NULL;
  graph_watch_rewrites(NULL, NULL);
  if (log->n > MOST) fprintf(log->f, "%u\n", log->n - MOST);
  fclose(log->f);
  return log->text;
}
