"""The rest of movement: axes added and dropped, joining, splitting, repeating, rolling, windows, diagonals, padding by mode."""
import numpy as np
import torch
import torch.nn.functional as F

from core import In, TYPES, case, promote

SOME = ("f32", "i64", "u8", "bool", "f16")


def exact(op, ins, f, **keys):
    case(op, ins, f, tol=0, gtol=1e-6 if ins[0].t in ("f32", "f64") else None, **keys)


for t in SOME:
    exact("squeeze", [In(t, (1, 3, 1, 2))], lambda x: x.squeeze())
    exact("squeeze", [In(t, (1, 3, 1, 2))], lambda x: x.squeeze(-2), axes=(-2,))
    exact("unsqueeze", [In(t, (3, 2))], lambda x: x.unsqueeze(1), axes=(1,))
    exact("flatten", [In(t, (2, 3, 4))], lambda x: x.flatten(1, -1), first=1, last=-1)
    exact("unflatten", [In(t, (2, 12))], lambda x: x.unflatten(1, (3, 4)), axis=1, shape=(3, -1))
    exact("movedim", [In(t, (2, 3, 4))], lambda x: x.movedim(0, -1), axes=(0, -1))
    exact("rot90", [In(t, (2, 3))], lambda x: x.rot90(1, (0, 1)), times=1, axes=(0, 1))
    exact("stride", [In(t, (5, 7))], lambda x: x[::2, ::3], axes=(2, 3))
    exact("cat", [In(t, (2, 3)), In(t, (1, 3)), In(t, (3, 3))], lambda *x: torch.cat(x, 0), axis=0)
    exact("stack", [In(t, (2, 3)), In(t, (2, 3))], lambda *x: torch.stack(x, 1), axis=1)
    exact("repeat", [In(t, (2, 3))], lambda x: x.repeat(2, 2), shape=(2, 2))
    exact("repeat_interleave", [In(t, (2, 3))], lambda x: x.repeat_interleave(3, 1), n=3, axis=1)
    exact("roll", [In(t, (3, 4))], lambda x: x.roll(1, 1), shape=(1,), axes=(1,))
    exact("unfold", [In(t, (2, 7))], lambda x: x.unfold(1, 3, 2), axis=1, size=3, step=2)
    exact("diagonal", [In(t, (3, 4))], lambda x: x.diagonal(1, 0, 1), offset=1, axes=(0, 1))
    exact("diag", [In(t, (3,))], lambda x: x.diag(0), offset=0)
    exact("split", [In(t, (6, 2))], lambda x: x.split((1, 3, 2), 0)[1], axis=0, sizes=(1, 3, 2), pick=1)
    exact("chunk", [In(t, (7, 2))], lambda x: x.chunk(3, 0)[2], axis=0, n=3, pick=2)
for axes in ((0,), (0, 2), (-1,), ()):
    exact("squeeze", [In("f32", (1, 3, 1))], lambda x: x.reshape([n for i, n in enumerate(x.shape) if not (n == 1 and (not axes or i in [a % 3 for a in axes]))]), axes=axes)
for axes in ((0,), (-1,), (0, 2), (1, -1), (0, 1, 2)):
    exact("unsqueeze", [In("f32", (3, 2))], lambda x: torch.tensor(np.expand_dims(x.detach().numpy(), axes)) if len(axes) > 1 else x.unsqueeze(axes[0]), axes=axes, grad=len(axes) == 1)
for first, last in ((0, 1), (0, -1), (1, 2), (2, 2), (-3, -2)):
    exact("flatten", [In("f32", (2, 3, 4))], lambda x: x.flatten(first, last), first=first, last=last)
exact("flatten", [In("f32", ())], lambda x: x.flatten(), first=0, last=-1)
exact("flatten", [In("f32", (2, 0, 3))], lambda x: x.flatten(), first=0, last=-1)
for a, b in ((0, 2), (2, 0), (-1, 0), (1, 1), (0, 1)):
    exact("movedim", [In("f32", (2, 3, 4))], lambda x: x.movedim(a, b), axes=(a, b))
for times in (-1, 0, 2, 3, 5):
    exact("rot90", [In("f32", (2, 3, 2))], lambda x: x.rot90(times, (0, 2)), times=times, axes=(0, 2))
    exact("rot90", [In("f32", (2, 3, 2))], lambda x: x.rot90(times, (2, 1)), times=times, axes=(2, 1))
for steps in ((1, 1), (2, 1), (-1, 2), (-2, -3), (7, 9), (3, -1)):
    exact("stride", [In("f32", (5, 7))], lambda x: (x.flip([i for i in (0, 1) if steps[i] < 0]) if min(steps) < 0 else x)[::abs(steps[0]), ::abs(steps[1])], axes=steps)
exact("stride", [In("i32", (0, 4))], lambda x: x[:, ::2], axes=(1, 2))

# ---- joining and splitting; types promote
for axis, shapes in ((1, ((2, 1), (2, 3))), (-1, ((2, 2), (2, 0), (2, 3))), (0, ((1, 2, 2), (4, 2, 2))), (0, ((3,), (1,), (2,), (4,))), (1, ((2, 3, 2), (2, 1, 2))), (0, ((0, 2), (0, 2)))):
    exact("cat", [In("f32", s) for s in shapes], lambda *x: torch.cat(x, axis), axis=axis)
    exact("cat", [In("i16", s) for s in shapes], lambda *x: torch.cat(x, axis), axis=axis)
exact("cat", [In("f32", (3,))], lambda *x: torch.cat(x, 0), axis=0)
exact("cat", [In("f32", (4, 3), view=[("permute", 1, 0), ("flip", 0)]), In("f32", (1, 4), view=[("expand", 2, 4)])], lambda *x: torch.cat(x, 0), axis=0)
for a, b in (("i32", "f32"), ("u8", "i8"), ("f16", "bf16"), ("bool", "i64")):
    case("cat", [In(a, (2,)), In(b, (3,))], lambda x, y: torch.cat([x.double(), y.double()]), axis=0, tol=0, out=promote(a, b))
for axis in (0, 1, 2, -1):
    exact("stack", [In("f32", (2, 3))] * 1 + [In("f32", (2, 3), span=(0, 1)), In("f32", (2, 3), span=(5, 6))], lambda *x: torch.stack(x, axis), axis=axis)
exact("stack", [In("i32", ()), In("i32", ())], lambda *x: torch.stack(x, 0), axis=0)
for pick in (0, 1, 2):
    exact("split", [In("f32", (3, 6))], lambda x: x.split((2, 1, 3), -1)[pick], axis=-1, sizes=(2, 1, 3), pick=pick)
    exact("chunk", [In("f32", (3, 8))], lambda x: x.chunk(3, 1)[pick], axis=1, n=3, pick=pick)
exact("split", [In("f32", (4,))], lambda x: x.split((4, 0), 0)[1], axis=0, sizes=(4, 0), pick=1)
for times in ((3,), (1, 2), (2, 1, 3), (0, 2)):
    exact("repeat", [In("f32", (2, 3) if len(times) > 1 else (4,))], lambda x: x.repeat(times), shape=times)
for n, axis in ((1, 0), (2, 0), (3, -1), (0, 1)):
    exact("repeat_interleave", [In("f32", (2, 3))], lambda x: x.repeat_interleave(n, axis), n=n, axis=axis)
for by, axes in (((1,), (0,)), ((-1,), (1,)), ((5,), (1,)), ((1, 2), (0, 1)), ((-7, 3), (1, 0)), ((2,), ()), ((-1,), ())):
    exact("roll", [In("f32", (3, 4))], lambda x: x.roll(by, axes) if axes else x.roll(by[0]), shape=by, axes=axes)
exact("roll", [In("i32", (0, 4))], lambda x: x.roll(1, 1), shape=(1,), axes=(1,))
for size, step in ((1, 1), (2, 1), (3, 3), (7, 1), (2, 5), (4, 2)):
    exact("unfold", [In("f32", (7, 2))], lambda x: x.unfold(0, size, step), axis=0, size=size, step=step)
for offset in (-3, -1, 0, 2, 4):
    exact("diagonal", [In("f32", (4, 4))], lambda x: x.diagonal(offset, 0, 1), offset=offset, axes=(0, 1))
    exact("diagonal", [In("f32", (2, 3, 4))], lambda x: x.diagonal(max(offset, -3), -1, 1), offset=max(offset, -3), axes=(-1, 1)) if offset < 3 else None
    exact("diag", [In("f32", (3,))], lambda x: x.diag(offset), offset=offset)
    exact("diag", [In("f32", (5, 5))], lambda x: x.diag(offset), offset=offset)
for first in (0, 1):
    for pick in (0, 1, 2):
        exact("meshgrid", [In("f32", (2,)), In("f32", (3,)), In("f32", (4,))], lambda *x: torch.meshgrid(*x, indexing="xy" if first else "ij")[pick], pick=pick, columns_first=first, grad=False)

# ---- padding by mode, and negative padding
for mode in ("reflect", "replicate", "circular"):
    for t in ("f32", "i32", "f16"):
        exact("pad_mode", [In(t, (1, 1, 5))], lambda x: F.pad(x.double(), (2, 1), mode=mode), mode=mode, pairs=(0, 0, 0, 0, 2, 1), out=t)
    exact("pad_mode", [In("f32", (1, 2, 4, 5))], lambda x: F.pad(x, (1, 2, 3, 0), mode=mode), mode=mode, pairs=(0, 0, 0, 0, 3, 0, 1, 2))
    exact("pad_mode", [In("f32", (1, 1, 2, 3, 3))], lambda x: F.pad(x, (1, 1, 0, 2, 1, 0), mode=mode), mode=mode, pairs=(0, 0, 0, 0, 1, 0, 0, 2, 1, 1))
    exact("pad_mode", [In("f32", (1, 1, 6), view=[("flip", 2)])], lambda x: F.pad(x, (3, 2), mode=mode), mode=mode, pairs=(0, 0, 0, 0, 3, 2))
for pairs in ((-1, 0, 0, -1), (1, -1, -2, 3), (-1, -1, 0, 0)):
    exact("pad", [In("f32", (4, 5))], lambda x: F.pad(x, (pairs[2], pairs[3], pairs[0], pairs[1]), value=2), pairs=pairs, int=2)
