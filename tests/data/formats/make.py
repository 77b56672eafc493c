#!/usr/bin/env python3
"""Writes the files for tests/frontend/test_formats.c with Python's libraries: python3 make.py FOLDER

Element i of a tensor is i - 2, of a bool tensor i % 2, of an unsigned tensor i."""
import json
import struct
import sys
import numpy as np

folder = sys.argv[1]
TYPES = {"BOOL": np.bool_, "I8": np.int8, "U8": np.uint8, "I16": np.int16, "U16": np.uint16, "I32": np.int32, "U32": np.uint32,
         "I64": np.int64, "U64": np.uint64, "F16": np.float16, "F32": np.float32, "F64": np.float64}


def values(t, *shape):
    n = int(np.prod(shape))
    v = np.arange(n) % 2 if t == "BOOL" else np.arange(n) if t[0] == "U" else np.arange(n) - 2
    return v.astype(TYPES[t]).reshape(shape)


def safetensors(path, tensors):
    """tensors: name -> (dtype, array)"""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (t, a) in tensors.items():
        header[name] = {"dtype": t, "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


tensors = {"layer.%d.%s" % (i, t): (t, values(t, 2, 3)) for i, t in enumerate(TYPES)}
bf16 = (np.arange(4, dtype=np.float32) - 2).view(np.uint32) >> 16
tensors["half brain"] = ("BF16", bf16.astype(np.uint16))
tensors["scalar"] = ("F32", np.float32(-2).reshape(()))
tensors["empty"] = ("F32", values("F32", 0, 4))
safetensors(folder + "/types.safetensors", tensors)
np.savez(folder + "/plain.npz", **{"a": values("F32", 2, 3), "b.weight": values("I64", 4), "empty": values("F32", 0)})
np.savez_compressed(folder + "/packed.npz", **{"a": values("F32", 2, 3), "zeros": np.zeros(1000, np.float16)})
np.save(folder + "/fortran.npy", np.asfortranarray(values("I32", 2, 3)))
np.save(folder + "/scalar.npy", np.float64(-2))
