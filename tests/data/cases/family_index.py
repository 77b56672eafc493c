"""Indexing: by numbers, slices and tensors; setitem, gather, scatter, masks, counting."""
import numpy as np
import torch
import torch.nn.functional as F

from core import TYPES, In, case, is_float

SOME = ("f32", "i64", "u8", "bool", "f16", "bf16", "f64")


def exact(op, ins, f, grad=True, **keys):
    case(op, ins, f, tol=0, grad=grad, gtol=2e-6 if ins[0].t in ("f32", "f64") else None, out=keys.pop("out", ins[0].t), **keys)


def subscript_text(s):
    """3, 1:5:2, ":", n (a new axis), r (...), t2 (input 2)"""
    def one(v):
        if v is None:
            return "n"
        if v is Ellipsis:
            return "r"
        if isinstance(v, slice):
            if v == slice(None):
                return ":"
            return ":".join("" if p is None else str(p) for p in (v.start, v.stop, v.step))
        return str(v)
    return ";".join(map(one, s))


S = slice


def index(shape, subs, tensors=(), t="f32", view=()):
    """A subscript "tK" means input K."""
    def get(x, *i):
        key = tuple(i[int(v[1:]) - 1] if isinstance(v, str) else v for v in subs)
        if any(isinstance(v, slice) and (v.step or 1) < 0 for v in key):
            return x.detach().numpy()[key].copy()
        return x[key]
    backward = any(isinstance(v, slice) and (v.step or 1) < 0 for v in subs)
    exact("index", [In(t, shape, view=view)] + list(tensors), get, grad=not backward, at=subscript_text(subs))


# ---- numbers and slices
for t in SOME:
    index((4, 5), (1, S(1, 4)), t=t)
    index((4, 5), (S(None, None, 2), S(3, 0, -1)), t=t)
    index((4, 5), ("t1",), [In("i64", data=[3, 0, 0, -1])], t=t)
for subs in ((0,), (-1,), (2, 3), (-4, -5), (S(None),), (S(1, None),), (S(None, 2), S(-3, None)), (S(0, 4, 3), S(1, 5, 2)), (Ellipsis, 1), (None, 1, None), (S(None), None, S(1, 2)),
             (Ellipsis, None), (S(None, None, -1),), (S(3, None, -2), 1), (S(2, 2),), (S(3, 1),), (S(-100, 100),), (1, Ellipsis, S(0, 2)), ()):
    index((4, 5), subs)
index((2, 3, 4), (Ellipsis, S(None), 0))
index((2, 3, 4), (S(None), 1, S(None, None, 3)))
index((0, 3), (S(None), 1))
index((6, 5), (S(1, 4), 2), view=[("permute", 1, 0), ("flip", 1)])

# ---- tensors
I = lambda *v, t="i64": In(t, data=np.array(v))
index((4, 5), ("t1", "t2"), [I(0, 3, 1), I(4, 0, 0)])
index((4, 5), ("t1", "t2"), [In("i64", data=[[0], [3]]), I(4, 0, 2)])
index((4, 5), (S(None), "t1"), [I(4, 4, 0)])
index((4, 5), ("t1",), [In("i64", data=[[0, 3], [1, 1]])])
index((3, 4, 5), ("t1", S(None), "t2"), [I(0, 2), I(4, 1)])
index((3, 4, 5), (S(None), "t1", "t2"), [I(0, 2), I(4, 1)])
index((3, 4, 5), (S(None), "t1", S(1, 4)), [I(0, 2, 3)])
# In NumPy a number counts as a tensor here, so the slice is between two tensors; PyTorch applies the number first.
case("index", [In("f32", (3, 4, 5)), I(0, 2)], lambda x, i: x[0, :, i], arrays=True, tol=0, out="f32", at="0;:;t1")
index((3, 4, 5), ("t1", 1, S(0, 5, 2)), [I(0, 2)])
index((3, 4, 5), (Ellipsis, "t1"), [I(-1, 2)])
index((3, 4, 5), ("t1", None, "t2"), [I(0, 2), I(3, 1)])
index((4, 5), ("t1",), [In("i64", data=2)])
index((4, 5), ("t1",), [In("i64", (0,))])
for t in ("i32", "u8", "i8", "u32"):
    index((4, 3), ("t1",), [I(3, 1, 0, t=t)])


# ---- setitem
def setitem(shape, subs, value, tensors=(), t="f32"):
    """value: a shape, or a number"""
    number = not isinstance(value, tuple)
    ins = [In(t, shape)] + ([] if number else [In(t, value, span=(3, 9) if t != "bool" else None)]) + list(tensors)

    def put(x, *rest):
        y = x.clone()
        i = rest if number else rest[1:]
        y[tuple(i[int(v[1:]) - (1 if number else 2)] if isinstance(v, str) else v for v in subs)] = value if number else rest[0]
        return y
    nothing = S(2, 2) in subs  # uses no element of the value
    exact("setitem", ins, put, at=subscript_text(subs), independent=(1,) if nothing else (), **({"int": value} if number else {}))


for t in SOME:
    setitem((4, 5), (1, S(1, 4)), (3,), t=t)
    setitem((4, 5), (S(0, 4, 2),), 1, t=t)
for subs, value in (((0,), (5,)), ((-1, 2), ()), ((S(None), 1), (4,)), ((S(1, 3), S(None, None, 2)), (2, 3)), ((S(None),), (1, 5)), ((Ellipsis, S(0, 2)), (4, 1)), ((S(2, 2),), (5,)), ((S(None), None, 3), (1,))):
    setitem((4, 5), subs, value)
    setitem((4, 5), subs, 7)
setitem((4, 5), ("t1",), 7, [I(0, 3)])
setitem((4, 5), ("t2",), (2, 5), [I(3, 1)])
setitem((4, 5), (S(None), "t2"), (4, 2), [I(3, 1)])
setitem((4, 5), ("t2", "t3"), (2,), [I(3, 1), I(0, 4)])
setitem((4, 5), ("t1", "t2"), 7, [I(3, 1), I(0, 4)])
case("setitem", [In("f32", (4, 2)), In("f32", (3, 2), span=(3, 9)), I(1, 2, 1)], lambda x, v, i: np.stack([x[0], v[2], v[1], x[3]]), arrays=True, at="t2", tol=0, out="f32")

# ---- along an axis
for t in SOME:
    exact("index_select", [In(t, (3, 4)), I(3, 0, 0)], lambda x, i: x.index_select(1, i), axis=1)
    exact("gather", [In(t, (3, 4)), In("i64", (3, 2), span=(0, 3))], lambda x, i: x.gather(1, i), axis=1)
    exact("take", [In(t, (3, 4)), I(11, 0, 5)], lambda x, i: x.take(i))
for axis, shape in ((0, (2, 4)), (0, (5, 2)), (1, (3, 7)), (-1, (1, 1)), (1, (3, 0))):
    exact("gather", [In("f32", (3, 4)), In("i64", shape, span=(0, (3, 4)[axis] - 1))], lambda x, i: x.gather(axis, i), axis=axis)
exact("gather", [In("f32", (2, 3, 4)), In("i32", (2, 2, 4), span=(0, 2))], lambda x, i: x.gather(1, i), axis=1)
exact("gather", [In("f32", (5, 4), view=[("permute", 1, 0), ("flip", 1)]), In("i64", (4, 3), span=(0, 4))], lambda x, i: x.gather(1, i), axis=1)
exact("take", [In("f32", (3, 4)), In("i64", (2, 2), span=(0, 11))], lambda x, i: x.take(i))
exact("index_select", [In("f32", (2, 3, 4)), I(2, 0, 1, 1)], lambda x, i: x.index_select(-2, i), axis=-2)


# ---- scatter: distinct places, then repeated ones
def places(shape, axis, size):
    x = np.zeros(shape, np.int64)
    lanes = np.moveaxis(x, axis, 0)
    for k in range(shape[axis]):
        lanes[k] = (k * 5 + np.arange(lanes[k].size).reshape(lanes[k].shape)) % size
    return In("i64", data=x)


MODES = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin", "mean": "mean"}
for t in SOME:
    exact("scatter", [In(t, (3, 4)), places((3, 2), 1, 4), In(t, (3, 2))], lambda x, i, v: x.scatter(1, i, v), axis=1, mode="replace")
for axis, shape, size in ((0, (2, 4), (3, 4)), (1, (2, 3), (3, 7)), (-1, (3, 1), (3, 4)), (0, (3, 2), (3, 4))):
    exact("scatter", [In("f32", size), places(shape, axis, size[axis]), In("f32", shape)], lambda x, i, v: x.scatter(axis, i, v), axis=axis, mode="replace")
    exact("scatter", [In("f32", size), places(shape, axis, size[axis])], lambda x, i: x.scatter(axis, i, 7.0), axis=axis, mode="replace", int=7)


def last(x, i, v):
    y = x.copy()
    for k in range(i.shape[1]):
        for r in range(i.shape[0]):
            y[r, i[r, k]] = v[r, k]
    return y


case("scatter", [In("f32", (3, 4)), In("i64", (3, 9), span=(0, 3)), In("f32", (3, 9))], last, arrays=True, tol=0, axis=1, mode="replace", out="f32")
for mode, reduce in MODES.items():
    for with_x in (0, 1):
        for t in ("f32", "i32", "f16", "u8", "f64"):
            if t in ("i32", "u8") and mode == "mean":
                continue
            x, v = In(t, (3, 4), span=(1, 2) if is_float(t) else (1, 4)), In(t, (3, 6), span=(0.5, 3) if is_float(t) else (1, 3), distinct=is_float(t))
            case("scatter", [x, In("i64", (3, 6), span=(0, 3)), v], lambda x, i, v: x.scatter_reduce(1, i, v, reduce, include_self=bool(with_x)), out=t, axis=1, mode=mode, with_x=with_x,
                 tol=0 if mode in ("max", "min") else {"f32": 1e-5, "f64": 1e-12, "f16": 2e-3}.get(t, 0), grad=mode == "sum" or (mode == "mean" and t != "f16"))
        case("scatter", [In("f32", (4, 3)), In("i64", (5, 3), span=(0, 3)), In("f32", (5, 3))], lambda x, i, v: x.scatter_reduce(0, i, v, reduce, include_self=bool(with_x)),
             out="f32", axis=0, mode=mode, with_x=with_x, tol=1e-5, grad=mode == "sum")
        case("scatter", [In("f32", (4, 3)), In("i64", (0, 3)), In("f32", (0, 3))], lambda x, i, v: x, out="f32", axis=0, mode=mode, with_x=with_x, tol=0, grad=False)

# ---- masks
for t in SOME:
    exact("masked_fill", [In(t, (2, 3)), In("bool", (2, 3))], lambda x, m: x.masked_fill(m, 1), int=1)
    exact("masked_select", [In(t, (3, 4)), In("bool", (3, 4))], lambda x, m: x.masked_select(m))
    case("nonzero", [In(t, (3, 4), span=(0, 1) if not is_float(t) else None)], lambda x: torch.nonzero(x), out="i64", grad=False)
exact("masked_fill", [In("f32", (2, 3)), In("bool", (3,))], lambda x, m: x.masked_fill(m, -torch.inf), num=float("-inf"))
exact("masked_fill", [In("f32", (2, 1)), In("bool", (2, 3))], lambda x, m: x.expand(2, 3).masked_fill(m, 0), int=0)
exact("masked_select", [In("f32", (2, 3)), In("bool", (3,))], lambda x, m: x.masked_select(m))
exact("masked_select", [In("f32", (2, 3)), In("bool", data=np.zeros((2, 3), bool))], lambda x, m: x.masked_select(m), grad=False)
for shape in ((7,), (2, 3, 2), (0, 3)):
    case("nonzero", [In("i32", shape, span=(0, 1))], lambda x: torch.nonzero(x), out="i64", grad=False)

# ---- counting
for t in ("i64", "i32", "u8"):
    case("one_hot", [In(t, (2, 3), span=(0, 4))], lambda x: F.one_hot(x, 5), out="i64", classes=5)
case("one_hot", [In("i64", data=[0, 7, -1, 2])], lambda x: np.array([[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]), arrays=True, out="i64", classes=3)
case("one_hot", [In("i64", data=1)], lambda x: F.one_hot(x, 4), out="i64", classes=4)
for t in ("i64", "u8", "i32"):
    case("bincount", [In(t, (30,), span=(0, 6))], lambda x: torch.bincount(x, minlength=8), out="i64", n=8)
case("histogram", [In("f32", (40,), span=(-3, 3))], lambda x: np.histogram(x, 6, (-2.0, 2.0))[0], arrays=True, out="i64", bins=6, low=-2.0, high=2.0)
case("histogram", [In("f64", data=[0.0, 1.0, 0.5, 0.25, 1.5, -0.1, 0.999])], lambda x: np.histogram(x, 4, (0.0, 1.0))[0], arrays=True, out="i64", bins=4, low=0.0, high=1.0)
