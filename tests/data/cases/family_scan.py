"""The rest of reductions: logical ones, norms, positions of extremes; and scans."""
import math

import numpy as np
import torch

from core import FLOATS, INF, NAN, In, TOL, TYPES, axes_of, case, is_float, to_real


def reduced(op, x, f, axes=(), keep=False, out=None, **keys):
    if keep:
        keys["keep"] = 1
    if axes:
        keys["axes"] = axes
    case(op, [x], f, out=out, **keys)


for op, f in (("any", torch.any), ("all", torch.all)):
    def logical(x, axes, keep):
        x = x != 0
        for a in sorted((a % x.dim() for a in axes_of(x, axes)), reverse=True):
            x = f(x, a, keepdim=keep)
        return x

    for t in TYPES:
        reduced(op, In(t, (4, 3), span=(0, 1) if not is_float(t) else (-1, 1)), lambda x: logical(x, (1,), False), (1,), out="bool", grad=False)
    for axes, keep in (((), False), ((0,), True), ((0, 2), False), ((-1,), True), ((0, 1, 2), False)):
        reduced(op, In("bool", (2, 3, 4)), lambda x: logical(x, axes, keep), axes, keep, out="bool")
    reduced(op, In("bool", (0, 3)), lambda x: logical(x, (0,), False), (0,), out="bool")
    reduced(op, In("bool", ()), lambda x: x, (), out="bool")
    reduced(op, In("f32", data=[[NAN, 0], [0, -0.0]]), lambda x: logical(x, (1,), False), (1,), out="bool", grad=False)
for t in TYPES:
    reduced("count_nonzero", In(t, (4, 3), span=(0, 1) if not is_float(t) else (-1, 1)), lambda x: torch.count_nonzero(x, 0), (0,), out="i64", grad=False)
reduced("count_nonzero", In("i32", (2, 3, 4), span=(0, 1)), lambda x: torch.count_nonzero(x), out="i64")
for t in ("f32", "f16", "bf16", "f64", "i32"):
    reduced("logsumexp", In(t, (3, 5)), lambda x: torch.logsumexp(x.double(), 1), (1,), out=to_real(t), tol=max(TOL[to_real(t)], 1e-5 if t != "f64" else 0))
for axes, keep in (((0,), True), ((0, 2), False), ((0, 1, 2), False), ((-1,), True)):
    reduced("logsumexp", In("f32", (2, 3, 4)), lambda x: torch.logsumexp(x, axes, keepdim=keep), axes, keep, tol=1e-5)
reduced("logsumexp", In("f32", data=[[1e4, 1e4], [-INF, 0], [-1e30, -1e30], [INF, 1], [-INF, -INF], [NAN, 1]]), lambda x: torch.logsumexp(x, 1), (1,), grad=False, tol=1e-5)

# ---- variance by another divisor, norms
for correction in (0.0, 2.0):
    for op, f in (("var", torch.var), ("std", torch.std)):
        for t in ("f32", "f16", "f64", "i32"):
            reduced(op + "_with", In(t, (3, 5), span=(-2, 2)), lambda x: f(x.double(), dim=1, correction=int(correction)), (1,), out=to_real(t), tol=2 * TOL[to_real(t)], correction=correction)
        reduced(op + "_with", In("f32", (2, 3, 4)), lambda x: f(x, dim=(0, 2), correction=int(correction), keepdim=True), (0, 2), True, tol=1e-5, correction=correction)
for p in (0.0, 1.0, 2.0, 3.0, 0.5, -1.0, INF, -INF):
    for t in ("f32", "f64", "f16"):
        reduced("norm", In(t, (3, 4), span=(0.5, 2)), lambda x: torch.linalg.vector_norm(x, p, 1), (1,), p=p, tol=max(2 * TOL[t], 1e-5 if t != "f64" else 0), grad=abs(p) != INF and p != 0)
    reduced("norm", In("f32", (2, 3, 4)), lambda x: torch.linalg.vector_norm(x, p), (), p=p, tol=2e-5, grad=False)
    reduced("norm", In("f32", (2, 3, 4)), lambda x: torch.linalg.vector_norm(x, p, (0, 2), keepdim=True), (0, 2), True, p=p, tol=2e-5, grad=False)
reduced("norm", In("i32", (3, 4)), lambda x: torch.linalg.vector_norm(x.double(), 2.0, 1), (1,), out="f32", p=2.0)

# ---- positions of extremes: the first one counts
for op, f in (("argmax", np.argmax), ("argmin", np.argmin)):
    for t in TYPES:
        case(op, [In(t, (4, 5))], lambda x: f(x, 1), arrays=True, out="i64", axes=(1,))
        case(op, [In(t, (4, 5))], lambda x: f(x), arrays=True, out="i64")
    for axis in (0, 1, -1):
        case(op, [In("f32", (3, 4, 5))], lambda x: f(x, axis), arrays=True, out="i64", axes=(axis,))
        case(op, [In("f32", (3, 4, 5))], lambda x: f(x, axis, keepdims=True), arrays=True, out="i64", axes=(axis,), keep=1)
    case(op, [In("f32", data=[[1, NAN, 2], [INF, INF, 1], [-INF, -INF, -INF], [0.0, -0.0, 0.0], [3, NAN, NAN]])], lambda x: f(x, 1), arrays=True, out="i64", axes=(1,))
    case(op, [In("i32", data=[[3, 3, 1], [1, 1, 1], [-2**31, 2**31 - 1, 0]])], lambda x: f(x, 1), arrays=True, out="i64", axes=(1,))
    case(op, [In("f32", (6, 4), view=[("permute", 1, 0), ("flip", 1)])], lambda x: f(x, 1), arrays=True, out="i64", axes=(1,))
    case(op, [In("f32", (300,), distinct=True, span=(-4, 4))], lambda x: f(x), arrays=True, out="i64")
    case(op, [In("f32", ())], lambda x: f(x), arrays=True, out="i64")

# ---- scans
SCAN = {"cumsum": lambda x, a: (x.long() if x.dtype == torch.bool else x).cumsum(a), "cumprod": lambda x, a: (x.long() if x.dtype == torch.bool else x).cumprod(a),
        "cummax": lambda x, a: x.cummax(a)[0], "cummin": lambda x, a: x.cummin(a)[0], "logcumsumexp": lambda x, a: x.double().logcumsumexp(a)}
for op, f in SCAN.items():
    for t in TYPES:
        if t == "bool" and op in ("cummax", "cummin", "logcumsumexp"):
            continue
        out = to_real(t) if op == "logcumsumexp" else t if is_float(t) or op in ("cummax", "cummin") else "u64" if t == "u64" else "i64"
        distinct = is_float(t) and op in ("cummax", "cummin") and t[:2] != "f8"
        case(op, [In(t, (3, 5), span=(0.5, 1.5) if is_float(t) and op == "cumprod" else (-2, 2) if distinct else None, distinct=distinct)], lambda x: f(x, 1), out=out, axis=1,
             tol=0 if op in ("cummax", "cummin") or not is_float(out) else max(2 * TOL[out], 1e-5 if out != "f64" else 0), grad=op not in ("cummax", "cummin") or distinct,
             gtol=None if t in ("f32", "f64") else 0.02 if t in ("f16", "bf16") else 0.6)
    for shape, axis in (((2, 3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -1), ((1, 4), 0), ((0, 3), 1), ((3, 0), 1)):
        span = (0.5, 1.5) if op == "cumprod" else (-2, 2)
        case(op, [In("f32", shape, span=span, distinct=True)], lambda x: f(x, axis), axis=axis, tol=1e-5, gtol=1e-4)
    case(op, [In("f32", (2, 150), span=(0.9375, 1.0625) if op == "cumprod" else (-2, 2), distinct=True)], lambda x: f(x, 1), axis=1, tol=2e-5, grad=False)
    case(op, [In("f32", (6, 4), span=(0.5, 1.5), distinct=True, view=[("permute", 1, 0), ("flip", 1)])], lambda x: f(x, 1), axis=1, tol=1e-5, gtol=1e-4)
    case(op, [In("f32", data=[[1, NAN, 2], [INF, 1, 2], [-INF, 3, 4], [1, INF, -INF]])], lambda x: f(x, 1), axis=1, grad=False, tol=1e-5)
