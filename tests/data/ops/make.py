#!/usr/bin/env python3
"""Reference values for tests/frontend/test_ops.c, computed by NumPy: python3 make.py > ops.txt

A line is one case:  OP key=value... : TENSOR ; TENSOR -> TENSOR
where a TENSOR is dtype[sizes] followed by its elements in row-major order. Keys: tol (largest difference, relative to
the larger of the expected number and floor, which is 1 unless given; 0: exact), axes, keep, shape, pairs, axis, int or num (a C number as second operand), to (a type), value.
bf16, which NumPy lacks, is f32 rounded to 8 bits of significand, ties to even.
"""
import numpy as np

rng = np.random.default_rng(7)
NP = {"bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
      "i64": np.int64, "u64": np.uint64, "f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
FLOATS = ("f16", "bf16", "f32")
MAIN = ("f32", "f16", "bf16", "i32", "i64", "u8", "bool")
TOL = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 3e-6, "f64": 1e-12}


def bf16(x):
    u = np.asarray(x, np.float32).view(np.uint32)
    r = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), r).astype(np.float32)


def as_type(x, t):
    x = np.asarray(x)
    if t == "bf16":
        return bf16(x.astype(np.float32))
    return x.astype(NP[t])


class T:
    """An array with one of our types."""

    def __init__(self, x, t):
        self.t, self.x = t, as_type(x, t)


def text(t):
    flat = t.x.reshape(-1)
    if t.t in ("f16", "bf16", "f32"):
        items = ["%.9g" % v for v in flat]
    elif t.t == "f64":
        items = ["%.17g" % v for v in flat]
    else:
        items = [str(int(v)) for v in flat]
    return "%s[%s] %s" % (t.t, ",".join(map(str, t.x.shape)), " ".join(items))


def case(op, ins, out, tol=None, **keys):
    if tol is None:
        tol = TOL.get(out.t, 0)
    keys = dict(keys, tol=tol)
    attrs = " ".join("%s=%s" % (k, ",".join(map(str, v)) if isinstance(v, (list, tuple)) else v) for k, v in keys.items())
    print("%s %s : %s -> %s" % (op, attrs, " ; ".join(map(text, ins)), text(out)))


def values(shape, t, low=-3.0, high=3.0):
    if t == "bool":
        return T(rng.integers(0, 2, shape), t)
    if t in FLOATS or t == "f64":
        return T(np.round(rng.uniform(low, high, shape), 3), t)
    if t.startswith("u"):
        return T(rng.integers(0, 13, shape), t)
    return T(rng.integers(-7, 13, shape), t)


def wide(t):
    """The type to compute in, so that the result is rounded once."""
    return np.float64 if t in FLOATS + ("f64",) else NP[t]


# ---- elementwise, one operand
def up(t):
    return t if t in FLOATS or t == "f64" else "f32"


UNARY = {
    "neg": lambda x: -x, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "square": np.square, "relu": lambda x: np.maximum(x, 0),
}
MATH = {
    "reciprocal": lambda x: 1 / x, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp2": np.exp2, "exp": np.exp,
    "log2": np.log2, "log": np.log, "sin": np.sin, "cos": np.cos, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh,
}
POSITIVE = ("reciprocal", "sqrt", "rsqrt", "log2", "log")
for name, f in UNARY.items():
    for t in MAIN:
        if t == "bool" and name in ("neg", "sign", "square", "relu"):
            continue
        x = values((2, 5), t)
        y = x.x if t not in FLOATS and name in ("floor", "ceil", "trunc") else f(x.x.astype(wide(t)))
        case(name, [x], T(y, t), tol=TOL.get(t, 0) if name == "square" else 0)
case("floor", [T([-2.5, -2, -0.25, 0.75, 3, 1e9], "f32")], T([-3, -2, -1, 0, 3, 1e9], "f32"), tol=0)
case("neg", [T([-2**31, 2**31 - 1], "i32")], T([-2**31, -2**31 + 1], "i32"))
case("abs", [T([-0.0, -np.inf, 1e-40], "f32")], T([0.0, np.inf, 1e-40], "f32"), tol=0)
for t in ("i32", "i64", "u8", "bool"):
    x = values((7,), t)
    case("not", [x], T(~x.x, t))
for name, f in MATH.items():
    for t in FLOATS + ("i32", "u8"):
        x = values((3, 4), t, 0.05 if name in POSITIVE else -4, 6)
        if t not in FLOATS and name in POSITIVE:
            x = T(np.abs(x.x) + 1, t)
        y = f(x.x.astype(np.float64))
        tol = TOL[up(t)]
        if name == "exp":
            tol = max(tol, 3e-6)
        if name not in ("sin", "cos", "log", "log2"):
            case(name, [x], T(y, up(t)), tol=tol, floor=1e-30)
        else:
            case(name, [x], T(y, up(t)), tol=tol)
case("exp", [T([-np.inf, -100, 0, 80, 100, np.inf], "f32")], T([0, 3.7835059e-44, 1, 5.5406224e34, np.inf, np.inf], "f32"), tol=2e-2, floor=1e-45)
case("tanh", [T([-30, -0.3, -0.2, -1e-4, 0, 1e-6, 0.24, 0.26, 20], "f32")],
     T(np.tanh(np.float32([-30, -0.3, -0.2, -1e-4, 0, 1e-6, 0.24, 0.26, 20]).astype(np.float64)), "f32"), floor=1e-30)
case("log", [T([0, 1, np.inf], "f32")], T([-np.inf, 0, np.inf], "f32"))
case("sqrt", [T([0, 4, np.inf, -1], "f32")], T([0, 2, np.inf, np.nan], "f32"))

# ---- elementwise, two operands
ORDER = ["bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64"]


def promote(a, b):
    if a == b:
        return a
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    fa, fb = a.startswith(("f", "bf")), b.startswith(("f", "bf"))
    if fa or fb:
        return (a if ORDER.index(a) > ORDER.index(b) else b) if fa and fb else a if fa else b
    n = np.promote_types(NP[a], NP[b])
    return next(k for k, v in NP.items() if v == n)


BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "idiv": np.floor_divide, "mod": np.mod,
    "maximum": np.maximum, "minimum": np.minimum, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "pow": np.power,
}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


def binary(op, a, b, tol=None, **keys):
    t = promote(a.t, b.t)
    w = t
    if op == "div" and t not in FLOATS + ("f64",):
        t = w = "f32"
    x, y = as_type(a.x, w).astype(wide(w)), as_type(b.x, w).astype(wide(w))
    with np.errstate(all="ignore"):
        r = BINARY[op](x, y)
    out = T(r, "bool" if op in COMPARE else t)
    if tol is None and op in ("maximum", "minimum"):
        tol = 0
    case(op, [a, b], out, tol=tol, **keys)


for op in BINARY:
    for t in MAIN:
        if t == "bool" and op in ("sub", "idiv", "mod", "pow", "div"):
            continue
        if op in ("and", "or", "xor") and t in FLOATS:
            continue
        if op == "pow" and t not in FLOATS:
            continue
        if op in ("idiv", "mod") and t in ("f16", "bf16"):
            continue
        a, b = values((2, 4), t), values((2, 4), t)
        if op == "pow":
            a = values((2, 4), t, 0.1, 3)
        if op == "div":
            b = T(np.abs(b.x.astype(np.float64)) + 1, t)
        if op in COMPARE and t != "bool":
            b.x[0] = a.x[0]
        if op == "mod" and t == "f32":
            a, b = T([5.5, -5.5, 5.5, -5.5], t), T([2, 2, -2, -2], t)
        binary(op, a, b)
for t in ("i32", "i64", "u8"):
    a = T([17, 17, 200, 5, 0, 7], t) if t == "u8" else T([17, -17, 17, -17, 0, 7], t)
    b = T([5, 1, 255, 0, 3, 7], t) if t == "u8" else T([5, 5, -5, -5, 3, 0], t)
    binary("idiv", a, b)
    binary("mod", a, b)
case("idiv", [T([-2**31, 5], "i32"), T([-1, -1], "i32")], T([-2**31, -5], "i32"))
case("pow", [T([-2, -2, -2, 0, 0, 1], "f32"), T([3, 2, 0.5, 2, 0, 100], "f32")], T([-8, 4, np.nan, 0, 1, 1], "f32"))
for a, b in (("f32", "i32"), ("i32", "f16"), ("u8", "i32"), ("bool", "f32"), ("f16", "bf16"), ("i64", "i32"), ("bool", "u8"),
             ("bf16", "f32"), ("i8", "u8"), ("i32", "u32"), ("f64", "f32"), ("u16", "i16")):
    binary("add", values((3,), a), values((3,), b))
    binary("lt", values((3,), a), values((3,), b))
for sa, sb in (((2, 3), (3,)), ((2, 1), (1, 3)), ((4,), ()), ((), (2, 2)), ((2, 1, 3), (5, 1)), ((1,), (3, 1)), ((), ())):
    binary("mul", values(sa, "f32"), values(sb, "f32"))
    binary("sub", values(sa, "i32"), values(sb, "i32"))
binary("lt", T([np.nan, 1, np.inf], "f32"), T([1, np.nan, np.inf], "f32"))
binary("ge", T([np.nan, 1, np.inf], "f32"), T([1, np.nan, np.inf], "f32"))
binary("ne", T([np.nan, 1, np.inf], "f32"), T([np.nan, np.nan, np.inf], "f32"))
binary("maximum", T([np.nan, 1, -np.inf], "f32"), T([1, np.nan, np.inf], "f32"))
binary("minimum", T([np.nan, 1, -np.inf], "f32"), T([1, np.nan, np.inf], "f32"))
case("relu", [T([np.nan, -1, np.inf, -np.inf], "f32")], T([np.nan, 0, np.inf, 0], "f32"), tol=0)
for t in ("f32", "f16", "i32", "u8"):
    x = values((5,), t)
    case("add", [x], T(x.x + as_type(3, t), t), int=3)
    case("mul", [x], T(x.x * as_type(2, t), t), int=2)
x = values((4,), "i32")
case("mul", [x], T(x.x * 0.5, "f32"), num=0.5)
case("div", [x], T(x.x / 4, "f32"), int=4)
case("idiv", [x], T(x.x // 3, "i32"), int=3)
case("pow", [x], T(x.x**3, "i32"), int=3)
x = values((4,), "f32")
case("pow", [x], T(x.x.astype(float)**2, "f32"), int=2)

# ---- where, cast
c = values((2, 3), "bool")
for t in MAIN:
    a, b = values((2, 3), t), values((3,), t)
    case("where", [c, a, b], T(np.where(c.x, a.x, b.x), t), tol=0)
for a in MAIN + ("f64", "i8", "u32"):
    for b in MAIN + ("f64", "i16", "u64"):
        x = values((6,), a, 0 if b.startswith("u") else -9, 9)
        if b.startswith("u"):
            x = T(np.abs(x.x), a)
        src = x.x if b == "bool" else np.trunc(x.x.astype(np.float64)) if b not in FLOATS + ("f64",) else x.x.astype(np.float64)
        case("cast", [x], T(src, b), to=b, tol=0)
case("cast", [T([65504, 65519, 65520, 1e-8, 6e-8, np.nan], "f32")], T([65504, 65504, np.inf, 0, 5.9604645e-08, np.nan], "f16"), to="f16", tol=0)
case("cast", [T([1.00390625, 1.01171875, 3.4e38, np.nan, -np.inf], "f32")], T(bf16([1.00390625, 1.01171875, 3.4e38, np.nan, -np.inf]), "bf16"), to="bf16", tol=0)

# ---- movement
for t in ("f32", "u8", "i64", "bool"):
    x = values((2, 3, 4), t)
    for shape in ((24,), (4, 6), (2, 1, 12), (3, 2, 2, 2)):
        case("reshape", [x], T(x.x.reshape(shape), t), shape=shape, tol=0)
    case("reshape", [x], T(x.x.reshape(6, 4), t), shape=(-1, 4), tol=0)
    for axes in ((2, 1, 0), (1, 0, 2), (0, 2, 1)):
        case("permute", [x], T(x.x.transpose(axes), t), axes=axes, tol=0)
    case("transpose", [x], T(np.swapaxes(x.x, 0, -1), t), axes=(0, -1), tol=0)
    y = values((2, 1, 3), t)
    case("expand", [y], T(np.broadcast_to(y.x, (4, 2, 5, 3)), t), shape=(4, -1, 5, -1), tol=0)
    z = values((3, 2), t)
    case("pad", [z], T(np.pad(z.x, ((1, 2), (0, 3))), t), pairs=(1, 2, 0, 3), tol=0)
    case("pad", [z], T(np.pad(z.x, ((2, 0), (1, 1)), constant_values=1), t), pairs=(2, 0, 1, 1), value=1, tol=0)
    case("shrink", [x], T(x.x[1:2, 0:2, 1:4], t), pairs=(1, 2, 0, 2, 1, 4), tol=0)
    case("flip", [x], T(x.x[::-1, :, ::-1], t), axes=(0, -1), tol=0)
    case("contiguous", [x], T(x.x, t), tol=0)
z = values((3, 2), "f32")
case("pad", [z], T(np.pad(z.x, ((0, 1), (1, 0)), constant_values=-np.inf), "f32"), pairs=(0, 1, 1, 0), value="-inf", tol=0)

# ---- reductions
REDUCE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean}


def reduce_type(op, t):
    if op in ("sum", "prod") and t not in FLOATS:
        return "i64"
    if op in ("mean", "var", "std") and t not in FLOATS:
        return "f32"
    return t


def reduction(op, x, axes, keep, **keys):
    f = (lambda v, **k: np.var(v, ddof=1, **k)) if op == "var" else (lambda v, **k: np.std(v, ddof=1, **k)) if op == "std" else REDUCE[op]
    w = x.x if op in ("max", "min") else x.x.astype(np.float64) if x.t in FLOATS or op in ("mean", "var", "std") else x.x.astype(np.int64)
    t = reduce_type(op, x.t)
    y = f(w, axis=tuple(axes) if axes else None, keepdims=bool(keep))
    case(op, [x], T(y, t), tol=0 if op in ("max", "min") else None, axes=axes, keep=keep, **keys)


for op in ("sum", "prod", "max", "min", "mean", "var", "std"):
    for t in MAIN:
        x = values((3, 4), t, 0.2, 2)
        reduction(op, x, (1,), 0)
        reduction(op, x, (), 0)
    x = values((2, 3, 5), "f32")
    for axes in ((0,), (-1,), (0, 2), (1, 2), (0, 1, 2)):
        reduction(op, x, axes, 1)
        reduction(op, x, axes, 0)
reduction("sum", values((300,), "f32"), (), 0, floor=300)
reduction("max", values((17, 33), "f32"), (0,), 0)
reduction("max", T([[1, np.nan], [3, -np.inf], [-np.inf, -np.inf]], "f32"), (1,), 0)
reduction("min", T([[np.nan, 1], [3, np.inf], [np.inf, np.inf]], "f32"), (1,), 0)
reduction("sum", T(np.full(1000, 255), "u8"), (), 0)
for op, f in (("softmax", lambda e, s: e / s), ("log_softmax", lambda e, s: np.log(e / s))):
    for t in FLOATS + ("i32",):
        for axis in (-1, 0):
            x = values((4, 6), t)
            d = x.x.astype(np.float64)
            e = np.exp(d - d.max(axis, keepdims=True))
            case(op, [x], T(f(e, e.sum(axis, keepdims=True)), up(t)), axis=axis, tol=max(TOL[up(t)], 1e-5))
case("softmax", [T([[1e4, 0, -np.inf], [0, 0, 0]], "f32")], T([[1, 0, 0], [1 / 3] * 3], "f32"), axis=-1)

# ---- matrix products
for sa, sb in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)),
               ((2, 1, 2, 3), (4, 3, 2)), ((2, 3), (4, 3, 2)), ((5, 2, 3), (3,)), ((1, 1), (1, 1)), ((17, 33), (33, 9))):
    a, b = values(sa, "f32"), values(sb, "f32")
    case("matmul", [a, b], T(np.matmul(a.x.astype(np.float64), b.x.astype(np.float64)), "f32"), tol=1e-5)
for t in ("f16", "bf16", "i32", "i64", "u8", "bool"):
    a, b = values((3, 5), t), values((5, 2), t)
    w = np.float64 if t in FLOATS else NP[t]
    case("matmul", [a, b], T(np.matmul(a.x.astype(w), b.x.astype(w)), t))
a, b = values((2, 3), "i32"), values((3, 2), "f16")
case("matmul", [a, b], T(np.matmul(a.x.astype(np.float64), b.x.astype(np.float64)), "f16"))
