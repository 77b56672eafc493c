/* The words that templates are recognized by, and their order, are those of llama.cpp (src/llama-chat.cpp), and so are
 * the texts. The text does not begin with the model's first token, which the tokenizer adds. */
#include "chat.h"
#include "../../hcq/error.h"
#include "gguf.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct chat_format {
  const char *name, *words[2];                        /* a template of this format has these words */
  const char *turn, *next_turn;                       /* before a turn of the user; next_turn: if it is not the first */
  const char *before[CHAT_ROLES], *after[CHAT_ROLES]; /* around a message */
  const char *answer;                                 /* before an answer that the model adds */
  unsigned trimmed;                                   /* bit i: messages of role i lose spaces at both ends */
};
#define BIT(role) (1u << CHAT_##role)
enum { ALL = BIT(SYSTEM) | BIT(USER) | BIT(ASSISTANT) };

/* A format that marks messages of all roles in the same way. */
#define MARKS(begin, end, after_)                                                                                      \
  .before = {begin "system" end, begin "user" end, begin "assistant" end}, .after = {after_, after_, after_},          \
  .answer = begin "assistant" end
#define LLAMA2(system_begin, system_end)                                                                               \
  .turn = "[INST] ", .before = {system_begin}, .after = {system_end, " [/INST]", "</s>"}
/* lead: a space before the marks; space: one after the first mark and before answers. */
#define MISTRAL(lead, space)                                                                                           \
  .turn = lead "[INST]" space, .before = {[CHAT_ASSISTANT] = space}, .after = {"\n\n", lead "[/INST]", "</s>"}

/* The first row whose words are all in a template is its format. */
static const struct chat_format formats[] = {
    {"phi4", {"<|im_start|>", "<|im_sep|>"}, MARKS("<|im_start|>", "<|im_sep|>", "<|im_end|>")},
    {"chatml", {"<|im_start|>"}, MARKS("<|im_start|>", "\n", "<|im_end|>\n")},
    {"mistral-v7",
     {"[INST]", "[SYSTEM_PROMPT]"},
     .before = {"[SYSTEM_PROMPT] ", "[INST] ", " "},
     .after = {"[/SYSTEM_PROMPT]", "[/INST]", "</s>"}},
    {"mistral-v1", {"' [INST] ' + system_message"}, MISTRAL(" ", " ")},
    {"mistral-v1", {"[AVAILABLE_TOOLS]", " [INST]"}, MISTRAL(" ", " ")},
    {"mistral-v3-tekken", {"[AVAILABLE_TOOLS]", "\"[INST]\""}, MISTRAL("", "")},
    {"mistral-v3", {"[AVAILABLE_TOOLS]", "[INST]"}, MISTRAL("", " "), .trimmed = BIT(ASSISTANT)},
    {"llama2-sys-strip", {"[INST]", "content.strip()"}, LLAMA2("<<SYS>>\n", "\n<</SYS>>\n\n"), .trimmed = ALL},
    {"llama2-sys-bos",
     {"[INST]", "bos_token + '[INST]"},
     LLAMA2("<<SYS>>\n", "\n<</SYS>>\n\n"),
     .next_turn = "<s>[INST] "},
    {"llama2-sys", {"[INST]", "<<SYS>>"}, LLAMA2("<<SYS>>\n", "\n<</SYS>>\n\n")},
    {"llama2", {"[INST]"}, LLAMA2("", "\n")},
    {"phi3", {"<|assistant|>", "<|end|>"}, MARKS("<|", "|>\n", "<|end|>\n")},
    {"gemma",
     {"<start_of_turn>"},
     .turn = "<start_of_turn>user\n",
     .before = {[CHAT_ASSISTANT] = "<start_of_turn>model\n"},
     .after = {"\n\n", "<end_of_turn>\n", "<end_of_turn>\n"},
     .answer = "<start_of_turn>model\n",
     .trimmed = ALL},
    {"llama3",
     {"<|start_header_id|>", "<|end_header_id|>"},
     MARKS("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
     .trimmed = ALL},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const struct chat_format *fail_with_names(const char *what, const char *text) {
  char names[300];
  size_t n = 0;
  for (unsigned i = 0; i < FORMATS; i++)
    if (!i || strcmp(formats[i].name, formats[i - 1].name) != 0)
      n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", formats[i].name);
  db_fail(-EINVAL, "not supported: %s '%.60s%s'; the formats are %s", what, text, strlen(text) > 60 ? "..." : "",
          names);
  return NULL;
}

const struct chat_format *chat_format_of_template(const char *text) {
  for (const struct chat_format *f = formats; f < formats + FORMATS; f++)
    if (strstr(text, f->words[0]) && (!f->words[1] || strstr(text, f->words[1]))) return f;
  return fail_with_names("tokenizer.chat_template", text);
}

const struct chat_format *chat_format_find(const char *name, const struct gguf *g) {
  if (name) {
    for (const struct chat_format *f = formats; f < formats + FORMATS; f++)
      if (!strcmp(f->name, name)) return f;
    return fail_with_names("the chat format", name);
  }
  char *text = gguf_text(gguf_find(g, "tokenizer.chat_template"));
  const struct chat_format *f = text ? chat_format_of_template(text) : NULL;
  if (!text) db_fail(-EINVAL, "tokenizer.chat_template: missing; --chat-template NAME chooses a format");
  free(text);
  return f;
}

const char *chat_format_name(const struct chat_format *f) { return f->name; }

enum chat_role chat_role_named(const char *name) {
  static const char *const names[CHAT_ROLES] = {"system", "user", "assistant"};
  enum chat_role role = CHAT_SYSTEM;
  while (role < CHAT_ROLES && strcmp(names[role], name) != 0) role++;
  return role;
}

static void put(struct chat *c, const char *text) {
  if (text) fputs(text, c->out);
}

void chat_message(struct chat *c, enum chat_role role, const char *content) {
  const struct chat_format *f = c->format;
  size_t n = strlen(content);
  if (f->trimmed >> role & 1) {
    while (n && isspace((unsigned char)content[n - 1])) n--;
    while (n && isspace((unsigned char)*content)) content++, n--;
  }
  if (role != CHAT_ASSISTANT && !c->inside) put(c, c->begun && f->next_turn ? f->next_turn : f->turn);
  put(c, f->before[role]);
  fwrite(content, 1, n, c->out);
  put(c, f->after[role]);
  c->begun = true;
  c->inside = role == CHAT_SYSTEM;
}

void chat_begin_answer(struct chat *c) { put(c, c->format->answer); }
void chat_end_answer(struct chat *c) { put(c, c->format->after[CHAT_ASSISTANT]); }
