"""Losses. Targets, weights (w) and positive weights (p) have no gradient where PyTorch gives them none."""
import math

import torch
import torch.nn.functional as F

from core import In, TOL, case

PLAIN = {"mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "huber_loss": F.huber_loss, "smooth_l1_loss": F.smooth_l1_loss}


def loss(op, ins, fn, tol=1e-5, **keys):
    case(op, ins, fn, out=keys.pop("out", None), tol=tol, gtol=keys.pop("gtol", 4e-5), **keys)


def fixed(shape, low, high):
    return In("f32", shape, span=(low, high), nograd=True)


for reduction in ("mean", "sum", "none"):
    for kind, fn in PLAIN.items():
        loss(kind, [In("f32", (3, 4)), In("f32", (3, 4))], lambda x, y: fn(x, y, reduction=reduction), reduction=reduction)
        loss(kind, [In("f64", (2, 3)), In("f64", (2, 3))], lambda x, y: fn(x, y, reduction=reduction), tol=1e-12, gtol=1e-11, reduction=reduction)
    loss("huber_loss", [In("f32", (2, 3, 2)), In("f32", (2, 3, 2))], lambda x, y: F.huber_loss(x, y, reduction=reduction, delta=0.4), reduction=reduction, delta=0.4)
    loss("smooth_l1_loss", [In("f32", (7,)), In("f32", (7,))], lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.6), reduction=reduction, delta=0.6)
    p, y, x = In("f32", (3, 4), span=(0.0625, 0.9375)), fixed((3, 4), 0, 1), In("f32", (3, 4), span=(-9, 9))
    loss("bce", [p, y], lambda x, t: F.binary_cross_entropy(x, t, reduction=reduction), reduction=reduction)
    loss("bce", [p, y, fixed((4,), 0.1, 1)], lambda x, t, w: F.binary_cross_entropy(x, t, w, reduction=reduction), reduction=reduction, has="w")
    loss("bce_logits", [x, In("f32", (3, 4), span=(0, 1))], lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=reduction), reduction=reduction)
    loss("bce_logits", [x, y, fixed((4,), 0.1, 3)], lambda x, t, p: F.binary_cross_entropy_with_logits(x, t, reduction=reduction, pos_weight=p), reduction=reduction, has="p")
    loss("bce_logits", [x, y, fixed((3, 4), 0.1, 3), fixed((4,), 0.1, 3)], lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w, reduction=reduction, pos_weight=p),
         reduction=reduction, has="wp")
    logp = In("f32", (3, 4), span=(-3, -0.125))
    loss("kl", [logp, fixed((3, 4), 0, 1)], lambda x, t: F.kl_div(x, t, reduction=reduction), reduction=reduction)
    loss("kl", [logp, In("f32", (3, 4), span=(-3, 0))], lambda x, t: F.kl_div(x, t, reduction=reduction, log_target=True), reduction=reduction, log_target=1)
loss("kl", [logp, fixed((3, 4), 0, 1)], lambda x, t: F.kl_div(x, t, reduction="batchmean"), reduction="batchmean")
loss("bce", [In("f32", data=[0.0, 1.0, 0.0, 1.0]), In("f32", data=[0.0, 1.0, 1.0, 0.0])], lambda x, t: F.binary_cross_entropy(x, t, reduction="none"), grad=False, reduction="none")
loss("bce_logits", [In("f32", data=[0.0, 80.0, -90.0, 1000.0]), In("f32", data=[0.5, 1.0, 0.0, 0.0])],
     lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"), grad=False, reduction="none")
for reduction in ("mean", "sum", "none"):
    for shape, classes in (((5, 4), 4), ((2, 3, 4), 3), ((2, 3, 2, 2), 3), ((6,), 6)):
        x, t = In("f32", shape, span=(-4, 4)), In("i64", shape[:1] + shape[2:] if len(shape) > 1 else (), span=(0, classes - 1))
        w, p = fixed((classes,), 0.25, 2), In("f32", shape, span=(0, 1))
        loss("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction=reduction), out="f32", reduction=reduction)
        loss("cross_entropy", [x, t, w], lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction), out="f32", reduction=reduction, has="w")
        loss("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction=reduction, label_smoothing=0.2), out="f32", reduction=reduction, smooth=0.2)
        loss("cross_entropy", [x, t, w], lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction, label_smoothing=0.1), out="f32", reduction=reduction, smooth=0.1, has="w")
        loss("nll_loss", [In("f32", shape, span=(-4, 0)), t], lambda x, t: F.nll_loss(x, t, reduction=reduction), out="f32", reduction=reduction)
        loss("cross_entropy", [x, p], lambda x, p: F.cross_entropy(x, p, reduction=reduction), reduction=reduction)
        loss("cross_entropy", [x, In("f32", shape, span=(0, 1), nograd=True), w], lambda x, p, w: F.cross_entropy(x, p, w, reduction=reduction, label_smoothing=0.3),
             reduction=reduction, smooth=0.3, has="w")
    x, t, zeros = In("f32", (6, 4)), In("i64", data=[0, 3, -100, 2, -100, 1]), In("i64", data=[0, 3, 0, 2, 0, 1])
    w = fixed((4,), 0.25, 2)
    loss("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction=reduction), out="f32", reduction=reduction)
    loss("cross_entropy", [x, zeros], lambda x, t: F.cross_entropy(x, t, reduction=reduction, ignore_index=0), out="f32", reduction=reduction, ignore=0)
    loss("cross_entropy", [x, zeros], lambda x, t: F.cross_entropy(x, t, reduction=reduction, ignore_index=0, label_smoothing=0.2), out="f32", reduction=reduction, ignore=0, smooth=0.2)
    loss("cross_entropy", [x, zeros, w], lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction, ignore_index=0), out="f32", reduction=reduction, ignore=0, has="w")
    loss("nll_loss", [x, t], lambda x, t: F.nll_loss(x, t, reduction=reduction), out="f32", reduction=reduction)
for t, tol in (("f16", 2e-3), ("bf16", 1.6e-2), ("f64", 1e-11)):
    loss("cross_entropy", [In(t, (4, 3)), In("i64", data=[0, 1, 2, 1])], lambda x, t: F.cross_entropy(x, t), out="f64" if t == "f64" else "f32", tol=1e-11 if t == "f64" else 1e-5, gtol=2 * tol, reduction="mean")
loss("cross_entropy", [In("f32", (4, 3), span=(-200, 200)), In("i32", data=[0, 1, 2, 1])], lambda x, t: F.cross_entropy(x, t.long()), out="f32", reduction="mean")
