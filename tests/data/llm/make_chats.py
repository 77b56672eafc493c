"""Writes chats in the format of each family, as llama.cpp writes them (tests/frontend/test_llm.c). Needs PyPI's
llama-cpp-python.

chats.json: a list of {"name", "template", "chat", "text"}. The templates are short and have the words that llama.cpp looks for.
"""
import ctypes
import json
import os

import llama_cpp

FOLDER = os.path.dirname(os.path.abspath(__file__))
LOOP = "{% for m in messages %}"
TEMPLATES = {
    "chatml": LOOP + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "phi4": LOOP + "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}",
    "mistral-v7": LOOP + "[SYSTEM_PROMPT] {{ m.content }}[/SYSTEM_PROMPT] [INST] {{ m.content }}[/INST]{% endfor %}",
    "mistral-v1": LOOP + "{{ ' [INST] ' + system_message + ' [/INST]' }}{% endfor %}",
    "mistral-v3": "[AVAILABLE_TOOLS]" + LOOP + "{{ '[INST] ' + m.content + '[/INST]' }}{% endfor %}",
    "mistral-v3-tekken": "[AVAILABLE_TOOLS]" + LOOP + '{{ "[INST]" + m.content + "[/INST]" }}{% endfor %}',
    "llama2": LOOP + "[INST] {{ m.content }} [/INST]{% endfor %}",
    "llama2-sys": LOOP + "[INST] <<SYS>>{{ m.content }} [/INST]{% endfor %}",
    "llama2-sys-bos": LOOP + "{{ bos_token + '[INST] <<SYS>>' + m.content }} [/INST]{% endfor %}",
    "llama2-sys-strip": LOOP + "[INST] <<SYS>>{{ m.content.strip() }} [/INST]{% endfor %}",
    "phi3": LOOP + "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}<|assistant|>\n",
    "gemma": LOOP + "<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}",
    "llama3": LOOP + "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}",
}
CHAT = [("system", " Be brief. "), ("user", " What is a queue?\n"), ("assistant", " A list. "), ("user", "Thanks")]


def apply(template, chat):
    messages = (llama_cpp.llama_chat_message * len(chat))(
        *[llama_cpp.llama_chat_message(role.encode(), text.encode()) for role, text in chat])
    out = ctypes.create_string_buffer(4096)
    n = llama_cpp.llama_chat_apply_template(template.encode(), messages, len(chat), True, out, len(out))
    assert 0 < n <= len(out), template
    return out.raw[:n].decode()


def main():
    rows = [{"name": name, "template": t, "chat": chat, "text": apply(t, chat)}
            for name, t in TEMPLATES.items() for chat in [CHAT, CHAT[1:]]]
    with open(os.path.join(FOLDER, "chats.json"), "w") as f:
        json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
