"""Writes a random llama model of 1.1 B parameters whose matrices have one quantized type, to measure speed
(frontend/llm/README.md).

Usage: make_llama.py TYPE FILE.gguf    TYPE: Q4_0 to Q8_0, Q2_K to Q6_K, as in llama.cpp's names
Needs PyPI's gguf. The same type always gives the same file.

22 layers, 2048 wide, 5632 in the feed-forward parts, 32 heads with 4 of keys and values, 32000 tokens: the shape of
TinyLlama. Blocks are random bytes. Only their f16 factors are chosen, so that the values of a matrix have the mean 0
and the standard deviation 1 / sqrt(columns), and activations keep their size from layer to layer.
"""
import sys

import gguf
import numpy as np

LAYERS, WIDTH, FEED, HEADS, KV, WORDS, CONTEXT = 22, 2048, 5632, 32, 4, 32000, 2048
# By type: the places of f16 numbers in a block, and their ratio with which the mean of random blocks is near 0.
PLACES = {
    "Q4_0": [(0, 1)], "Q4_1": [(0, 1), (2, -7.5)], "Q5_0": [(0, 1)], "Q5_1": [(0, 1), (2, -15.5)], "Q8_0": [(0, 1)],
    "Q2_K": [(80, 1), (82, 1.5)], "Q3_K": [(108, 1)], "Q4_K": [(0, 1), (2, 7.5)], "Q5_K": [(0, 1), (2, 15.5)],
    "Q6_K": [(208, 1)],
}


def set_factors(blocks, places, factor):
    for at, ratio in places:
        blocks[:, at:at + 2] = np.full(len(blocks), factor * ratio).astype(np.float16).view(np.uint8).reshape(-1, 2)


def matrix(rng, kind, rows, columns):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.frombuffer(rng.bytes(rows * columns // elements * size), np.uint8).reshape(-1, size).copy()
    sample = blocks[:1024].copy()
    set_factors(sample, PLACES[kind.name], 1)
    deviation = gguf.dequantize(sample, kind).std()
    set_factors(blocks, PLACES[kind.name], 1 / deviation / columns ** 0.5)
    return blocks.reshape(rows, -1)


def shapes():
    """(name, rows, columns) of every matrix."""
    yield "token_embd", WORDS, WIDTH
    yield "output", WORDS, WIDTH
    wide = WIDTH // HEADS * KV
    for i in range(LAYERS):
        for name, rows, columns in [
            ("attn_q", WIDTH, WIDTH), ("attn_k", wide, WIDTH), ("attn_v", wide, WIDTH), ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", FEED, WIDTH), ("ffn_up", FEED, WIDTH), ("ffn_down", WIDTH, FEED),
        ]:
            yield f"blk.{i}.{name}", rows, columns


def write_numbers(w):
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FEED)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(WIDTH // HEADS)
    w.add_rope_freq_base(10000.0)
    w.add_vocab_size(WORDS)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>", "\u2581"] + [f"t{i}" for i in range(WORDS - 4)])
    w.add_token_scores([-float(i) for i in range(WORDS)])
    w.add_token_types([2, 3, 3] + [1] * (WORDS - 3))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PLACES:
        sys.exit(__doc__)
    kind, rng = gguf.GGMLQuantizationType[sys.argv[1]], np.random.default_rng(7)
    w = gguf.GGUFWriter(sys.argv[2], "llama")
    write_numbers(w)
    for name, rows, columns in shapes():
        w.add_tensor(name + ".weight", matrix(rng, kind, rows, columns), raw_dtype=kind)
    ones = np.ones(WIDTH, np.float32)
    for name in ["output_norm"] + [f"blk.{i}.{n}" for i in range(LAYERS) for n in ("attn_norm", "ffn_norm")]:
        w.add_tensor(name + ".weight", ones)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
