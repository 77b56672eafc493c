#!/usr/bin/env python3
"""Writes mixed.safetensors: a small network that PyTorch trains with torch.amp on the CPU.

The network: conv 1 -> 4 channels, batch normalization, relu, linear 64 -> 16, layer normalization, gelu, linear 16 -> 4,
cross-entropy; Adam. It has the initial parameters, the batches x [STEPS, 8, 1, 6, 6] and t [STEPS, 8], and for each of
f32, f16 and bf16 the losses, and for f16 the factor of GradScaler before every step. The first factors are too large, so
the first steps are skipped; the factor doubles after 6 good steps.
"""
import json
import struct
import torch
import torch.nn.functional as F

STEPS, FIRST, INTERVAL = 40, 2.0**22, 8

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.batch = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
        self.hidden, self.norm, self.out = torch.nn.Linear(64, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.batch(self.conv(x))).flatten(1)
        return self.out(F.gelu(self.norm(self.hidden(x))))

torch.manual_seed(5)
first = Net().state_dict()
t = torch.randint(0, 4, (STEPS, 8))
x = torch.randn(STEPS, 8, 1, 6, 6) + torch.randn(4, 1, 6, 6)[t]
data = {k: v.clone() for k, v in first.items() if v.dtype == torch.float32}
data.update(x=x, t=t)
for name, dtype in (("f32", None), ("bf16", torch.bfloat16), ("f16", torch.float16)):
    net = Net()
    net.load_state_dict({k: v.clone() for k, v in first.items()})
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=FIRST, growth_interval=INTERVAL, enabled=name == "f16")
    losses, factors = [], []
    for i in range(STEPS):
        adam.zero_grad()
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(net(x[i]), t[i])
        factors.append(scaler.get_scale())
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        losses.append(loss.item())
    data[name + ".loss"] = torch.tensor(losses, dtype=torch.float32)
    if name == "f16":
        data["f16.scale"] = torch.tensor(factors, dtype=torch.float32)
head, at = {}, 0
for name, v in data.items():
    n = v.numel() * v.element_size()
    head[name] = {"dtype": "I64" if v.dtype == torch.int64 else "F32", "shape": list(v.shape), "data_offsets": [at, at + n]}
    at += n
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
with open("mixed.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for v in data.values():
        f.write(v.contiguous().numpy().tobytes())
