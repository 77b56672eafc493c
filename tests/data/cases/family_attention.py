"""Scaled dot-product attention."""
import torch

from core import In, TOL, case


def attention(q, k, v, mask=None, causal=False, scale=None, t="f32"):
    ins = [In(t, s) for s in (q, k, v)] + ([] if mask is None else [mask])

    def run(q, k, v, m=None):
        if k.dim() > 2 and q.shape[-3] != k.shape[-3]:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        if m is not None:
            s = s.masked_fill(~m, -torch.inf) if m.dtype == torch.bool else s + m
        if causal:
            s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
        return s.softmax(-1) @ v

    keys = dict({"causal": 1} if causal else {}, **({"scale": scale} if scale else {}))
    tol = {"f16": 4e-3, "bf16": 3e-2, "f8e5m2": 0.5, "f64": 1e-11}.get(t, 2e-5)
    case("attention", ins, run, out=t, tol=tol, gtol=2 * tol, **keys)


def seen(shape):
    """The mask keeps the first key of every row."""
    x = In("bool", shape)
    x.make(5)
    b = x.base.copy()
    b[..., 0] = True
    return In("bool", data=b)


for causal in (False, True):
    attention((5, 4), (6, 4), (6, 3), causal=causal)
    attention((2, 5, 4), (2, 6, 4), (2, 6, 3), causal=causal)
    attention((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), causal=causal)
    attention((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), causal=causal)
    attention((4, 3, 4), (1, 5, 4), (1, 5, 3), causal=causal, scale=0.3)
    attention((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4), seen((5, 6)), causal)
    attention((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4), seen((1, 6)), causal)
    attention((2, 2, 5, 4), (2, 1, 6, 4), (2, 1, 6, 4), seen((2, 1, 5, 6)), causal)
    attention((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4), In("f32", (2, 1, 5, 6)), causal)
for t in ("f16", "bf16", "f64", "f8e5m2"):
    attention((2, 3, 4), (2, 5, 4), (2, 5, 3), t=t)
