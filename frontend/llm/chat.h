/* The texts around the messages of a chat. Each model was trained with one format, which its file has as a template
 * (tokenizer.chat_template). Templates are programs; known formats are recognized by words in them. */
#ifndef DOORBELL_FRONTEND_LLM_CHAT_H
#define DOORBELL_FRONTEND_LLM_CHAT_H
#include <stdbool.h>
#include <stdio.h>

struct gguf;
enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES };
struct chat_format;
/* The format of a template. Returns NULL with a message if it is unknown. */
const struct chat_format *chat_format_of_template(const char *text);
/* The same of a file's template, or the format with this name if name is not NULL. */
const struct chat_format *chat_format_find(const char *name, const struct gguf *g);
const char *chat_format_name(const struct chat_format *f);
/* The role "system", "user" or "assistant"; CHAT_ROLES if it is another. */
enum chat_role chat_role_named(const char *name);

/* A chat that is written as text. */
struct chat {
  const struct chat_format *format;
  FILE *out;
  bool begun, inside; /* inside: in a turn of the user, which may begin with a system message */
};
void chat_message(struct chat *c, enum chat_role role, const char *content);
/* What precedes an answer of the model, and what follows it. */
void chat_begin_answer(struct chat *c);
void chat_end_answer(struct chat *c);
#endif
