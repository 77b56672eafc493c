"""Second derivatives. grad_of is the gradient of f with respect to its first input, for an output gradient drawn with
seed 1; the cases have its gradients."""
import math

import torch
import torch.nn.functional as F

import core
from core import In, case


def second(f, ins, fn, tol=1e-5, gtol=4e-5, **keys):
    def gradient(x, *rest):
        y = fn(x, *rest)
        dy = In("f32", y.shape, span=(-1, 1))
        dy.make(1)
        return torch.autograd.grad(y, x, torch.tensor(dy.base).reshape(y.shape), create_graph=True)[0]

    before = len(core.lines)
    case("grad_of", ins, gradient, tol=tol, gtol=gtol, gfloor=keys.pop("gfloor", 1), f=f, **keys)
    assert " | " in core.lines[before], f


ONE = {"square": torch.square, "reciprocal": torch.reciprocal, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "exp2": torch.exp2, "exp": torch.exp, "log2": torch.log2, "log": torch.log,
       "sin": torch.sin, "cos": torch.cos, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "expm1": torch.expm1, "log10": torch.log10, "log1p": torch.log1p, "atan": torch.atan,
       "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "erf": torch.erf, "logsigmoid": F.logsigmoid, "silu": F.silu,
       "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), "mish": lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))}
for f, fn in ONE.items():
    second(f, [In("f32", (2, 5), span=(0.5, 2))], fn)
for f, fn in (("tan", torch.tan), ("asin", torch.asin), ("acos", torch.acos), ("atanh", torch.atanh)):
    second(f, [In("f32", (2, 5), span=(-0.75, 0.75))], fn)
two = [In("f32", (2, 3), span=(0.5, 2)), In("f32", (3,), span=(0.5, 2))]
for f, fn in (("mul", torch.mul), ("div", torch.div), ("pow", torch.pow), ("atan2", torch.atan2), ("logaddexp", torch.logaddexp)):
    second(f, two, fn)
second("pow", [In("f32", (5,), span=(0.5, 2))], lambda x: x**3, int=3)
for axes in ((0,), (1,), (0, 1)):
    x = In("f32", (3, 4), span=(0.5, 2))
    second("prod", [x], lambda x: x.prod() if len(axes) == 2 else x.prod(axes[0]), axes=axes, gfloor=4)
    second("var", [x], lambda x: x.var(axes), axes=axes)
    second("std", [x], lambda x: x.std(axes), axes=axes)
    second("logsumexp", [x], lambda x: torch.logsumexp(x, axes), axes=axes)
    second("norm", [x], lambda x: torch.linalg.vector_norm(x, 2.0, axes), axes=axes, p=2.0)
for axis in (0, 1):
    x = In("f32", (3, 4))
    second("softmax", [x], lambda x: x.softmax(axis), axis=axis)
    second("log_softmax", [x], lambda x: x.log_softmax(axis), axis=axis)
    second("cumprod", [In("f32", (3, 4), span=(0.5, 2))], lambda x: x.cumprod(axis), axis=axis, gfloor=4)
    second("logcumsumexp", [x], lambda x: x.logcumsumexp(axis), axis=axis)
second("matmul", [In("f32", (2, 3)), In("f32", (3, 4))], torch.matmul)
second("matmul", [In("f32", (2, 2, 3)), In("f32", (3, 2))], torch.matmul)
second("einsum", [In("f32", (2, 3)), In("f32", (3, 4)), In("f32", (4,))], lambda *x: torch.einsum("ij,jk,k->i", *x), spec="ij,jk,k->i")
second("conv", [In("f32", (1, 2, 5)), In("f32", (2, 2, 3)), In("f32", (2,))], lambda x, w, b: F.conv1d(x, w, b, padding=1), n=1, padding=1, gfloor=4, independent=(0, 2))
second("conv", [In("f32", (1, 2, 4, 4)), In("f32", (2, 2, 2, 2))], lambda x, w: F.conv2d(x, w, stride=2), n=2, stride=2, gfloor=4, independent=(0,))
second("layer_norm", [In("f32", (3, 5)), In("f32", (5,)), In("f32", (5,))], lambda x, w, b: F.layer_norm(x, (5,), w, b, 1e-5), tol=4e-5, gtol=4e-4, axes=1, eps=1e-5, has="wb", independent=(2,))
second("batch_norm", [In("f32", (4, 2, 3)), In("f32", (2,)), In("f32", (2,))], lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), tol=4e-5, gtol=4e-4, eps=1e-5, has="wb", independent=(2,))
second("attention", [In("f32", (3, 4)), In("f32", (5, 4)), In("f32", (5, 2))], lambda q, k, v: (q @ k.T * 0.5).softmax(-1) @ v)
second("cross_entropy", [In("f32", (4, 3)), In("i64", data=[0, 2, 1, 1])], lambda x, t: F.cross_entropy(x, t), out="f32", reduction="mean")
second("bce_logits", [In("f32", (4, 3)), In("f32", (4, 3), span=(0, 1), nograd=True)], lambda x, t: F.binary_cross_entropy_with_logits(x, t), reduction="mean")
second("mse_loss", [In("f32", (4, 3)), In("f32", (4, 3))], lambda x, t: F.mse_loss(x, t), reduction="mean")
for t, tol in (("f64", 1e-11), ("f16", 4e-3), ("bf16", 3e-2)):
    for f in ("tanh", "exp", "sin", "silu"):
        x = In(t, (6,), span=(0.5, 2))

        def gradient(x):
            y = ONE[f](x)
            dy = In(t, y.shape, span=(-1, 1))
            dy.make(1)
            return torch.autograd.grad(y, x, torch.tensor(dy.base), create_graph=True)[0]
        case("grad_of", [x], gradient, tol=tol, gtol=4 * tol, f=f)
