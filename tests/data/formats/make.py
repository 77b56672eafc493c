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


def torch_file(path):
    """PyTorch's format. The names are those of test_formats.c."""
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(3, 2)).half()
    with torch.no_grad():
        net[0].weight.copy_(torch.arange(6).reshape(2, 3) - 2), net[0].bias.copy_(torch.arange(2) - 2)
    base = torch.arange(12, dtype=torch.float32) - 3
    torch.save({"model": net.state_dict(), "epoch": 3, "lr": 0.1, "big": 12345678901234, "none": None, "size": base.shape,
                "list": [(torch.arange(6) - 2).reshape(3, 2).t().contiguous().t(), base[1:7].reshape(2, 3), base[1:7]],
                7: torch.arange(3).to(torch.uint16), "f8": (torch.arange(4) - 2.0).to(torch.float8_e4m3fn),
                "half": (torch.arange(4) - 2.0).bfloat16(), "parameter": torch.nn.Parameter(torch.arange(2) - 2.0),
                "mask": torch.arange(4) % 2 == 1, "empty": torch.zeros(0, 4), "scalar": torch.tensor(-2.0)}, path)


torch_file(folder + "/torch.pt")
