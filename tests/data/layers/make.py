#!/usr/bin/env python3
"""Writes PyTorch's layers with parameters, inputs and outputs, for tests/frontend/test_layers.c:
python3 make.py layers.safetensors

The tensors of a layer NAME are: its parameters, with PyTorch's names after "NAME."; the inputs NAME.x, NAME.x2, ...; the
outputs NAME.y, NAME.y2, ...; and NAME.grad, the gradient of the sum of y * y with respect to x."""
import json
import struct
import sys
import torch
from torch import nn

torch.manual_seed(5)
tensors = {}


def layer(name, module, *x, pick=lambda r: r, steps=1):
    x = [t.requires_grad_() if t.is_floating_point() else t for t in x]
    for k, v in module.state_dict().items():
        if "num_batches" not in k:
            tensors["%s.%s" % (name, k)] = v.clone()
    for i in range(steps):
        out = pick(module(*x))
        for k, y in enumerate(out if isinstance(out, tuple) else (out,)):
            tensors["%s.y%s" % (name, k + i + 1 if k + i else "")] = y
    for i, t in enumerate(x):
        tensors["%s.x%s" % (name, i + 1 if i else "")] = t
    y = out[0] if isinstance(out, tuple) else out
    if x[0].is_floating_point():
        (y * y).sum().backward()
        tensors[name + ".grad"] = x[0].grad


layer("linear", nn.Linear(5, 3), torch.randn(2, 4, 5))
layer("conv", nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2), torch.randn(2, 4, 6, 5))
layer("transposed", nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, bias=False), torch.randn(1, 4, 3, 3))
norm = nn.BatchNorm2d(3)
with torch.no_grad():
    norm.weight.uniform_(0.5, 2), norm.bias.uniform_(-1, 1)
layer("batch", norm, torch.randn(4, 3, 2, 2) * 3 + 1, steps=2)
tensors["batch.mean2"], tensors["batch.var2"] = norm.running_mean, norm.running_var
norm.eval()
tensors["batch.y_eval"] = norm(tensors["batch.x"])
for name, norm, shape in (("layer", nn.LayerNorm(5), (2, 3, 5)), ("group", nn.GroupNorm(2, 4), (2, 4, 3)),
                          ("instance", nn.InstanceNorm1d(3, affine=True), (2, 3, 5))):
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2), norm.bias.uniform_(-1, 1)
    layer(name, norm, torch.randn(*shape))
layer("embedding", nn.Embedding(7, 3), torch.tensor([[0, 6, 2], [2, 2, 5]], dtype=torch.int32))
layer("lstm", nn.LSTM(3, 4, 2), torch.randn(5, 2, 3), pick=lambda r: (r[0], r[1][0], r[1][1]))
layer("gru", nn.GRU(3, 4, 2), torch.randn(4, 2, 3), pick=lambda r: (r[0], r[1]))
layer("attention", nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8), pick=lambda r: r[0])
header, data = {}, b""
for name, t in tensors.items():
    raw = t.detach().contiguous().numpy().tobytes()
    header[name] = {"dtype": {torch.float32: "F32", torch.int32: "I32"}[t.dtype], "shape": list(t.shape),
                    "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
