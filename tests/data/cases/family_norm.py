"""Normalizations, with and without weight (w), bias (b), mean and variance (m, v)."""
import torch
import torch.nn.functional as F

from core import In, TOL, case


def norm(op, shape, params, has, fn, t="f32", **keys):
    ins = [In(t, shape)] + [In(t, params, span=(0.25, 2) if name == "v" else None) for name in has]
    tol = max(1e-5, 4 * TOL[t]) if t != "f64" else 1e-11
    case(op, ins, lambda x, *p: fn(x, **dict(zip(has, p))), tol=tol, gtol=max(4e-5, 4 * tol) if t != "f64" else 1e-10, gfloor=2, **(dict(keys, has=has) if has else keys))


def along(v, x):
    return v.view(1, -1, *[1] * (x.dim() - 2))


def batch_norm(x, w=None, b=None, m=None, v=None, eps=1e-5):
    if m is None:
        return F.batch_norm(x, None, None, w, b, True, 0.1, eps)
    y = (x - along(m, x)) / (along(v, x) + eps).sqrt()
    return (y if w is None else y * along(w, x)) + (0 if b is None else along(b, x))


def rms(x, axes, w=None, eps=1e-6):
    y = x / (x.pow(2).mean(tuple(range(-axes, 0)), keepdim=True) + eps).sqrt()
    return y if w is None else y * w


for has in ("", "w", "wb"):
    for shape, axes in (((3, 7), 1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((5,), 1), ((2, 2, 3, 2), 3)):
        norm("layer_norm", shape, shape[-axes:], has, lambda x, w=None, b=None: F.layer_norm(x, shape[-axes:], w, b, 1e-5), axes=axes, eps=1e-5)
    for shape, groups in (((2, 4), 2), ((2, 6, 5), 3), ((2, 4, 3, 2), 1), ((1, 4, 2, 3), 4), ((2, 4, 2, 1, 3), 2)):
        norm("group_norm", shape, shape[1:2], has, lambda x, w=None, b=None: F.group_norm(x, groups, w, b, 1e-3), groups=groups, eps=1e-3)
    for shape in ((2, 3, 5), (2, 2, 3, 4), (1, 3, 2, 2, 2)):
        norm("instance_norm", shape, shape[1:2], has, lambda x, w=None, b=None: F.instance_norm(x, None, None, w, b, eps=1e-5), eps=1e-5)
    for shape in ((6, 3), (3, 2, 5), (2, 3, 3, 2), (2, 2, 2, 2, 2)):
        norm("batch_norm", shape, shape[1:2], has, lambda x, w=None, b=None: batch_norm(x, w, b), eps=1e-5)
        norm("batch_norm", shape, shape[1:2], has + "mv", lambda x, w=None, b=None, m=None, v=None: batch_norm(x, w, b, m, v, 1e-3), eps=1e-3)
    if has != "wb":
        for shape, axes in (((3, 7), 1), ((2, 3, 4), 2)):
            norm("rms_norm", shape, shape[-axes:], has, lambda x, w=None: rms(x, axes, w), axes=axes, eps=1e-6)
for t in ("f16", "bf16", "f64", "f8e4m3"):
    norm("layer_norm", (3, 8), (8,), "wb", lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-5), t=t, axes=1, eps=1e-5)
    norm("batch_norm", (3, 4, 2), (4,), "wb", lambda x, w, b: batch_norm(x, w, b), t=t, eps=1e-5)
    norm("rms_norm", (3, 8), (8,), "w", lambda x, w: rms(x, 1, w), t=t, axes=1, eps=1e-6)
    norm("group_norm", (2, 4, 3), (4,), "wb", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3), t=t, groups=2, eps=1e-3)
