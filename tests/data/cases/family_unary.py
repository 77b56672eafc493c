"""One operand: every function over the types, then the values where it has corners."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from core import FLOATS, INF, INT_TYPES, NAN, RANGE, In, TOL, TYPES, case, is_float, is_unsigned, raw, to_real

MATH_TYPES = ("f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2", "i32", "u8", "bool")
EXTREMES = {"f32": (1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38), "f16": (6e-8, -6e-8, 6.1e-5, 65504, -65504),
            "bf16": (1e-40, -1e-40, 1.1754944e-38, 3.39e38, -3.39e38), "f64": (5e-324, -5e-324, 2.3e-308, 1.7976931348623157e308, -1.7976931348623157e308)}


def real(f):
    return lambda x: f(x.to(torch.float64))


def special(t):
    return [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, INF, -INF, NAN] + list(EXTREMES.get(t, ()))


# ---- exact: the type stays, nothing is rounded; whole parts let no gradient through
EXACT = {"neg": lambda x: -x, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
         "square": torch.square, "relu": torch.relu}
WHOLE = ("floor", "ceil", "trunc")
for name, f in EXACT.items():
    for t in TYPES:
        if t == "bool" and name in ("neg", "sign", "square", "relu"):
            continue
        g = f if is_float(t) or name not in WHOLE else (lambda x: x)
        g = (lambda x: x) if t == "bool" else g
        case(name, [In(t, (2, 5), view=[("permute", 1, 0)] if name == "neg" else ())], g, grad=name not in WHOLE, tol=TOL.get(t, 0) if name == "square" else 0, floor=1 if name == "square" else 0)
    for t in ("f32", "f16", "bf16", "f64"):
        v = special(t)
        y = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "square": np.square,
             "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0))}[name]
        case(name, [In(t, data=v)], lambda x: y(x), arrays=True, tol=TOL[t] if name == "square" else 0, floor=1 if name in ("relu", "sign") else 0)
    for t in INT_TYPES:
        low, high = RANGE[t]
        if name in ("neg", "abs", "sign", "square"):
            case(name, [In(t, data=np.array([low, low + 1, high, high - 1, 3], object))], {"neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square}[name], arrays=True)
    case(name, [In("f32", (0, 3))], f, grad=name not in WHOLE)
    case(name, [In("f32", ())], f, grad=name not in WHOLE, tol=TOL["f32"] if name == "square" else 0)
for t in INT_TYPES + ("bool",):
    case("not", [In(t, (7,))], lambda x: ~x, arrays=True)
    case("not", [In(t, data=np.array(RANGE[t], object))], lambda x: ~x, arrays=True)

# ---- real functions: integers become f32. Each has the span to draw from; relative error where no cancellation is in the way
SQRT_PI = math.sqrt(math.pi)
REAL = {
    "reciprocal": (torch.reciprocal, (0.25, 4)), "sqrt": (torch.sqrt, (0.0625, 6)), "rsqrt": (torch.rsqrt, (0.25, 6)),
    "exp2": (torch.exp2, (-6, 6)), "exp": (torch.exp, (-5, 5)), "log2": (torch.log2, (0.125, 6)), "log": (torch.log, (0.125, 6)),
    "sin": (torch.sin, (-6, 6)), "cos": (torch.cos, (-6, 6)), "sigmoid": (torch.sigmoid, (-6, 6)), "tanh": (torch.tanh, (-3, 3)),
}
FLOORLESS = ("reciprocal", "sqrt", "rsqrt", "exp2", "exp", "sigmoid")
CORNERS = {
    "reciprocal": [0.0, -0.0, INF, -INF, NAN, 1e30, -4], "sqrt": [0.0, -0.0, 4, 1e30, INF, -1, -INF, NAN], "rsqrt": [0.0, 4, 1e30, INF, -1, NAN],
    "exp2": [-INF, -200, 0, -0.0, 1, 20, 127.5, 200, INF, NAN], "exp": [-INF, -200, 0, -0.0, 1, 20, 88.5, 100, INF, NAN],
    "log2": [0, -0.0, 1, 2, 1024, 1e30, -1, INF, NAN], "log": [0, -0.0, 1, 2, 1024, 1e30, -1, INF, NAN],
    "sin": [0, -0.0, 1, 10, 100, -1000, 1e4, INF, -INF, NAN], "cos": [0, -0.0, 1, 10, 100, -1000, 1e4, INF, -INF, NAN],
    "sigmoid": [-INF, -100, -20, 0, 20, 100, INF, NAN], "tanh": [-INF, -30, -0.3, -0.2, -1e-4, -0.0, 0, 1e-6, 0.24, 0.26, 20, INF, NAN],
}


def real_cases(name, f, span, floor, **keys):
    low, high = span
    for t in MATH_TYPES:
        out = to_real(t)
        ints = (max(math.ceil(low), 0 if is_unsigned(t) else -9), min(math.floor(high), 12))
        case(name, [In(t, (3, 4), span=(0, 1) if t == "bool" else span if is_float(t) else ints)], real(f), out=out, floor=floor,
             gtol=None if t not in ("f8e4m3", "f8e5m2") else 0.3, **keys)
    case(name, [In("i64", (3,), span=(max(1, math.ceil(low)), math.floor(high)))], real(f), out="f32", floor=floor, **keys)
    case(name, [In("f32", (), span=span)], f, floor=floor, **keys)
    case(name, [In("f32", (3, 0))], f, **keys)
    case(name, [In("f32", (3, 4), span=span, view=[("flip", 0, 1), ("shrink", 0, 3, 1, 3)])], f, floor=floor, **keys)


for name, (f, span) in REAL.items():
    real_cases(name, f, span, 1e-30 if name in FLOORLESS else 1)
    case(name, [In("f32", data=CORNERS[name])], f, grad=False, floor=1)
    case(name, [In("f16", data=CORNERS[name])], f, grad=False, floor=1)
    case(name, [In("f64", data=CORNERS[name])], f, grad=False, floor=1)

# ---- cast: floats to integers truncate
for a in TYPES:
    for b in TYPES:
        unsigned = is_unsigned(b) or is_unsigned(a)
        x = In(a, (6,), span=(0, 1) if a == "bool" else (0, 9) if unsigned else (-9, 9))

        def cast(x, a=a, b=b):
            return x if is_float(b) or b == "bool" else torch.trunc(x) if is_float(a) else x
        case("cast", [x], cast, out=b, tol=0, to=b)
for a in INT_TYPES:  # what does not fit wraps
    low, high = RANGE[a]
    for b in INT_TYPES:
        if b != a:
            case("cast", [In(a, data=np.array([low, low + 1, high // 2 + 1, high - 1, high], object))], lambda x: x, out=b, arrays=True, to=b)
for a in INT_TYPES:
    low, high = RANGE[a]
    for b in ("f32", "f64", "f16", "bf16"):
        if not (b == "f16" and a in ("u32", "i32", "u64", "i64")):
            case("cast", [In(a, data=np.array([low, low + 1, high // 3, high], object))], lambda x: x, out=b, arrays=True, to=b, tol=0 if b == "f64" else 1.2e-7 if b == "f32" else TOL[b])
for b, v in (("f16", [65504, 65519, 65520, 1e-8, 6e-8, 2.98e-8, 2.99e-8, 1.00048828125, 1.00146484375, NAN, INF, -INF, -0.0]),
             ("bf16", [1.00390625, 1.01171875, 3.4e38, 3.39e38, NAN, -INF, 1e-40, -0.0]),
             ("f8e5m2", [57344, 1.125, 1.375, 2.0**-16, 2.0**-17, 1.1 * 2.0**-17, NAN, INF, -INF, -0.0]),
             ("f8e4m3", [448, -448, 1.0625, 1.1875, 2.0**-9, 2.0**-10, 1.1 * 2.0**-10, NAN, -0.0, 17, 19])):
    case("cast", [In("f32", data=v)], lambda x: x, out=b, tol=0, to=b, grad=False)
    case("cast", [In("f64", data=v)], lambda x: x, out=b, tol=0, to=b, grad=False)
case("cast", [In("f64", data=[1e300, -1e300, 1e-300, 1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-40, 3.4028235677973366e38])], lambda x: x, out="f32", tol=0, to="f32", grad=False)
case("cast", [In("f32", data=[0, -0.0, NAN, INF, 1e-45, -3])], lambda x: x, out="bool", to="bool")
for t in ("f16", "bf16", "f8e4m3", "f8e5m2"):
    raw("cast", [In(t, data=[0.0, -0.0, 1, -1.5, NAN] + ([] if t == "f8e4m3" else [INF, -INF]))], "f32", [0.0, -0.0, 1, -1.5, NAN] + ([] if t == "f8e4m3" else [INF, -INF]), to="f32")
