"""Creation: tensors without inputs, and triangles."""
import numpy as np

from core import FLOATS, In, TYPES, case, is_float, is_unsigned, raw, to_type


def made(op, value, t, tol=0, **keys):
    case(op, [], lambda: np.asarray(value), out=t, arrays=True, tol=tol, to=t, **keys)


for t in TYPES:
    made("full", np.full((2, 3), 1), t, shape=(2, 3), int=1)
    made("full", np.full((), 1), t, shape=(), int=1)
    made("full", np.zeros((0, 2)), t, shape=(0, 2), int=0)
    if t != "bool":
        made("arange", np.arange(0, 7), t, start=0.0, stop=7.0, step=1.0)
        made("arange", np.arange(1, 12, 3), t, start=1.0, stop=12.0, step=3.0)
        made("linspace", np.linspace(0, 12, 7), t, start=0.0, stop=12.0, n=7)
        made("eye", np.eye(3, 5), t, rows=3, cols=5)
        made("tri", np.tri(4, 3, 0), t, rows=4, cols=3, diagonal=0)
        if not is_unsigned(t):
            made("arange", np.arange(5, -4, -2), t, start=5.0, stop=-4.0, step=-2.0)
            made("full", np.full((3,), -2), t, shape=(3,), int=-2)
for t in FLOATS:
    made("full", np.full((2,), 0.25), t, shape=(2,), num=0.25)
    if t in ("f32", "f64", "f16"):
        made("full", [np.inf], t, shape=(1,), num=np.inf)
        made("full", [np.nan], t, shape=(1,), num=np.nan)
made("arange", np.arange(0, 1, 0.125), "f32", start=0.0, stop=1.0, step=0.125)
made("arange", np.arange(1, 0, -0.1), "f64", tol=1e-15, start=1.0, stop=0.0, step=-0.1)
made("arange", np.arange(2**24, 2**24 + 5), "f64", start=2.0**24, stop=2.0**24 + 5, step=1.0)
made("linspace", np.linspace(-1, 1, 5), "f32", start=-1.0, stop=1.0, n=5)
made("linspace", np.linspace(0, 1, 7), "f64", tol=1e-15, start=0.0, stop=1.0, n=7)
made("linspace", np.linspace(0, 1, 11), "f32", tol=6e-8, start=0.0, stop=1.0, n=11)
made("linspace", np.linspace(3, 9, 1), "f32", start=3.0, stop=9.0, n=1)
made("linspace", np.zeros(0), "f32", start=3.0, stop=9.0, n=0)
for rows, cols in ((1, 1), (2, 5), (0, 3), (4, 4)):
    made("eye", np.eye(rows, cols), "f32", rows=rows, cols=cols)
    for d in (-1, 0, 2):
        made("tri", np.tri(rows, cols, d), "i32", rows=rows, cols=cols, diagonal=d)
for op, f in (("tril", np.tril), ("triu", np.triu)):
    for t in TYPES:
        case(op, [In(t, (3, 4))], lambda x: x.tril(1) if op == "tril" else x.triu(1), diagonal=1, tol=0)
    for shape in ((2, 3, 3), (4, 2), (1, 5), (2, 0, 3)):
        for d in (0, -1, 2):
            case(op, [In("f32", shape)], lambda x: x.tril(d) if op == "tril" else x.triu(d), diagonal=d, tol=0)
    case(op, [In("f32", (4, 4), view=[("permute", 1, 0), ("flip", 0)])], lambda x: x.tril(0) if op == "tril" else x.triu(0), diagonal=0, tol=0)
    case(op, [In("f32", data=[[np.nan, np.inf], [np.inf, np.nan]])], f, arrays=True, diagonal=0, tol=0)
for t in TYPES:
    case("full_like", [In(t, (2, 3))], lambda x: np.full_like(x, 1), arrays=True, int=1)
    case("zeros_like", [In(t, (2, 0))], lambda x: np.zeros_like(x), arrays=True)
    case("ones_like", [In(t, ())], lambda x: np.ones_like(x), arrays=True)
