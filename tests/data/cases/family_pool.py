"""Pools and interpolation. The inputs of maxima are all different, so that every maximum has one place."""
import torch
import torch.nn.functional as F

from core import In, TOL, case, is_float

MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {("adaptive_max_pool", 1): F.adaptive_max_pool1d, ("adaptive_max_pool", 2): F.adaptive_max_pool2d, ("adaptive_max_pool", 3): F.adaptive_max_pool3d,
            ("adaptive_avg_pool", 1): F.adaptive_avg_pool1d, ("adaptive_avg_pool", 2): F.adaptive_avg_pool2d, ("adaptive_avg_pool", 3): F.adaptive_avg_pool3d}
SIZES = {1: (9,), 2: (6, 7), 3: (4, 3, 5)}


def distinct(t, shape):
    return In(t, shape, span=(-8, 8) if t != "f16" else (-4, 4), distinct=True) if is_float(t) else In(t, shape, span=(0, 127 if t == "i8" else 9000), distinct=True)


def shown(keys):
    return {k: v for k, v in keys.items() if v is not None and v is not False}


def max_pool(n, kernel, sizes=None, batch=2, t="f32", **keys):
    x = distinct(t, (() if batch is None else (batch,)) + (2,) + tuple(sizes or SIZES[n]))
    case("max_pool", [x], lambda x: MAX_POOL[n](x.double(), kernel, **keys), out=t, tol=0, n=n, kernel=kernel, **shown(keys))


def avg_pool(n, kernel, sizes=None, batch=2, t="f32", **keys):
    x = In(t, (() if batch is None else (batch,)) + (2,) + tuple(sizes or SIZES[n]))
    keys_shown = shown({k: v for k, v in keys.items() if k != "count_include_pad"})
    case("avg_pool", [x], lambda x: AVG_POOL[n](x.double(), kernel, **keys), out=t if is_float(t) else "f32", n=n, kernel=kernel,
         **keys_shown, **({"exclude": 1} if keys.get("count_include_pad") is False else {}))


def adaptive(op, n, sizes, shape, batch=2):
    x = distinct("f32", (() if batch is None else (batch,)) + (2,) + tuple(shape))
    case(op, [x], lambda x: ADAPTIVE[op, n](x, sizes), tol=0 if "max" in op else None, floor=4, n=n, sizes=sizes)


def interpolate(shape, mode, sizes=None, scale=None, align=None, t="f32"):
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(shape)]
    case("interpolate", [In(t, (2, 2) + shape)], lambda x: F.interpolate(x.double(), size=sizes, scale_factor=scale, mode=linear if mode == "linear" else mode, align_corners=align),
         out=t, tol=1e-5 if mode == "linear" else 0, mode=mode, **shown({"sizes": sizes, "scale": scale, "align": align}))


for n in (1, 2, 3):
    max_pool(n, 2)
    max_pool(n, 3, stride=1)
    max_pool(n, 3, stride=2, padding=1)
    max_pool(n, 2, ceil_mode=True)
    max_pool(n, 3, stride=2, padding=1, ceil_mode=True)
    max_pool(n, 2, dilation=2, stride=1, sizes=(7, 6, 5)[:n])
    max_pool(n, 2, batch=None)
    avg_pool(n, 2)
    avg_pool(n, 3, stride=1)
    avg_pool(n, 3, stride=2, padding=1)
    avg_pool(n, 3, stride=2, padding=1, count_include_pad=False)
    avg_pool(n, 2, ceil_mode=True)
    avg_pool(n, 3, stride=2, padding=1, ceil_mode=True)
    avg_pool(n, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
    avg_pool(n, 2, batch=None)
    for op in ("adaptive_max_pool", "adaptive_avg_pool"):
        adaptive(op, n, (3, 2, 1)[:n], (6, 4, 5)[:n])
        adaptive(op, n, (3, 2, 3)[:n], (7, 5, 4)[:n])
        adaptive(op, n, (5, 3, 2)[:n], (3, 4, 5)[:n], batch=None)
max_pool(2, (3, 2), stride=(2, 1), padding=(1, 0))
avg_pool(2, (3, 2), stride=(2, 1), padding=(1, 0), count_include_pad=False)
for t in ("i64", "i8", "u16", "f16", "bf16", "f64", "f8e4m3", "f8e5m2"):
    max_pool(2, (3, 3), stride=2, padding=1, sizes=(5, 4), batch=1, t=t) if t[-1] in "468" else max_pool(1, 3, sizes=(6,), batch=None, t=t)
for t in ("f16", "bf16", "f64", "f8e4m3", "i32", "u8"):
    avg_pool(1, 3, t=t)
for shape, up, down, other in (((5,), (10,), (3,), (7,)), ((4, 5), (8, 15), (2, 3), (7, 7)), ((3, 4, 2), (6, 4, 4), (2, 2, 1), (5, 3, 3))):
    for size in (up, down, other):
        interpolate(shape, "nearest", size)
        interpolate(shape, "nearest-exact", size)
        interpolate(shape, "linear", size, align=False)
        interpolate(shape, "linear", size, align=True)
    interpolate(shape, "nearest", scale=2.0)
    interpolate(shape, "linear", scale=1.7, align=False)
    interpolate(shape, "linear", scale=1.7, align=True)
for t in ("u8", "i32", "f16", "f64"):
    interpolate((4,), "nearest", (6,), t=t)
