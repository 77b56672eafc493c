"""Writes a random llama model of 1.1 B parameters whose matrices have one type, to measure speed
(frontend/llm/README.md).

Usage: make_llama.py TYPE FILE.gguf [--layers N] [--feed N] [--experts N --used N]
TYPE: F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, as in llama.cpp's names. Needs PyPI's gguf. The same arguments always
give the same file.

22 layers, 2048 wide, 5632 in the feed-forward parts, 32 heads with 4 of keys and values, 32000 tokens: the shape of
TinyLlama. With experts, each feed-forward part is a mixture: a token uses a few of the experts. Blocks are random
bytes. Only their f16 factors are chosen, so that the values of a matrix have the mean 0 and the standard deviation
1 / sqrt(columns), and activations keep their size from layer to layer.
"""
import argparse
import sys

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports of packages that may be missing
    print(__doc__)
    sys.exit()

import gguf
import numpy as np

WIDTH, HEADS, KV, WORDS, CONTEXT = 2048, 32, 4, 32000, 2048
# By type: the places of f16 numbers in a block, and their ratio with which the mean of random blocks is near 0.
PLACES = {
    "Q4_0": [(0, 1)], "Q4_1": [(0, 1), (2, -7.5)], "Q5_0": [(0, 1)], "Q5_1": [(0, 1), (2, -15.5)], "Q8_0": [(0, 1)],
    "Q2_K": [(80, 1), (82, 1.5)], "Q3_K": [(108, 1)], "Q4_K": [(0, 1), (2, 7.5)], "Q5_K": [(0, 1), (2, 15.5)],
    "Q6_K": [(208, 1)], "F32": [], "F16": [], "BF16": [],
}


def set_factors(blocks, places, factor):
    for at, ratio in places:
        blocks[:, at:at + 2] = np.full(len(blocks), factor * ratio).astype(np.float16).view(np.uint8).reshape(-1, 2)


def matrix(rng, kind, rows, columns):
    if not PLACES[kind.name]:
        x = rng.standard_normal((rows, columns), np.float32)
        x *= np.float32(columns ** -0.5)
        return gguf.quantize(x, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.frombuffer(rng.bytes(rows * columns // elements * size), np.uint8).reshape(-1, size).copy()
    sample = blocks[:1024].copy()
    set_factors(sample, PLACES[kind.name], 1)
    deviation = gguf.dequantize(sample, kind).std()
    set_factors(blocks, PLACES[kind.name], 1 / deviation / columns ** 0.5)
    return blocks.reshape(rows, -1)


def shapes(args):
    """(name, experts or 0, rows, columns) of every matrix."""
    yield "token_embd", 0, WORDS, WIDTH
    yield "output", 0, WORDS, WIDTH
    wide, n, end = WIDTH // HEADS * KV, args.experts, "_exps" if args.experts else ""
    for i in range(args.layers):
        for name, experts, rows, columns in [
            ("attn_q", 0, WIDTH, WIDTH), ("attn_k", 0, wide, WIDTH), ("attn_v", 0, wide, WIDTH),
            ("attn_output", 0, WIDTH, WIDTH), ("ffn_gate" + end, n, args.feed, WIDTH),
            ("ffn_up" + end, n, args.feed, WIDTH), ("ffn_down" + end, n, WIDTH, args.feed),
        ]:
            yield f"blk.{i}.{name}", experts, rows, columns


def write_numbers(w, args):
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(args.layers)
    w.add_feed_forward_length(args.feed)
    if args.experts:
        w.add_expert_count(args.experts)
        w.add_expert_used_count(args.used)
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
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1])
    parser.add_argument("type", choices=PLACES)
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--feed", type=int, default=5632)
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--used", type=int, default=2)
    args = parser.parse_args()
    kind, rng = gguf.GGMLQuantizationType[args.type], np.random.default_rng(7)
    w = gguf.GGUFWriter(args.file, "llama")
    write_numbers(w, args)
    for name, experts, rows, columns in shapes(args):
        values = matrix(rng, kind, max(experts, 1) * rows, columns)
        w.add_tensor(name + ".weight", values.reshape(experts, rows, -1) if experts else values, raw_dtype=kind)
    ones = np.ones(WIDTH, np.float32)
    for name in ["output_norm"] + [f"blk.{i}.{n}" for i in range(args.layers) for n in ("attn_norm", "ffn_norm")]:
        w.add_tensor(name + ".weight", ones)
    for i in range(args.layers if args.experts else 0):
        router = rng.standard_normal((args.experts, WIDTH), np.float32) * np.float32(WIDTH ** -0.5)
        w.add_tensor(f"blk.{i}.ffn_gate_inp.weight", router)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    sys.exit(main())
