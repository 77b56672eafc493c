/* Formats of chats, as in the templates that are published with the models. */
#include "chat.h"

static const struct chat_format formats[] = {
    {"ChatML", "<|im_start|>", "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n"},
    {"Llama 3", "<|start_header_id|>", "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
    {"Gemma", "<start_of_turn>", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>\n"},
    {"Phi 3", "<|assistant|>", "<|user|>\n", "<|end|>\n<|assistant|>\n", "<|end|>\n"},
    {"Mistral", "[INST]", "[INST]", "[/INST]", "</s>"},
};

const struct chat_format *chat_format_of(const struct tokenizer *t) {
  for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++)
    if (tokenizer_find(t, formats[i].token) >= 0) return &formats[i];
  return NULL;
}
