"""Helpers for the families of cases: element types in NumPy, inputs that C can reproduce, and the text of a case.

A line is one case:

  OP key=value... : INPUT... -> OUTPUT TOL FLOOR NUMBER... | k TOL FLOOR NUMBER...

INPUT    dtype[sizes], then the source of its elements, which are in row-major order:
         "=1,nan,-0"        lists the elements.
         "~seed"            draws floats from [-2, 2), signed integers from -5 to 9, unsigned ones from 0 to 11.
         "~seed(low,high)"  draws floats from [low, high), integers from low to high.
         "!seed(low,high)"  shuffles distinct, evenly spaced values.
         Each ".op(numbers)" after that is a movement op applied to the elements; the result is the argument of OP.
         Arguments that are not contiguous are made in this way.
OUTPUT   dtype[sizes], then the expected elements. An actual element may differ from an expected one v by at most
         TOL * max(|v|, FLOOR).
| k      the gradient with respect to input k before its movement ops. The output gradient is drawn from [-1, 1) with
         seed 1.

Values are computed in float64 or in integers, from inputs rounded to their type, and the result is rounded once. For
types without PyTorch counterpart (u16, u32, u64, fp8), NumPy computes them, or PyTorch in a wider type.
"""
import math
import sys
import zlib

import numpy as np
import torch

INTS = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64}
INT_TYPES = tuple(INTS)
NAN, INF = math.nan, math.inf
RANGE = {"i8": (-128, 127), "u8": (0, 255), "i16": (-2**15, 2**15 - 1), "u16": (0, 2**16 - 1), "i32": (-2**31, 2**31 - 1),
         "u32": (0, 2**32 - 1), "i64": (-2**63, 2**63 - 1), "u64": (0, 2**64 - 1), "bool": (0, 1)}
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
TYPES = ("bool",) + INT_TYPES + FLOATS
# One unit in the last place, and some more for a second rounding. f32 has the tolerance that the library states for sums
# and transcendental functions.
TOL = {"f8e4m3": 0.13, "f8e5m2": 0.26, "f16": 1.1e-3, "bf16": 8e-3, "f32": 3e-6, "f64": 1e-12}


def is_float(t):
    return t in FLOATS


def is_unsigned(t):
    return t[0] == "u"


# ---- values of our types as float64
SMALL = {"f8e4m3": (4, 3, 7, False), "f8e5m2": (5, 2, 15, True), "f16": (5, 10, 15, True), "bf16": (8, 7, 127, True), "f32": (8, 23, 127, True)}


def to_float(x, t):
    """The nearest value of float type t, ties to even. Values that are too large become infinity, in f8e4m3 NaN."""
    x = np.asarray(x, np.float64)
    if t == "f64":
        return x
    _, man, bias, inf = SMALL[t]
    exp_bits = SMALL[t][0]
    top = 2 ** exp_bits - 1 - bias - (1 if inf else 0)
    most = 2.0 ** top * (2 - 2.0 ** -man) if inf else 2.0 ** top * (2 - 2.0 ** (1 - man))
    with np.errstate(all="ignore"):
        e = np.floor(np.log2(np.abs(np.where((x == 0) | ~np.isfinite(x), 1, x))))
        e = np.where(np.abs(x) < 2.0 ** e, e - 1, np.where(np.abs(x) >= 2.0 ** (e + 1), e + 1, e))
        ulp = 2.0 ** (np.maximum(e, 1 - bias) - man)
        r = np.round(x / ulp) * ulp
        r = np.where(np.abs(r) > most, np.sign(r) * (np.inf if inf else np.nan), r)
        return np.where(np.isfinite(x), r, x if inf else np.where(np.isinf(x), np.nan, x))


def to_type(x, t):
    """Converts x (array, tensor or number) to type t: float64 for floats, bool, or NumPy integers, which wrap."""
    if isinstance(x, torch.Tensor):
        x = x.detach().numpy()
    x = np.asarray(x)
    if t == "bool":
        return x != 0
    if is_float(t):
        return to_float(x, t)
    if x.dtype.kind == "f":
        x = x.astype(np.int64) if t != "u64" else x.astype(np.uint64)
    return x.astype(INTS[t])


def number(v, t):
    """The shortest decimal that rounds back to v."""
    if t == "bool" or t in INTS:
        return str(int(v))
    if np.isnan(v):
        return "nan"
    if np.isinf(v) or v == 0:
        return ("-" if np.signbit(v) else "") + ("inf" if v else "0")
    if t == "f64":
        return repr(float(v))
    for digits in range(1, 18):
        s = "%.*g" % (digits, v)
        if to_float(float(s), t) == v:
            return s.replace("e-0", "e-").replace("e+0", "e+")


def numbers(x, t, sep=" ", tol=0):
    """Prints no more digits than the tolerance can distinguish."""
    x = np.asarray(x).reshape(-1)
    if tol and t in ("f32", "f64"):
        digits = 2 - math.floor(math.log10(tol))
        return sep.join(min("%.*g" % (digits, v), number(v, t), key=len) for v in x)
    return sep.join(number(v, t) for v in x)


# ---- inputs
MASK = (1 << 64) - 1


def draw(seed, i):
    """splitmix64"""
    z = ((seed << 32 | i) + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return (z ^ z >> 31) >> 32


def span_of(t):
    return (-2, 2) if is_float(t) else (0, 1) if t == "bool" else (0, 11) if is_unsigned(t) else (-5, 9)


class In:
    """An input. In("f32", (2, 3)) is drawn from span=(low, high), with distinct values if distinct is set; data= gives
    the elements instead. view lists movement ops to apply: ("permute", 1, 0), ("flip", 0), ("shrink", 0, 2, 1, 3),
    ("expand", 4, 3), ("reshape", 6), ("pad", 1, 0)."""

    def __init__(self, t, shape=None, data=None, span=None, distinct=False, view=(), nograd=False):
        self.t, self.span, self.distinct, self.view = t, span, distinct, view
        self.data = None if data is None else np.asarray(data)
        self.shape = tuple(shape) if shape is not None else self.data.shape
        self.nograd = nograd

    def make(self, seed):
        n = int(np.prod(self.shape))
        shape = "%s[%s]" % (self.t, ",".join(map(str, self.shape)))
        if self.data is not None:
            self.base = to_type(self.data, self.t).reshape(self.shape)
            self.text = "%s=%s" % (shape, numbers(self.base, self.t, ","))
        else:
            low, high = self.span or span_of(self.t)
            if self.distinct:
                order = list(range(n))
                for i in range(n - 1, 0, -1):
                    j = draw(seed, i) % (i + 1)
                    order[i], order[j] = order[j], order[i]
                v = [low + (high - low) * (k / n) for k in order] if is_float(self.t) else [low + k * (high - low) // n for k in order]
            elif is_float(self.t):
                v = [low + (high - low) * ((draw(seed, i) & 4095) / 4096) for i in range(n)]
            else:
                v = [low + draw(seed, i) % (high - low + 1) for i in range(n)]
            self.base = to_type(np.array(v, np.float64 if is_float(self.t) else object if self.t == "u64" else np.int64), self.t).reshape(self.shape)
            self.text = "%s%s%x" % (shape, "!" if self.distinct else "~", seed)
            if (low, high) != span_of(self.t) or self.distinct:
                self.text += "(%s,%s)" % (low, high)
        for op, *v in self.view:
            self.text += ".%s(%s)" % (op, ",".join(map(str, v)))

    def tensor(self, grad):
        """Returns two torch tensors of float64, int64 or bool: the leaf, and the argument after the movement ops."""
        x = self.base
        leaf = torch.tensor(x if x.dtype != np.uint64 and x.dtype.kind != "u" else x.astype(np.int64))
        if x.dtype.kind == "i":
            leaf = leaf.to(torch.int64)
        if grad and is_float(self.t) and not self.nograd:
            leaf.requires_grad_()
        return leaf, move(leaf, self.view)

    def array(self):
        x = self.base if self.base.dtype.kind in "bf" else self.base.astype(np.int64)
        return move(torch.tensor(x), self.view).numpy().astype(self.base.dtype)


def move(x, view):
    for op, *v in view:
        if op == "permute":
            x = x.permute(*v)
        elif op == "flip":
            x = x.flip(*v)
        elif op == "shrink":
            x = x[tuple(slice(a, b) for a, b in zip(v[0::2], v[1::2]))]
        elif op == "expand":
            x = x.expand(*v)
        elif op == "reshape":
            x = x.reshape(*v)
        elif op == "pad":
            x = torch.nn.functional.pad(x, [n for k in range(x.dim() - 1, -1, -1) for n in v[2 * k:2 * k + 2]])
        else:
            sys.exit("unknown movement op " + op)
    return x


# ---- promotion: the comment at the top of frontend/doorbell.h has the rules
def promote(*types):
    a = types[0]
    for b in types[1:]:
        fa, fb = is_float(a), is_float(b)
        if a == b:
            continue
        if fa and fb:
            size = {"f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
            a = (a if size[a] > size[b] else b) if size[a] != size[b] else {1: "f16", 2: "f32"}[size[a]]
        elif fa or fb:
            a = a if fa else b
        elif "bool" in (a, b):
            a = b if a == "bool" else a
        else:
            n = np.promote_types(INTS[a], INTS[b])
            a = "f64" if n == np.float64 else next(k for k, v in INTS.items() if v == n)
    return a


def axes_of(x, axes):
    return tuple(axes) if axes else tuple(range(x.dim()))


def to_real(t):
    """Returns the result type of real functions."""
    return t if is_float(t) else "f32"


# ---- cases
lines = []


def key_text(v):
    if isinstance(v, (list, tuple)):
        return ",".join(map(key_text, v))
    if isinstance(v, bool):
        return str(int(v))
    return repr(v) if isinstance(v, float) else str(v)


def numbers_at(tol, floor, x, t):
    return "%s %s %s" % (repr(tol) if tol else "0", "%g" % floor, numbers(x, t, tol=tol))


def case(op, ins, fn, out=None, grad=True, tol=None, floor=1, gtol=None, gfloor=1, arrays=False, independent=(), **keys):
    """Adds a case. fn takes the inputs and returns the result, which is converted to type out (default: the promoted
    type). The inputs are torch tensors of float64, int64 and bool, or with arrays=True NumPy arrays with their own
    integer types. With grad=True the case has the gradients of the float inputs, except those in independent, on which
    the result does not depend."""
    head = op + "".join(" %s=%s" % (k.rstrip("_"), key_text(v)) for k, v in keys.items())
    for k, x in enumerate(ins):
        x.make(zlib.crc32(("%s %d %s%s%s" % (head, k, x.t, x.shape, x.view)).encode()) & 0xFFFF)
    out = out or promote(*[x.t for x in ins])
    grad = grad and is_float(out) and any(is_float(x.t) and not x.nograd for x in ins) and not arrays
    pairs = [] if arrays else [x.tensor(grad) for x in ins]
    with np.errstate(all="ignore"):
        y = fn(*[x.array() if arrays else p[1] for x, p in zip(ins, pairs or ins)])
        value = to_type(y, out)
    if tol is None:
        tol = TOL.get(out, 0)
    shape = ",".join(map(str, value.shape))
    line = "%s : %s -> %s[%s] %s" % (head, " ".join(x.text for x in ins), out, shape, numbers_at(tol, floor, value, out))
    if grad:
        dy = In(out, value.shape, span=(-1, 1))
        dy.make(1)
        leaves = [(k, p[0]) for k, p in enumerate(pairs) if p[0].requires_grad]
        gs = torch.autograd.grad(y, [p for _, p in leaves], torch.tensor(dy.base), allow_unused=True)
        for (k, leaf), g in zip(leaves, gs):
            if g is None or k in independent:
                continue
            t = ins[k].t
            g = to_type(g, t)
            line += " | %d %s" % (k, numbers_at(max(TOL[t], TOL[out]) * 4 if gtol is None else gtol, gfloor, g, t))
    lines.append(line.rstrip())


def raw(op, ins, out, value, tol=0, floor=1, **keys):
    """Adds a case with a result written by hand."""
    case(op, ins, lambda *a: np.asarray(value), out=out, grad=False, tol=tol, floor=floor, **keys)
