"""Writes small random models of every architecture, and the logits that llama.cpp computes for them
(tests/frontend/test_llm.c). Needs PyPI's gguf and llama-cpp-python.

NAME.gguf: the model. logits.json: {NAME: {"tokens", "prompt", "logits", "greedy"}}: the logits after the prompt, the first tokens, and after
each further token; and the most likely tokens after the prompt. Of mistral there are none, because llama.cpp ignores
the window of this architecture. Models whose name is a type have all matrices in this type.

Weights are small multiples of 1/64, so that the files compress well.
"""
import json
import os
import zlib

import gguf
import llama_cpp
import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
HEADS, KV, LAYERS, WORDS, CONTEXT = 4, 2, 2, 64, 256
PROMPT, TOKENS, GREEDY = 13, 18, 200

# name: (architecture, options)
MODELS = {
    "llama": ("llama", {}),
    "llama-linear": ("llama", {"scaling": "linear"}),
    "llama-yarn": ("llama", {"scaling": "yarn"}),
    "mistral": ("llama", {"window": 4}),
    "llama3": ("llama", {"freqs": True, "tied": True}),
    "mixtral": ("llama", {"experts": 4}),
    "qwen2": ("qwen2", {"bias": True, "tied": True, "chat": True}),
    "qwen2moe": ("qwen2moe", {"bias": True, "experts": 4, "shared": True}),
    "qwen3": ("qwen3", {"head_norm": True}),
    "qwen3moe": ("qwen3moe", {"head_norm": True, "experts": 4}),
    "gemma": ("gemma", {"tied": True}),
    "gemma2": ("gemma2", {"tied": True, "post_norm": True, "window": 6, "caps": True}),
    "gemma3": ("gemma3", {"tied": True, "post_norm": True, "head_norm": True, "window": 6, "layers": 7}),
    "phi3": ("phi3", {"fused": True}),
    "phi3-long": ("phi3", {"fused": True, "scaling": "longrope"}),
    "types": ("llama", {"width": 256, "head": 64, "feed": 256, "layers": 1, "types": True}),
    "gpt2": ("gpt2", {"fused": True, "layer_norm": True, "positions": True, "kv": HEADS}),
}
# The types of the matrices of a quantized model, each with the places of the f16 numbers in its blocks.
TYPES = {
    "blk.0.attn_q": ("Q4_K", [0, 2]), "blk.0.attn_k": ("Q2_K", [80, 82]), "blk.0.attn_v": ("Q3_K", [108]),
    "blk.0.attn_output": ("Q6_K", [208]), "blk.0.ffn_gate": ("Q5_K", [0, 2]), "blk.0.ffn_up": ("Q8_0", [0]),
    "blk.0.ffn_down": ("Q4_0", [0]), "output": ("Q5_0", [0]), "token_embd": ("Q4_1", [0, 2]),
}


# Models with all matrices of one type. Each has the places of the f16 numbers in its blocks and their ratio, with which
# the mean of random blocks is near 0.
UNIFORM = {
    "F16": [], "BF16": [], "Q4_0": [(0, 1)], "Q4_1": [(0, 1), (2, -7.5)], "Q5_0": [(0, 1)],
    "Q5_1": [(0, 1), (2, -15.5)], "Q8_0": [(0, 1)], "Q2_K": [(80, 1), (82, 1.5)], "Q3_K": [(108, 1)],
    "Q4_K": [(0, 1), (2, 7.5)], "Q5_K": [(0, 1), (2, 15.5)], "Q6_K": [(208, 1)],
}
for TYPE in UNIFORM:
    SUPER = TYPE.endswith("_K")  # blocks of 256 elements
    MODELS[TYPE] = ("llama", {"uniform": TYPE, "width": 256 if SUPER else 64, "head": 64 if SUPER else 16,
                              "kv": 1 if SUPER else KV, "feed": 256 if SUPER else 64, "layers": 1})
MODELS["Q8_0-blocks"] = ("llama", {**MODELS["Q8_0"][1], "feed": 160})  # 5 blocks, which devices do not divide
MODELS["Q8_0-heads"] = ("llama", {**MODELS["Q8_0"][1], "heads": 6})  # for 3 devices, which do not divide 2 heads of keys
for TYPE in ("Q8_0", "Q4_1"):
    MODELS[TYPE + "-moe"] = ("llama", {**MODELS[TYPE][1], "experts": 4})


class Model:
    def __init__(self, name, arch, options):
        self.o = options
        self.heads = options.get("heads", HEADS)
        self.width, self.head, self.feed = (options.get(k, n) for k, n in
                                            [("width", 32), ("head", 8), ("feed", 48)])
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.w = gguf.GGUFWriter(os.path.join(FOLDER, name + ".gguf"), arch)

    def tensor(self, name, *shape, spread=12, middle=0):
        x = (self.rng.integers(-spread, spread + 1, shape) + middle).astype(np.float32) / 64
        self.w.add_tensor(name, x)

    def blocks(self, name, rows, columns):
        """Random blocks, whose f16 numbers are small."""
        kind, places = TYPES[name]
        kind = gguf.GGMLQuantizationType[kind]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        b = self.rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
        steps = 20 * (32 if kind.name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K") else 1)
        for at in places:
            scale = np.full(len(b), 1 / 16 / steps if at == places[0] else 1 / 64 / steps)
            b[:, at:at + 2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
        self.w.add_tensor(name + ".weight", b.reshape(rows, -1), raw_dtype=kind)

    def uniform(self, name, rows, columns, experts=0):
        """Random blocks whose values have the standard deviation 1 / sqrt(columns)."""
        kind = gguf.GGMLQuantizationType[self.o["uniform"]]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        each, rows = rows, rows * max(experts, 1)
        if not UNIFORM[kind.name]:
            x = self.rng.standard_normal((rows, columns)).astype(np.float32) / columns ** 0.5
            b = gguf.quantize(x, kind)
        else:
            b = self.rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
            for scale in [1, 0]:
                for at, ratio in UNIFORM[kind.name]:
                    f16 = np.full(len(b), (scale or 1 / columns ** 0.5 / deviation) * ratio).astype(np.float16)
                    b[:, at:at + 2] = f16.view(np.uint8).reshape(-1, 2)
                deviation = gguf.dequantize(b, kind).std()
            b = b.reshape(rows, -1)
        b = b.reshape(experts, each, -1) if experts else b
        self.w.add_tensor(name + ".weight", b, raw_dtype=kind)

    def norm(self, name, size=0):
        size = size or self.width
        self.tensor(name + ".weight", size, middle=64)
        if self.o.get("layer_norm"):
            self.tensor(name + ".bias", size)

    def linear(self, name, rows, columns, bias=False, experts=0):
        shape = (experts, rows, columns) if experts else (rows, columns)
        if self.o.get("uniform"):
            self.uniform(name, rows, columns, experts)
        elif self.o.get("types"):
            self.blocks(name, rows, columns)
        else:
            self.tensor(name + ".weight", *shape)
        if bias:
            self.tensor(name + ".bias", rows)

    def numbers(self, kv, layers):
        w, o = self.w, self.o
        w.add_context_length(CONTEXT)
        w.add_embedding_length(self.width)
        w.add_block_count(layers)
        w.add_feed_forward_length(self.feed)
        w.add_head_count(self.heads)
        w.add_head_count_kv(kv)
        w.add_key_length(self.head)
        w.add_value_length(self.head)
        w.add_vocab_size(WORDS)
        if o.get("layer_norm"):
            w.add_layer_norm_eps(1e-5)
        else:
            w.add_layer_norm_rms_eps(1e-5)
            w.add_rope_dimension_count(self.head)
            w.add_rope_freq_base(1000.0)
        if o.get("scaling"):
            w.add_rope_scaling_type(gguf.RopeScalingType(o["scaling"]))
            w.add_rope_scaling_factor(4.0)
            w.add_rope_scaling_attn_factors(1.25 if o["scaling"] == "longrope" else 1.0)
            w.add_rope_scaling_orig_ctx_len(16)
        if o.get("window"):
            w.add_sliding_window(o["window"])
        if o.get("caps"):
            w.add_attn_logit_softcapping(5.0)
            w.add_final_logit_softcapping(3.0)
        if o.get("experts"):
            w.add_expert_count(o["experts"])
            w.add_expert_used_count(2)
            w.add_expert_feed_forward_length(self.feed)
        if o.get("shared"):
            w.add_expert_shared_feed_forward_length(self.feed)

    def vocabulary(self):
        """<unk>, <s>, </s>, the space and letters."""
        texts = ["<unk>", "<s>", "</s>", "\u2581"] + [chr(ord("!") + i) for i in range(WORDS - 4)]
        w = self.w
        w.add_tokenizer_model("llama")
        if self.o.get("chat"):
            texts[-2:] = ["<|im_start|>", "<|im_end|>"]
            w.add_chat_template("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
        w.add_token_list(texts)
        w.add_token_scores([-float(i) for i in range(WORDS)])
        w.add_token_types([2, 3, 3] + [1] * (WORDS - 5) + [3 if self.o.get("chat") else 1] * 2)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_unk_token_id(0)

    def attention(self, b, kv):
        o = self.o
        self.norm(b + "attn_norm")
        bias = bool(o.get("bias"))
        if o.get("fused"):
            self.linear(b + "attn_qkv", (self.heads + 2 * kv) * self.head, self.width, bool(o.get("layer_norm")))
        else:
            self.linear(b + "attn_q", self.heads * self.head, self.width, bias)
            self.linear(b + "attn_k", kv * self.head, self.width, bias)
            self.linear(b + "attn_v", kv * self.head, self.width, bias)
        self.linear(b + "attn_output", self.width, self.heads * self.head, bool(o.get("layer_norm")))
        if o.get("head_norm"):
            self.norm(b + "attn_q_norm", self.head)
            self.norm(b + "attn_k_norm", self.head)
        if o.get("post_norm"):
            self.norm(b + "post_attention_norm")
            self.norm(b + "post_ffw_norm")

    def feed_forward(self, b):
        o = self.o
        self.norm(b + "ffn_norm")
        if o.get("experts"):
            n = o["experts"]
            self.tensor(b + "ffn_gate_inp.weight", n, self.width)
            self.linear(b + "ffn_gate_exps", self.feed, self.width, experts=n)
            self.linear(b + "ffn_up_exps", self.feed, self.width, experts=n)
            self.linear(b + "ffn_down_exps", self.width, self.feed, experts=n)
            if o.get("shared"):
                self.tensor(b + "ffn_gate_inp_shexp.weight", self.width)
                self.linear(b + "ffn_gate_shexp", self.feed, self.width)
                self.linear(b + "ffn_up_shexp", self.feed, self.width)
                self.linear(b + "ffn_down_shexp", self.width, self.feed)
            return
        if o.get("layer_norm"):
            self.linear(b + "ffn_up", self.feed, self.width, True)
        elif o.get("fused"):
            self.linear(b + "ffn_up", 2 * self.feed, self.width)
        else:
            self.linear(b + "ffn_gate", self.feed, self.width)
            self.linear(b + "ffn_up", self.feed, self.width)
        self.linear(b + "ffn_down", self.width, self.feed, bool(o.get("layer_norm")))

    def write(self):
        o = self.o
        kv, layers = o.get("kv", KV), o.get("layers", LAYERS)
        self.numbers(kv, layers)
        self.vocabulary()
        self.linear("token_embd", WORDS, self.width)
        if o.get("positions"):
            self.linear("position_embd", CONTEXT, self.width)
        self.norm("output_norm")
        if not o.get("tied"):
            self.linear("output", WORDS, self.width)
        if o.get("freqs"):
            self.w.add_tensor("rope_freqs.weight", np.array([1, 1.5, 4, 8], np.float32))
        if o.get("scaling") == "longrope":
            self.w.add_tensor("rope_factors_long.weight", np.array([1, 1.5, 4, 8], np.float32))
            self.w.add_tensor("rope_factors_short.weight", np.array([1, 1.25, 2, 3], np.float32))
        for i in range(layers):
            self.attention("blk.%d." % i, kv)
            self.feed_forward("blk.%d." % i)
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def logits_of(name):
    tokens = [int(t) for t in np.random.default_rng(7).integers(3, WORDS, TOKENS)]
    m = llama_cpp.Llama(os.path.join(FOLDER, name + ".gguf"), n_ctx=CONTEXT, n_batch=CONTEXT, n_threads=1,
                        logits_all=True, verbose=False)
    m.eval(tokens)
    rows = [[round(float(x), 5) for x in row] for row in m.scores[PROMPT - 1:TOKENS]]
    m.reset()
    m.eval(tokens[:PROMPT])
    greedy = []
    while len(greedy) < GREEDY:
        greedy.append(int(np.argmax(m.scores[m.n_tokens - 1])))
        m.eval(greedy[-1:])
    return {"tokens": tokens, "prompt": PROMPT, "logits": rows, "greedy": greedy}


def main():
    out = {}
    for name, (arch, options) in MODELS.items():
        Model(name, arch, options).write()
        if name != "mistral":
            out[name] = logits_of(name)
    with open(os.path.join(FOLDER, "logits.json"), "w") as f:
        json.dump(out, f)


if __name__ == "__main__":
    main()
