"""Movement: shapes and order, exactly, for every type; with gradients."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from core import FLOATS, In, TYPES, case, is_float, move

MAIN = ("f32", "u8", "i64", "bool", "f16", "f64")


def exact(op, ins, f, **keys):
    case(op, ins, f, tol=0, floor=0, gtol=1e-6 if ins[0].t in ("f32", "f64") else None, **keys)


def pad(x, pairs, value=0):
    flat = [n for k in range(x.dim() - 1, -1, -1) for n in pairs[2 * k:2 * k + 2]]
    return F.pad(x.double() if x.dtype == torch.bool else x, flat, value=value)


for t in TYPES:
    few = t not in MAIN
    for shape in ((24,), (4, 6)) if few else ((24,), (4, 6), (2, 1, 12), (3, 2, 2, 2), (-1, 4), (6, -1, 1)):
        exact("reshape", [In(t, (2, 3, 4))], lambda x: x.reshape(shape), shape=shape)
    for axes in ((2, 1, 0),) if few else ((2, 1, 0), (1, 0, 2), (0, 2, 1), (-1, 0, 1)):
        exact("permute", [In(t, (2, 3, 4))], lambda x: x.permute(axes), axes=axes)
    exact("transpose", [In(t, (2, 3, 4))], lambda x: x.transpose(0, -1), axes=(0, -1))
    exact("expand", [In(t, (2, 1, 3))], lambda x: x.expand(4, -1, 5, -1), shape=(4, -1, 5, -1))
    exact("pad", [In(t, (3, 2))], lambda x: pad(x, (1, 2, 0, 3)), pairs=(1, 2, 0, 3), int=0)
    exact("pad", [In(t, (3, 2))], lambda x: pad(x, (2, 0, 1, 1), 1), pairs=(2, 0, 1, 1), int=1)
    exact("shrink", [In(t, (2, 3, 4))], lambda x: x[1:2, 0:2, 1:4], pairs=(1, 2, 0, 2, 1, 4))
    exact("flip", [In(t, (2, 3, 4))], lambda x: x.flip(0, -1), axes=(0, -1))
    exact("contiguous", [In(t, (2, 3, 4), view=[("permute", 2, 0, 1), ("flip", 1)])], lambda x: x.clone())
for v in (-math.inf, math.nan, 0.5):
    exact("pad", [In("f32", (3, 2))], lambda x: pad(x, (0, 1, 1, 0), v), pairs=(0, 1, 1, 0), num=v)
exact("pad", [In("i8", (2, 2))], lambda x: pad(x, (1, 0, 0, 1), -128), pairs=(1, 0, 0, 1), int=-128)
exact("pad", [In("f32", (2, 2), view=[("permute", 1, 0), ("flip", 0)])], lambda x: pad(x, (0, 2, 1, 0)), pairs=(0, 2, 1, 0), int=0)

# ---- empty and scalar, and one op on another
for t in ("f32", "i32", "bool"):
    exact("reshape", [In(t, ())], lambda x: x.reshape(1, 1), shape=(1, 1))
    exact("reshape", [In(t, (1, 1))], lambda x: x.reshape(()), shape=())
    exact("reshape", [In(t, (0, 3))], lambda x: x.reshape(3, 0, 2), shape=(3, 0, 2))
    exact("permute", [In(t, (2, 0, 3))], lambda x: x.permute(2, 0, 1), axes=(2, 0, 1))
    exact("expand", [In(t, (1, 0))], lambda x: x.expand(4, 0), shape=(4, 0))
    exact("expand", [In(t, (1, 3))], lambda x: x.expand(0, 3), shape=(0, 3))
    exact("expand", [In(t, ())], lambda x: x.expand(2, 2), shape=(2, 2))
    exact("pad", [In(t, (0, 2))], lambda x: pad(x, (1, 1, 0, 0), 1), pairs=(1, 1, 0, 0), int=1)
    exact("shrink", [In(t, (3, 4))], lambda x: x[1:1, 0:4], pairs=(1, 1, 0, 4))
    exact("flip", [In(t, (0, 2))], lambda x: x.flip(0, 1), axes=(0, 1))
    exact("contiguous", [In(t, (0,))], lambda x: x)
    exact("contiguous", [In(t, ())], lambda x: x)
CHAINS = ([("permute", 1, 0, 2), ("flip", 0, 2), ("shrink", 0, 2, 0, 2, 1, 3)], [("flip", 1), ("expand", 2, 3, 4)], [("shrink", 0, 2, 1, 3, 0, 4), ("reshape", 4, 4), ("permute", 1, 0)],
          [("pad", 1, 0, 0, 1, 0, 2), ("permute", 2, 0, 1), ("flip", 0)], [("permute", 2, 1, 0), ("reshape", 12, 2)], [("flip", 0, 1, 2), ("reshape", 24), ("shrink", 3, 19), ("flip", 0)],
          [("reshape", 2, 3, 2, 2), ("permute", 0, 2, 1, 3), ("reshape", 4, 6)], [("pad", 0, 1, 1, 1, 2, 0), ("shrink", 1, 3, 0, 4, 1, 5), ("flip", 2)])
for chain in CHAINS:
    for t in ("f32", "i16", "bool"):
        exact("contiguous", [In(t, (2, 3, 4), view=chain)], lambda x: x.clone())
    case("add", [In("f32", (2, 3, 4), view=chain), In("f32", ())], torch.add)
    case("neg", [In("i32", (2, 3, 4), view=chain)], lambda x: -x)
    case("sum", [In("f32", (2, 3, 4), view=chain)], lambda x: x.sum(-1), axes=(-1,))
