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


# ---- pools and interpolation
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {("adaptive_max_pool", n): f for n, f in ((1, F.adaptive_max_pool1d), (2, F.adaptive_max_pool2d), (3, F.adaptive_max_pool3d))}
ADAPTIVE.update({("adaptive_avg_pool", n): f for n, f in ((1, F.adaptive_avg_pool1d), (2, F.adaptive_avg_pool2d), (3, F.adaptive_avg_pool3d))})


def distinct(*shape):
    """No two elements are the same, so that every maximum has one place."""
    n = 1
    for s in shape:
        n *= s
    return (torch.randperm(n).float() / 8 - n / 16).reshape(shape)


def max_pool(n, kernel, sizes=None, batch=2, dtype=torch.float32, **keys):
    x = distinct(*(() if batch is None else (batch,)), 2, *(sizes or SIZES[n])).to(dtype)
    case("max_pool", [x], lambda t: MAX_POOL[n](t.double(), kernel, **keys).to(t.dtype), axes=n, kernel=kernel, **keys)


def avg_pool(n, kernel, sizes=None, batch=2, dtype=torch.float32, **keys):
    x = values(*(() if batch is None else (batch,)), 2, *(sizes or SIZES[n]), dtype=dtype)
    shown = {k: v for k, v in keys.items() if k != "count_include_pad"}
    case("avg_pool", [x], lambda t: AVG_POOL[n](t, kernel, **keys), axes=n, kernel=kernel, exclude=not keys.get("count_include_pad", True), **shown)


def adaptive(op, n, sizes, shape, batch=2):
    x = distinct(*(() if batch is None else (batch,)), 2, *shape)
    case(op, [x], lambda t: ADAPTIVE[op, n](t, sizes), axes=n, sizes=sizes)


def interpolate(shape, mode, sizes=None, scale=None, align=None, dtype=torch.float32):
    x = values(2, 2, *shape, dtype=dtype)
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(shape)]
    case("interpolate", [x], lambda t: F.interpolate(t, size=sizes, scale_factor=scale, mode=linear if mode == "linear" else mode,
                                                     align_corners=align).to(t.dtype), mode=mode, sizes=sizes, scale=scale, align=align)


def pools():
    for n in (1, 2, 3):
        max_pool(n, 2)
        max_pool(n, 3, stride=1)
        max_pool(n, 3, stride=2, padding=1)
        max_pool(n, 2, ceil_mode=True)
        max_pool(n, 3, stride=2, padding=1, ceil_mode=True)
        max_pool(n, 2, dilation=2, stride=1, sizes=(7, 6, 5)[:n])
        max_pool(n, 2, batch=None)
        avg_pool(n, 2)
        avg_pool(n, 3, stride=1)
        avg_pool(n, 3, stride=2, padding=1)
        avg_pool(n, 3, stride=2, padding=1, count_include_pad=False)
        avg_pool(n, 2, ceil_mode=True)
        avg_pool(n, 3, stride=2, padding=1, ceil_mode=True)
        avg_pool(n, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
        avg_pool(n, 2, batch=None)
        for op in ("adaptive_max_pool", "adaptive_avg_pool"):
            adaptive(op, n, (3, 2, 1)[:n], (6, 4, 5)[:n])
            adaptive(op, n, (3, 2, 3)[:n], (7, 5, 4)[:n])
            adaptive(op, n, (5, 3, 2)[:n], (3, 4, 5)[:n], batch=None)
    max_pool(2, (3, 2), stride=(2, 1), padding=(1, 0))
    avg_pool(2, (3, 2), stride=(2, 1), padding=(1, 0), count_include_pad=False)
    max_pool(2, (3, 3), stride=2, padding=1, sizes=(8, 8), dtype=torch.int64)
    max_pool(1, 3, dtype=torch.float16)
    avg_pool(1, 3, dtype=torch.bfloat16)
    for shape, up, down, other in (((5,), (10,), (3,), (7,)), ((4, 5), (8, 15), (2, 3), (7, 7)), ((3, 4, 2), (6, 4, 4), (2, 2, 1), (5, 3, 3))):
        for size in (up, down, other):
            interpolate(shape, "nearest", size)
            interpolate(shape, "nearest-exact", size)
            interpolate(shape, "linear", size, align=False)
            interpolate(shape, "linear", size, align=True)
        interpolate(shape, "nearest", scale=2.0)
        interpolate(shape, "linear", scale=1.7, align=False)
        interpolate(shape, "linear", scale=1.7, align=True)
    interpolate((4,), "nearest", (6,), dtype=torch.uint8)


GROUPS = {"conv": convolutions, "pool": pools}

if __name__ == "__main__":
    for name in sys.argv[2:] or GROUPS:
        torch.manual_seed(3)
        with open("%s/%s.txt" % (sys.argv[1], name), "w") as out:
            GROUPS[name]()
