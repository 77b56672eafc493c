#!/usr/bin/env python3
"""Reference values for tests/frontend/test_{conv,pool,norm,loss,attention}.c, computed by PyTorch: python3 make.py FOLDER

A line is one case:  OP key=value... : TENSOR ; TENSOR... -> TENSOR ~ TENSOR ; TENSOR...
where a TENSOR is dtype[sizes] followed by its elements in row-major order. Behind ~ stand the gradients of the operands of type f32, in their
order, of the sum of the result times weights: element i of the result has weight (i * 7 % 11 - 5) / 4. tol is the largest difference, relative to the
larger of 1 and the expected number.
"""
import itertools
import sys
import torch
import torch.nn.functional as F

torch.manual_seed(3)
out = None
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
         torch.int32: "i32", torch.bool: "bool", torch.uint8: "u8"}


def text(t):
    flat = t.detach().reshape(-1).tolist()
    word = (lambda v: "%.7g" % v) if t.is_floating_point() else (lambda v: str(int(v)))
    return "%s[%s] %s" % (NAMES[t.dtype], ",".join(map(str, t.shape)), " ".join(map(word, flat)))


def values(*shape, lo=-2.0, hi=2.0, dtype=torch.float32):
    if not dtype.is_floating_point:
        return torch.randint(int(lo), int(hi) + 1, shape).to(dtype)
    return ((torch.rand(shape) * (hi - lo) + lo) * 100).round().div(100).to(dtype)


def number(v):
    if isinstance(v, bool):
        return str(int(v))
    if isinstance(v, (list, tuple)):
        return ",".join(map(number, v))
    return str(v)


def case(op, ins, fn, tol=2e-5, grad=True, **keys):
    """fn of the operands, in f64 where they are f32, so that the expected numbers are right to their last digit."""
    half = any(t.dtype in (torch.float16, torch.bfloat16) for t in ins)
    wide = [t.double() if t.is_floating_point() else t for t in ins]
    for t in wide:
        t.requires_grad_(t.is_floating_point() and grad)
    y = fn(*wide)
    line = "%s tol=%g" % (op, 0.02 if half else tol)
    line += "".join(" %s=%s" % (k, number(v)) for k, v in keys.items() if v is not None and v is not False)
    result = y if not y.is_floating_point() else y.to(ins[0].dtype if half else torch.float32)
    line += " : " + " ; ".join(map(text, ins)) + " -> " + text(result)
    if grad and not half and y.requires_grad:
        weight = (torch.arange(y.numel()) * 7 % 11 - 5).reshape(y.shape).double() / 4
        (y * weight).sum().backward()
        line += " ~ " + " ; ".join(text((t.grad if t.grad is not None else torch.zeros_like(t)).float()) for t in wide
                                   if t.is_floating_point())
    print(line, file=out)


# ---- convolutions
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_T = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
SIZES = {1: (9,), 2: (6, 7), 3: (4, 3, 5)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 2, 3)}


def conv(n, batch=2, cin=2, cout=4, groups=1, bias=True, sizes=None, kernel=None, dtype=torch.float32, pads=None, **keys):
    lead = () if batch is None else (batch,)
    x = values(*lead, cin, *(sizes or SIZES[n]), dtype=dtype)
    w = values(cout, cin // groups, *(kernel or KERNELS[n]), dtype=dtype)
    ins = [x, w] + ([values(cout, dtype=dtype)] if bias else [])

    def run(*t):
        k = dict(keys)
        if pads:  # asymmetric: PyTorch pads first
            x = F.pad(t[0], [p for i in reversed(range(n)) for p in pads[2 * i:2 * i + 2]])
            return CONV[n](x, *t[1:], groups=groups, **k)
        return CONV[n](*t, groups=groups, **k)

    same = keys.get("padding") == "same"
    shown = {k: v for k, v in keys.items() if not (k == "padding" and same)}
    if pads:
        shown["padding"] = pads
    case("conv", ins, run, axes=n, groups=groups if groups > 1 else None, same=same, **shown)


def conv_transpose(n, batch=2, cin=4, cout=2, groups=1, bias=True, sizes=None, kernel=None, **keys):
    lead = () if batch is None else (batch,)
    x = values(*lead, cin, *(sizes or {1: (5,), 2: (4, 3), 3: (2, 3, 2)}[n]))
    w = values(cin, cout // groups, *(kernel or KERNELS[n]))
    ins = [x, w] + ([values(cout)] if bias else [])
    case("conv_transpose", ins, lambda *t: CONV_T[n](*t, groups=groups, **keys), axes=n, groups=groups if groups > 1 else None,
         **keys)


def convolutions():
    for n in (1, 2, 3):
        conv(n)
        conv(n, bias=False, stride=2)
        conv(n, padding=1)
        conv(n, dilation=2, sizes=(7, 7, 7)[:n] if n < 3 else (5, 5, 6), cin=1, cout=2)
        conv(n, groups=2, stride=2, padding=1)
        conv(n, groups=2, cin=2, cout=2)
        conv(n, padding="same")
        conv(n, batch=None)
        conv(n, kernel=(1,) * n)
        conv(n, kernel=(1,) * n, stride=2)
        conv(n, kernel=SIZES[n], cin=1)
        conv(n, stride=3, padding=2, dilation=2, batch=1)
        conv(n, pads=[1, 0, 2, 1, 0, 1][:2 * n], batch=1)
        conv_transpose(n)
        conv_transpose(n, stride=2)
        conv_transpose(n, stride=2, padding=1, output_padding=1)
        conv_transpose(n, dilation=2, padding=1, bias=False)
        conv_transpose(n, groups=2, stride=2, batch=None)
        conv_transpose(n, stride=3, dilation=2, output_padding=1, batch=1, cin=2)
    conv(2, stride=(2, 1), padding=(0, 1), dilation=(1, 2))
    conv(2, padding="same", dilation=2, kernel=(2, 3))
    conv(3, stride=(1, 2, 1), padding=(1, 0, 1), batch=1)
    conv(2, groups=4, cin=4, cout=4, padding=1, kernel=(3, 3))
    conv_transpose(2, stride=(2, 1), padding=(1, 0), output_padding=(1, 0))
    conv_transpose(2, groups=4, cin=4, cout=4, stride=2)
    conv(2, dtype=torch.float16, batch=1)
    conv(2, dtype=torch.bfloat16, batch=1)


GROUPS = {"conv": convolutions}

if __name__ == "__main__":
    for name in sys.argv[2:] or GROUPS:
        torch.manual_seed(3)
        with open("%s/%s.txt" % (sys.argv[1], name), "w") as out:
            GROUPS[name]()
