"""Writes the GGUF files of tests/frontend/test_gguf.c and of fuzz_gguf. Needs PyPI's gguf 0.19 and NumPy.

values.gguf: metadata of every type and tensors of a few types.
quantized.gguf: random blocks of every quantized type, and as F32 tensors the values that gguf-py computes from them.
"""
import os
import sys

import gguf
import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
SEEDS = os.path.join(FOLDER, "../../fuzz/seeds/fuzz_gguf")
ROWS, COLUMNS = 2, 512
# Where the blocks of a type have f16 numbers. They are finite and not large; the other bytes are random.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def values(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_uint8("a.u8", 200)
    w.add_int8("a.i8", -100)
    w.add_uint16("a.u16", 60000)
    w.add_int16("a.i16", -30000)
    w.add_uint32("a.u32", 4000000000)
    w.add_int32("a.i32", -2000000000)
    w.add_uint64("a.u64", 1 << 63)
    w.add_int64("a.i64", -(1 << 62))
    w.add_float32("a.f32", 0.5)
    w.add_float64("a.f64", 1e300)
    w.add_bool("a.bool", True)
    w.add_string("a.string", "Grüße")
    w.add_array("a.strings", ["one", "", "three"])
    w.add_array("a.integers", [-1, 2, 3, 4, 5, 6, 7, 8])
    w.add_array("a.numbers", [0.25, -1.5])
    w.add_array("a.bools", [True, False])
    w.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("f16", np.arange(8, dtype=np.float16).reshape(2, 2, 2))
    w.add_tensor("q8", np.zeros((3, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    finish(w)


def quantized(path):
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "llama")
    for name, places in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
        for at in places:
            scale = (rng.standard_normal(len(blocks)) * 0.1).astype(np.float16)
            scale[0] = 1e-7  # subnormal
            blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
        blocks = blocks.reshape(ROWS, -1)
        w.add_tensor(name, blocks, raw_dtype=kind)
        w.add_tensor(name + ".values", gguf.dequantize(blocks, kind).astype(np.float32))
    bf16 = rng.standard_normal((ROWS, 32)).astype(np.float32)
    bits = (bf16.view(np.uint32) >> 16).astype(np.uint16)
    w.add_tensor("BF16", bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.add_tensor("BF16.values", (bits.astype(np.uint32) << 16).view(np.float32))
    finish(w)


def main():
    os.makedirs(SEEDS, exist_ok=True)
    values(os.path.join(FOLDER, "values.gguf"))
    quantized(os.path.join(FOLDER, "quantized.gguf"))
    values(os.path.join(SEEDS, "values"))


if __name__ == "__main__":
    sys.exit(main())
