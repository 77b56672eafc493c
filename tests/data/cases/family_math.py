"""The rest of elementwise mathematics: functions of one, two and three operands, and activations."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from core import FLOATS, INF, INT_TYPES, NAN, RANGE, In, TOL, TYPES, case, is_float, is_unsigned, promote, to_real, to_type

MATH_TYPES = ("f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2", "i32", "u8", "bool")
CORNERS = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 10, -10, 100, -100, INF, -INF, NAN]


def real(f):
    return lambda *x: f(*[v.to(torch.float64) for v in x])


# ---- classification (isnan and the like), rounding
for name, f in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite), ("logical_not", np.logical_not)):
    for t in FLOATS:
        v = [0.0, -0.0, 1, -2, NAN] + ([] if t == "f8e4m3" else [INF, -INF])
        case(name, [In(t, data=v)], lambda x: f(x), arrays=True, out="bool")
    for t in ("i32", "u8", "bool", "i64"):
        case(name, [In(t, (5,), span=(0, 1))], lambda x: f(x), arrays=True, out="bool")
for t in TYPES:
    if t != "bool":
        half = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.75, -0.25, 3, -0.0] if is_float(t) else [0, 1, 5]
        case("round", [In(t, data=half)], np.round, arrays=True, tol=0, floor=0)
        case("frac", [In(t, data=half)], lambda x: x - np.trunc(x).astype(x.dtype), arrays=True, tol=0)
        case("relu6", [In(t, (12,), span=(0, 9) if is_unsigned(t) else (-3, 9))], lambda x: x.clamp(0, 6), tol=0, grad=t[:2] != "f8")

# ---- real functions; span of the draws, and whether the error is relative
SPAN = {"exp10": (-2, 2), "expm1": (-3, 3), "log10": (0.125, 6), "log1p": (-0.75, 6), "tan": (-1.25, 1.25), "asin": (-0.9375, 0.9375), "acos": (-0.9375, 0.9375), "atan": (-6, 6),
        "sinh": (-3, 3), "cosh": (-3, 3), "asinh": (-6, 6), "acosh": (1.0625, 6), "atanh": (-0.9375, 0.9375), "erf": (-3, 3), "logsigmoid": (-6, 6), "silu": (-6, 6), "gelu": (-3, 3),
        "gelu_tanh": (-3, 3), "quick_gelu": (-4, 4), "mish": (-4, 4), "selu": (-3, 3), "softsign": (-4, 4), "hardsigmoid": (-4, 4), "hardswish": (-4, 4)}
REAL = {
    "exp10": lambda x: 10**x, "expm1": torch.expm1, "log10": torch.log10, "log1p": torch.log1p, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf, "logsigmoid": F.logsigmoid, "silu": F.silu,
    "gelu": F.gelu, "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x), "mish": F.mish,
    "selu": F.selu, "softsign": F.softsign, "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6, "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,  # PyTorch's have a sixth in f32
}
EXACT_AT_0 = ("expm1", "log1p", "tan", "asin", "atan", "sinh", "asinh", "atanh", "erf")
for name, f in REAL.items():
    low, high = SPAN[name]
    for t in MATH_TYPES:
        span = (0, 1) if t == "bool" else (low, high) if is_float(t) else (max(math.ceil(low), 0 if is_unsigned(t) else -9), math.floor(high))
        case(name, [In(t, (3, 4), span=span)], real(f), out=to_real(t), tol=max(TOL[to_real(t)], 4e-6 if to_real(t) != "f64" else 0), gtol=0.3 if t[:2] == "f8" else None,
             grad=not (t[:2] == "f8" and name[:4] == "hard"))  # draws may hit points without a derivative
    case(name, [In("f32", (), span=(low, high))], f, tol=4e-6)
    case(name, [In("f32", (3, 0))], f)
    case(name, [In("f32", (3, 4), span=(low, high), view=[("permute", 1, 0), ("flip", 0)])], f, tol=4e-6)
    for t in ("f32", "f64"):
        v = [c for c in CORNERS if not (name == "exp10" and abs(c) == 100)]
        case(name, [In(t, data=v)], f, grad=False, tol=1e-5 if t == "f32" else 1e-12)
    if name in EXACT_AT_0:  # no digits are lost near 0
        case(name, [In("f32", data=[1e-8, -1e-6, 1e-4, -1e-3, 0.01, -0.1, 1e-30])], f, grad=False, floor=0, tol=4e-6)
        case(name, [In("f64", data=[1e-16, -1e-12, 1e-8, -1e-4, 0.01, -0.1, 1e-200])], f, grad=False, floor=0, tol=4e-15)

# ---- activations with parameters
ACTIVATIONS = (("leaky_relu", (0.1,), lambda x, a: F.leaky_relu(x, a)), ("elu", (1.5,), lambda x, a: F.elu(x, a)), ("celu", (0.5,), lambda x, a: F.celu(x, a)),
               ("softplus", (2.0,), lambda x, a: torch.logaddexp(a * x, torch.zeros_like(x)) / a), ("hardtanh", (-1.0, 0.5), lambda x, a, b: F.hardtanh(x, a, b)),
               ("hardshrink", (0.5,), lambda x, a: F.hardshrink(x, a)), ("softshrink", (0.5,), lambda x, a: F.softshrink(x, a)))
for name, p, f in ACTIVATIONS:
    keys = dict(zip("ab", p))
    for t in ("f32", "f16", "bf16", "f64", "i32"):
        case(name, [In(t, (3, 5))] if is_float(t) else [In(t, (3, 5), span=(-4, 4))], lambda x: f(x.double(), *p), out=to_real(t), tol=max(TOL[to_real(t)], 4e-6 if t != "f64" else 0), **keys)
    case(name, [In("f32", data=[INF, -INF, 100, -100, -0.0] + ([] if name == "softshrink" else [NAN]))], lambda x: f(x, *p), grad=False, **keys)
case("prelu", [In("f32", (2, 3, 4)), In("f32", (1,))], lambda x, w: F.prelu(x, w))
case("prelu", [In("f32", (2, 3, 4)), In("f32", (3,))], lambda x, w: F.prelu(x, w))
case("prelu", [In("f16", (2, 3)), In("f16", (3,))], lambda x, w: F.prelu(x, w))

# ---- two operands
for name, f in (("atan2", torch.atan2), ("copysign", torch.copysign), ("logaddexp", torch.logaddexp)):
    sign = name == "copysign"  # it has no gradient for the operand that gives the sign
    for t in ("f32", "f16", "bf16", "f64", "i32", "u8"):
        case(name, [In(t, (2, 4)), In(t, (4,), nograd=sign)], real(f), out=to_real(t), tol=max(TOL[to_real(t)], 4e-6 if t != "f64" else 0))
    case(name, [In("f32", (2, 1)), In("f32", (1, 3), nograd=sign)], f, tol=4e-6)
    case(name, [In("f32", (0, 3)), In("f32", (3,), nograd=sign)], f)
    case(name, [In("f32", (4,)), In("f64", (4,), nograd=sign)], real(f), out="f64", gtol=1e-5)
    case(name, [In("f32", data=[0.0, -0.0, 0.0, -0.0, 1, -1, INF, -INF, INF, NAN, 2, 200]), In("f32", data=[0.0, 0.0, -1, -1, 0, 0, 1, 1, INF, 1, NAN, 200])], f, grad=False)
for t in INT_TYPES:
    low, high = RANGE[t]
    v = np.array([17, 17, 0, 7, high, low, low, high, 5, 6] + ([-17, -17, -1, -7] if low else []), object)
    w = np.array([5, 1, 3, 0, 2, high, 3, high, 6, high] + ([5, -5, -1, 0] if low else []), object)

    def quotient(a, b):
        n, d = [int(i) for i in a], [int(i) for i in b]
        q = [0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(n, d)]
        return np.array(q, object).astype(a.dtype)

    case("idiv_trunc", [In(t, data=v), In(t, data=w)], quotient, arrays=True)
    case("fmod", [In(t, data=v), In(t, data=w)], lambda a, b: np.where(b == 0, 0, a - quotient(a, b) * b).astype(a.dtype), arrays=True)
    bits = np.iinfo(to_type(0, t).dtype).bits
    x, n = np.array([1, high, low, 5, high, 3, low, 1], object), np.array([0, 1, 1, 3, bits - 1, bits, bits, 2], object)
    case("shl", [In(t, data=x), In(t, data=n)], lambda a, b: np.array([int(i) << int(s) & 2**bits - 1 if s < bits else 0 for i, s in zip(a, b)], np.uint64), arrays=True)
    case("shr", [In(t, data=x), In(t, data=n)], lambda a, b: np.array([int(i) >> int(s) for i, s in zip(a, b)], object).astype(a.dtype), arrays=True)
    case("shl", [In(t, (4,))], lambda a: np.left_shift(a, a.dtype.type(2)), arrays=True, int=2)
    case("shr", [In(t, (4,))], lambda a: np.right_shift(a, a.dtype.type(1)), arrays=True, int=1)
    case("pow", [In(t, (6,), span=(0, 3) if low == 0 else (-3, 3)), In(t, (6,), span=(0, 5))], lambda a, b: np.power(a, b), arrays=True)
    case("lerp", [In(t, (3,)), In(t, (3,)), In("f32", (3,), span=(0, 1))], lambda a, b, w: a + (b - a) * w, grad=False, out="f32") if t == "i32" else None
for t in ("f32", "f64"):
    a, b = [5.5, -5.5, 5.5, -5.5, 7, 0.75, INF, 3, NAN], [2, 2, -2, -2, 0.5, 1, 2, INF, 1]
    case("fmod", [In(t, data=a), In(t, data=b)], np.fmod, arrays=True)
    case("idiv_trunc", [In(t, data=a[:6]), In(t, data=b[:6])], lambda x, y: np.trunc(x / y), arrays=True)
    case("mod", [In(t, (8,), span=(-9, 9)), In(t, (8,), span=(0.5, 3))], torch.remainder, tol=1e-5 if t == "f32" else 1e-12)
    case("fmod", [In(t, (8,), span=(-9, 9)), In(t, (8,), span=(0.5, 3))], torch.fmod, tol=1e-5 if t == "f32" else 1e-12)

# ---- three operands; no drawn x equals one of its limits
for t in ("f32", "f16", "f64", "i32", "u8", "i64"):
    x, low, high = In(t, (3, 4), span=(-3, 3) if is_float(t) else (0, 9)), In(t, (4,), span=(-1, 0) if is_float(t) else (1, 3)), In(t, (), span=(0.5, 2) if is_float(t) else (5, 7))
    case("clamp", [x, low, high], lambda x, a, b: torch.minimum(torch.maximum(x, a), b), tol=0)
    case("clamp", [x], lambda x: x.clamp(1, 2), low=1, high=2, tol=0, grad=False)
case("clamp", [In("f32", (3, 4))], lambda x: x.clamp(-0.53, 0.71), low=-0.53, high=0.71, tol=1e-7)
case("clamp", [In("f32", data=[NAN, INF, -INF, 0])], lambda x: x.clamp(-1, 1), low=-1, high=1, tol=0, grad=False)
case("threshold", [In("f32", (3, 4))], lambda x: F.threshold(x, 0.11, 5.0), low=0.11, high=5.0, tol=0)
case("threshold", [In("i32", (3, 4))], lambda x: F.threshold(x, 2, 7), low=2, high=7)
for t in ("f32", "f16", "bf16", "f64"):
    case("lerp", [In(t, (2, 3)), In(t, (3,)), In(t, (2, 1), span=(0, 1))], torch.lerp, tol=2 * TOL[t])
    case("addcmul", [In(t, (2, 3)), In(t, (3,)), In(t, (2, 1))], lambda x, a, b: x + a * b, tol=2 * TOL[t])
case("addcmul", [In("i16", (2, 3)), In("i16", (3,)), In("i16", (2, 1))], lambda x, a, b: x + a * b)
a, b = [1, 1.00001, 2, INF, INF, NAN, 0, 1e-9, -1], [1, 1, 2.1, INF, -INF, NAN, 1e-9, 0, 1]
for equal_nan in (0, 1):
    case("isclose", [In("f32", data=a), In("f32", data=b)], lambda x, y: torch.isclose(x, y, 1e-4, 1e-8, bool(equal_nan)), grad=False, out="bool", rtol=1e-4, atol=1e-8, equal_nan=equal_nan)
case("isclose", [In("i32", (5,), span=(0, 3)), In("i32", (1,), span=(0, 3))], lambda x, y: torch.isclose(x.double(), y.double(), 0.0, 1.0), out="bool", rtol=0.0, atol=1.0, equal_nan=0)
for pair in (("f32", "i32"), ("i32", "f32"), ("f16", "bf16"), ("f16", "i16"), ("u32", "f32"), ("f32", "u32"), ("f64", "i64"), ("i64", "f64"), ("u8", "i8"), ("f8e4m3", "u8")):
    kinds = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u8": np.uint8, "i8": np.int8, "i16": np.int16}
    if pair[0] in kinds and pair[1] in kinds:
        case("bitcast", [In(pair[0], (5,), span=(1, 9))], lambda x: x.astype(kinds[pair[0]]).view(kinds[pair[1]]).astype(np.float64 if is_float(pair[1]) else x.dtype if not is_float(pair[0]) else kinds[pair[1]]),
             arrays=True, out=pair[1], to=pair[1], tol=0)
