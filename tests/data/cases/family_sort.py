"""Order: sort, argsort, topk, median. Equal elements keep their order, NaN is the largest."""
import numpy as np
import torch

from core import INF, INT_TYPES, NAN, RANGE, TYPES, In, case, is_float


def wide(x):
    return x.long() if x.dtype == torch.bool else x


def sorted_by(op, x, axis, descending, **keys):
    k = 0 if op == "sort" else 1
    distinct = x.data is None and x.distinct
    case(op, [x], lambda v: torch.sort(wide(v), dim=axis, descending=bool(descending), stable=True)[k], out=x.t if op == "sort" else "i64", axis=axis, descending=descending, tol=0, gtol=1e-6,
         grad=op == "sort" and distinct and x.t in ("f32", "f64"), **keys)


def drawn(t, shape, **keys):
    return In(t, shape, span=(-4, 4), distinct=True, **keys) if t in ("f32", "f64") else In(t, shape, **keys)


for op in ("sort", "argsort"):
    for descending in (0, 1):
        for t in TYPES:
            sorted_by(op, drawn(t, (3, 7)), 1, descending)
        for shape, axis in (((5,), 0), ((2, 6, 3), 1), ((6, 2), 0), ((2, 3, 4), -1), ((1,), 0), ((3, 1), 1), ((0, 3), 0), ((3, 0), 1), ((2, 33), 1), ((130,), 0)):
            sorted_by(op, drawn("f32", shape), axis, descending)
        sorted_by(op, In("i32", (4, 12), span=(0, 3)), 1, descending)  # many are equal
        sorted_by(op, In("f32", data=[[NAN, 1, INF, -INF, NAN, 0], [3, 3, -1, 3, -1, -1]]), 1, descending)
        sorted_by(op, drawn("f32", (7, 3), view=[("permute", 1, 0), ("flip", 1)]), 1, descending)
        for t in INT_TYPES:
            if t != "u64":
                low, high = RANGE[t]
                sorted_by(op, In(t, data=np.array([high, low, 3, high - 1, low + 1, low], object)), 0, descending)
for largest in (1, 0):
    for t in ("f32", "f16", "f64", "i32", "u8", "i64"):
        for pick in (0, 1):
            if pick and t not in ("f32", "f64"):
                continue  # which of equal ones is not said by PyTorch
            case("topk", [drawn(t, (3, 8))], lambda x: torch.topk(x, 3, 1, bool(largest))[pick], out="i64" if pick else t, k=3, axis=1, largest=largest, pick=pick, tol=0, gtol=1e-6,
                 grad=not pick and t in ("f32", "f64"))
    for shape, axis, k in (((9,), 0, 9), ((9,), 0, 1), ((4, 5, 2), 1, 2), ((6, 2), -2, 4), ((5, 3), 0, 0), ((2, 100), 1, 5)):
        for pick in (0, 1):
            case("topk", [drawn("f32", shape)], lambda x: torch.topk(x, k, axis, bool(largest))[pick], out="i64" if pick else "f32", k=k, axis=axis, largest=largest, pick=pick, tol=0, gtol=1e-6, grad=not pick)
    case("topk", [In("f32", data=[1, NAN, INF, -INF, 5])], lambda x: torch.topk(x, 3, 0, bool(largest))[0], k=3, axis=0, largest=largest, pick=0, grad=False)
for t in ("f32", "f16", "f64", "i32", "u8"):
    for shape, axis in (((3, 5), 1), ((3, 6), 1), ((4, 3), 0), ((2, 3, 5), -1), ((1, 1), 1)):
        case("median", [drawn(t, shape)], lambda x: x.median(axis)[0], axis=axis, tol=0, gtol=1e-6, grad=t in ("f32", "f64"))
case("median", [drawn("f32", (3, 5))], lambda x: x.median(1, keepdim=True)[0], axis=1, keep=1, tol=0, gtol=1e-6)
case("median", [In("f32", data=[[1, NAN, 2], [INF, -INF, 0]])], lambda x: x.median(1)[0], axis=1, grad=False)
