"""Two and three operands: every pair of types, broadcasting, C numbers, and values at which a function is not smooth."""
import math

import numpy as np
import torch

from core import FLOATS, INF, INT_TYPES, NAN, RANGE, In, TOL, TYPES, case, is_float, promote, to_real, to_type

ARITHMETIC = {"add": (torch.add, np.add), "sub": (torch.sub, np.subtract), "mul": (torch.mul, np.multiply)}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
SHAPES = (((2, 3), (3,)), ((2, 1), (1, 3)), ((4,), ()), ((), (2, 2)), ((2, 1, 3), (5, 1)), ((1,), (3, 1)), ((), ()), ((0, 3), (3,)), ((2, 0), (1, 1)), ((1, 4, 1, 2), (3, 1, 5, 1)))
MAIN = ("f32", "f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool")


def in_type(f, t):
    """Applies f after converting both operands to t."""
    return lambda a, b: f(to_type(a, t), to_type(b, t))


def wide(f, t):
    """Computes integers in the promoted type, and floats in float64."""
    if is_float(t):
        return lambda a, b: f(a.to(torch.float64), b.to(torch.float64))
    return f


# ---- arithmetic and its gradient over the types
for name, (f, g) in ARITHMETIC.items():
    for t in MAIN:
        if t == "bool":
            if name != "sub":
                case(name, [In(t, (2, 4)), In(t, (2, 4))], np.logical_or if name == "add" else np.logical_and, arrays=True)
            continue
        case(name, [In(t, (2, 4)), In(t, (2, 4), view=[("flip", 1)])], f)
    for t in INT_TYPES:
        low, high = RANGE[t]
        v = np.array([low, low, high, high, low // 2 + 3, 7], object)
        w = np.array([low, high, high, 1, high, 2], object)
        case(name, [In(t, data=v), In(t, data=w)], g, arrays=True)
    for sa, sb in SHAPES:
        case(name, [In("f32", sa), In("f32", sb)], f)
        case(name, [In("i32", sa), In("i32", sb)], f)
    case(name, [In("f32", data=[INF, INF, -INF, NAN, 3e38, 0.0, -0.0, 1e-45]), In("f32", data=[INF, -INF, 0, 1, 3e38, -0.0, -0.0, 1e-45])], g, arrays=True, floor=0)
    for t, n in (("f32", 3), ("f16", 3), ("i32", 3), ("u8", 3), ("i64", -5), ("u64", 7), ("i8", -3)):
        case(name, [In(t, (5,))], lambda x: f(x, n), int=n)
    case(name, [In("f32", (5,))], lambda x: f(torch.tensor(2.0), x), int=2, first=1)
    case(name, [In("i32", (5,))], lambda x: f(x.double(), 0.5), num=0.5, out="f32")
    case(name, [In("f32", (5,))], lambda x: f(x, 0.1), num=0.1)
    case(name, [In("bf16", (5,))], lambda x: f(x, to_type(0.3, "bf16").item()), num=0.3, tol=1.6e-2)
    case(name, [In("f32", (3, 4), view=[("permute", 1, 0), ("flip", 0)]), In("f32", (8, 6), view=[("shrink", 2, 6, 1, 4)])], f)
for a in TYPES:
    for b in TYPES:
        if a != b:
            t = promote(a, b)
            case("add", [In(a, (3,)), In(b, (3,))], wide(torch.add, t), gtol=0.02 if "16" in a + b else None)
            if (a, b) < (b, a):
                case("lt", [In(a, (5,), span=(0, 1) if "bool" in (a, b) else (0, 5)), In(b, (5,), span=(0, 1) if "bool" in (a, b) else (0, 5))], in_type(np.less, t), arrays=True, out="bool")

# ---- division
for t in MAIN:
    positive = (1, 9) if not is_float(t) else (0.5, 4)
    if t == "bool":
        case("div", [In(t, (2, 4)), In(t, data=[[True] * 4] * 2)], lambda a, b: a.double() / b.double(), out="f32")
        continue
    case("div", [In(t, (2, 4)), In(t, (2, 4), span=positive)], lambda a, b: a.double() / b.double(), out=to_real(t))
for sa, sb in SHAPES[:6]:
    case("div", [In("f32", sa), In("f32", sb, span=(0.5, 3))], torch.div)
case("div", [In("f32", data=[1, -1, 0, INF, 1, NAN, 3e38, -0.0, 3e38, -1e-38, 2e38, 1e-30]), In("f32", data=[0, 0, 0, INF, INF, 1, 0.1, 5, -1e-38, 3e38, 1.5e38, 1e-8])], np.divide, arrays=True, floor=0)
case("div", [In("f64", data=[1, -1, 0, 1, 1e300, -1e300, 1e-300, 1.5e308]), In("f64", data=[0, -0.0, 0, 3, 1e-300, 1e-300, 1e300, 1e308])], np.divide, arrays=True, floor=0)
case("div", [In("i32", (5,))], lambda x: x / 4, int=4, out="f32")
case("div", [In("f32", (5,))], lambda x: x / 4, int=4)
case("div", [In("f32", (5,), span=(1, 3))], lambda x: 2 / x, int=2, first=1)
case("div", [In("u64", data=np.array([2**64 - 1, 2**63, 5], object))], lambda x: x / 2, int=2, out="f32", arrays=True)


def floor_div(a, b):
    zero = b == 0
    r = np.floor_divide(a, np.where(zero, 1, b).astype(b.dtype))
    return np.where(zero, 0, r).astype(a.dtype)


def floor_mod(a, b):
    zero = b == 0
    r = np.mod(a, np.where(zero, 1, b).astype(b.dtype))
    return np.where(zero, 0, r).astype(a.dtype)


for t in INT_TYPES:
    low, high = RANGE[t]
    v = np.array([17, 17, 0, 7, high, low, low, high, 5, 6] + ([-17, -17, -1] if low else []), object)
    w = np.array([5, 1, 3, 0, 2, high, 3, high, 6, high] + ([5, -5, -1] if low else []), object)
    if low:
        w[6] = -1
    case("idiv", [In(t, data=v), In(t, data=w)], floor_div, arrays=True)
    case("mod", [In(t, data=v), In(t, data=w)], floor_mod, arrays=True)
    for n in (1, 2, 3, 7, 8, 10, 100) + ((-1, -3, -8) if low else ()):
        case("idiv", [In(t, data=np.array([low, low + 1, 0, 1, 13, high - 1, high] + ([-1, -13] if low else []), object))], lambda x: np.floor_divide(x, x.dtype.type(n)), int=n, arrays=True)
        if n in (3, 8, -3):
            case("mod", [In(t, data=np.array([low, low + 1, 0, 1, 13, high - 1, high] + ([-1, -13] if low else []), object))], lambda x: np.mod(x, x.dtype.type(n)), int=n, arrays=True)
for t in ("f32", "f64"):
    a, b = [5.5, -5.5, 5.5, -5.5, 7, 0.75], [2, 2, -2, -2, 0.5, 1]
    case("idiv", [In(t, data=a), In(t, data=b)], np.floor_divide, arrays=True)
    case("mod", [In(t, data=a), In(t, data=b)], np.mod, arrays=True)

# ---- powers
for t in FLOATS:
    case("pow", [In(t, (2, 4), span=(0.25, 3)), In(t, (2, 4), span=(-2, 2))], torch.pow, tol=max(TOL[t], 1e-5) if t != "f64" else None)
case("pow", [In("f32", data=[-2, -2, -2, 0, 0, 1, 0, -1, INF, -INF, -INF, 2, 0.5, NAN, 1, NAN, -8]),
             In("f32", data=[3, 2, 0.5, 2, 0, 100, -1, INF, 2, 3, 2, -INF, INF, 0, NAN, 1, -3])], torch.pow, grad=False)
for n in (0, 1, 2, 3, 5, 8):
    case("pow", [In("f32", (5,))], lambda x: x**n, int=n, floor=1e-3 if n else 1, grad=n > 0)
    for t in ("i32", "u8", "i64", "u16"):
        case("pow", [In(t, (5,))], lambda x: x**n, int=n)
for n in (0.5, -0.5, 1.5, -2.0, 0.3):
    case("pow", [In("f32", (5,), span=(0.25, 4))], lambda x: x**n, num=n, tol=1e-5)
case("pow", [In("f32", (5,))], lambda x: 2**x, int=2, first=1)
case("pow", [In("f32", (2, 1), span=(0.5, 2)), In("f32", (3,))], torch.pow, tol=1e-5)

# ---- maximum and minimum
for name, f, g in (("maximum", torch.maximum, np.maximum), ("minimum", torch.minimum, np.minimum)):
    for t in MAIN:
        case(name, [In(t, (2, 4)), In(t, (2, 4))], f, tol=0)
    for t in INT_TYPES:
        low, high = RANGE[t]
        case(name, [In(t, data=np.array([low, high, high // 2 + 1, 0], object)), In(t, data=np.array([high, low, high // 2, high], object))], g, arrays=True)
    for t in ("f32", "f16", "f64"):
        case(name, [In(t, data=[NAN, 1, -INF, INF, -1]), In(t, data=[1, NAN, INF, -INF, -INF])], g, arrays=True)
    for sa, sb in SHAPES[:8]:
        case(name, [In("f32", sa), In("f32", sb)], f, tol=0)
    case(name, [In("i32", (5,))], lambda x: f(x, torch.tensor(2)), int=2)
    case(name, [In("f32", (5,))], lambda x: f(x, torch.tensor(0.25)), num=0.25, tol=0)

# ---- bits, comparisons
for name, f in BITS.items():
    for t in INT_TYPES + ("bool",):
        case(name, [In(t, (2, 3)), In(t, (3,))], f, arrays=True)
        if t != "bool":
            low, high = RANGE[t]
            case(name, [In(t, data=np.array([low, high, high // 3, low], object)), In(t, data=np.array([high, high // 2, high // 5, low], object))], f, arrays=True)
    case(name, [In("i32", (5,))], lambda x: f(x, 6), int=6, arrays=True)
    case(name, [In("i16", (3,)), In("i64", (3,))], f, arrays=True)
for name, f in COMPARE.items():
    for t in MAIN:
        case(name, [In(t, (3, 5), span=(0, 1) if t == "bool" else (0, 3)), In(t, (5,), span=(0, 1) if t == "bool" else (0, 3))], f, arrays=True, out="bool")
    for t in INT_TYPES:
        low, high = RANGE[t]
        case(name, [In(t, data=np.array([low, high, high // 2 + 1, high, low], object)), In(t, data=np.array([high, low, high // 2, high, low], object))], f, arrays=True, out="bool")
    for t in ("f32", "f16", "bf16", "f64"):
        case(name, [In(t, data=[NAN, 1, INF, -INF, 0.0, NAN, -INF]), In(t, data=[1, NAN, INF, INF, -0.0, NAN, 0])], f, arrays=True, out="bool")
    case(name, [In("f32", (4,))], lambda x: f(x, 0.5), num=0.5, arrays=True, out="bool")
    case(name, [In("i32", (4,))], lambda x: f(x, 2), int=2, arrays=True, out="bool")
    for sa, sb in (((2, 1), (1, 3)), ((), (3,)), ((0,), (1,)), ((), ())):
        case(name, [In("f32", sa), In("f32", sb)], f, arrays=True, out="bool")

# ---- where
for t in MAIN:
    case("where", [In("bool", (2, 3)), In(t, (2, 3)), In(t, (3,), view=[("flip", 0)])], torch.where, out=t, tol=0)
for sc, sa, sb in (((2, 1), (3,), ()), ((), (2,), (2, 1)), ((4,), (1,), (3, 1)), ((0,), (), (1,)), ((2, 1, 1), (1, 3, 1), (1, 1, 4))):
    case("where", [In("bool", sc), In("f32", sa), In("f32", sb)], torch.where, out="f32", tol=0)
case("where", [In("bool", data=[True, False, True]), In("f32", data=[NAN, NAN, 1]), In("f32", data=[1, INF, NAN])], torch.where, out="f32", grad=False)
