"""Reductions."""
import math

import numpy as np
import torch

from core import FLOATS, INF, INT_TYPES, NAN, RANGE, In, TOL, TYPES, axes_of, case, is_float, to_real


def prod(x, axes, keep):
    for a in sorted((a % x.dim() for a in axes_of(x, axes)), reverse=True):
        x = x.prod(a, keepdim=keep)
    return x


def spread(f):
    """Variance and standard deviation in float64, with divisor n - 1."""
    return lambda x, axes, keep: f(x.double(), axes_of(x, axes), unbiased=True, keepdim=keep) if x.dim() else x.double() * NAN


def whole(x):
    return x.to(torch.int64) if x.dtype == torch.bool else x


REDUCE = {
    "sum": lambda x, axes, keep: whole(x).sum(axes_of(x, axes), keepdim=keep) if x.dim() else whole(x), "prod": lambda x, axes, keep: prod(whole(x), axes, keep),
    "max": lambda x, axes, keep: x.amax(axes_of(x, axes), keepdim=keep), "min": lambda x, axes, keep: x.amin(axes_of(x, axes), keepdim=keep),
    "mean": lambda x, axes, keep: x.double().mean(axes_of(x, axes), keepdim=keep) if x.dim() else x.double(), "var": spread(torch.var), "std": spread(torch.std),
}


def out_of(op, t):
    if op in ("sum", "prod") and not is_float(t):
        return "u64" if t == "u64" else "i64"
    return to_real(t) if op in ("mean", "var", "std") else t


def reduction(op, x, axes, keep, **keys):
    f = REDUCE[op]
    exact = op in ("max", "min") or not is_float(out_of(op, x.t))
    if keep:
        keys["keep"] = 1
    if axes:
        keys["axes"] = axes
    case(op, [x], lambda v: f(v, axes, keep), out=out_of(op, x.t), tol=0 if exact else 2 * TOL[out_of(op, x.t)], **keys)


for op in REDUCE:
    for t in TYPES:
        span = (0.25, 2) if is_float(t) else None
        reduction(op, In(t, (3, 4), span=span), (1,), False)
        reduction(op, In(t, (3, 4), span=span), (), False)
    for axes in ((0,), (-1,), (0, 2), (1, 2), (0, 1, 2)):
        for keep in (True, False):
            reduction(op, In("f32", (2, 3, 5), span=(-1.5, 2)), axes, keep)
    reduction(op, In("f32", (4, 5), view=[("permute", 1, 0), ("flip", 0), ("shrink", 1, 5, 0, 3)]), (0,), False)
    reduction(op, In("i32", (4, 5), view=[("permute", 1, 0), ("flip", 1)]), (0,), False)
    if op != "std":  # its derivative at 0 is undefined, but PyTorch gives 0
        reduction(op, In("f32", (1, 3), view=[("expand", 4, 3)], span=(0.5, 2)), (0,), True)
    if op not in ("var", "std"):
        reduction(op, In("f32", ()), (), False)
        reduction(op, In("i32", ()), (), False)
        reduction(op, In("f32", (1, 1)), (0,), False)
        reduction(op, In("f32", (2, 0, 3)), (0,), False)
    reduction(op, In("f32", (300,), span=(-1, 2)), (), False, floor=300, gtol=1e-4)
    reduction(op, In("f32", (5, 70), span=(0.5, 1.5)), (1,), False, floor=100, gtol=1e-4) if op != "prod" else None
    reduction(op, In("f32", (70, 5), span=(0.5, 1.5)), (0,), False, floor=100, gtol=1e-4) if op != "prod" else None
for op in ("sum", "prod"):  # of no elements
    for t in ("f32", "i32", "bool", "f16"):
        reduction(op, In(t, (2, 0)), (1,), False)
        reduction(op, In(t, (0, 2)), (), False)
        reduction(op, In(t, (3, 0, 2)), (1,), True)
reduction("mean", In("f32", (2, 0)), (1,), False)
for op, v in (("max", [[1, NAN], [3, -INF], [-INF, -INF], [-0.5, -2]]), ("min", [[NAN, 1], [3, INF], [INF, INF], [0.5, 2]]), ("sum", [[1, NAN], [INF, -INF], [INF, 1], [-INF, 0]]),
              ("prod", [[1, NAN], [INF, 0], [INF, -1], [0, 5]]), ("mean", [[1, NAN], [INF, -INF], [INF, 1], [-INF, 0]])):
    for t in ("f32", "f16", "bf16", "f64"):
        f = REDUCE[op]
        case(op, [In(t, data=v)], lambda x: f(x, (1,), False), axes=(1,), grad=False)
for t in INT_TYPES:
    low, high = RANGE[t]
    v = np.array([[low, high, 1], [high, high, high], [low, low, 0]], object)
    for op, f in (("max", np.max), ("min", np.min)):
        case(op, [In(t, data=v)], lambda x: f(x, 1), arrays=True, axes=(1,))
    case("sum", [In(t, data=v)], lambda x: x.astype(np.uint64 if t == "u64" else np.int64).sum(1), out="u64" if t == "u64" else "i64", arrays=True, axes=(1,))
case("sum", [In("u8", (1000,), span=(255, 255))], lambda x: x.sum(), out="i64")
case("sum", [In("f16", (600,), span=(100, 120))], lambda x: x.sum(), tol=0, grad=False)
case("sum", [In("bf16", (4, 200), span=(1, 2))], lambda x: x.sum(1), axes=(1,), floor=1)
case("mean", [In("f16", (600,), span=(150, 160))], lambda x: x.mean(), grad=False)

# ---- softmax
for op, f in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):
    for t in FLOATS + ("i32", "u8", "bool"):
        for axis in (-1, 0):
            case(op, [In(t, (4, 6))], lambda x: f(x.double(), axis), out=to_real(t), axis=axis, tol=max(TOL[to_real(t)], 1e-5 if t != "f64" else 0))
    for shape, axis in (((2, 3, 4), 1), ((1, 1), 0), ((3, 40), 1), ((0, 3), 1), ((5,), 0), ((7, 1), -1)):
        case(op, [In("f32", shape)], lambda x: f(x, axis), axis=axis, tol=1e-5, gtol=2e-5)
    case(op, [In("f32", (4, 6), view=[("permute", 1, 0), ("flip", 1)])], lambda x: f(x, 0), axis=0, tol=1e-5)
    case(op, [In("f32", data=[[1e4, 0, -INF], [0, 0, 0], [-1e30, -1e30, -1e30], [3e38, 3e38, 0]])], lambda x: f(x, -1), axis=-1, tol=1e-5, grad=False)
    case(op, [In("f32", data=[[1, NAN, 2], [INF, 1, 2], [-INF, -INF, -INF]])], lambda x: f(x, -1), axis=-1, grad=False)
