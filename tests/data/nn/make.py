#!/usr/bin/env python3
"""Reference values for tests/frontend/test_{conv,pool,norm,loss,attention}.c, computed by PyTorch: python3 make.py FOLDER

A line is one case:  OP key=value... : TENSOR ; TENSOR... -> TENSOR ~ TENSOR ; TENSOR...
where a TENSOR is dtype[sizes] followed by its elements in row-major order. Behind ~ stand the gradients of the operands of type f32, the
first ones, of the sum of the result times weights: element i of the result has weight (i * 7 % 11 - 5) / 4. tol is the largest difference, relative to the
larger of 1 and the expected number.
"""
import itertools
import sys
import torch
import torch.nn.functional as F

torch.manual_seed(3)
out = None
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
         torch.int32: "i32", torch.bool: "bool", torch.uint8: "u8"}


def text(t):
    flat = t.detach().reshape(-1).tolist()
    word = (lambda v: "%.6g" % v) if t.is_floating_point() else (lambda v: str(int(v)))
    return "%s[%s] %s" % (NAMES[t.dtype], ",".join(map(str, t.shape)), " ".join(map(word, flat)))


def values(*shape, lo=-2.0, hi=2.0, dtype=torch.float32):
    if not dtype.is_floating_point:
        return torch.randint(int(lo), int(hi) + 1, shape).to(dtype)
    return ((torch.rand(shape) * (hi - lo) + lo) * 100).round().div(100).to(dtype)


def number(v):
    if isinstance(v, bool):
        return str(int(v))
    if isinstance(v, (list, tuple)):
        return ",".join(map(number, v))
    return str(v)


def case(op, ins, fn, tol=2e-5, grad=True, targets=False, **keys):
    """targets: PyTorch has no gradient for what follows the first operand, so it is not compared. fn of the operands, in f64 where they are f32, so that the expected numbers are right to their last digit."""
    half = any(t.dtype in (torch.float16, torch.bfloat16) for t in ins)
    wide = [t.double() if t.is_floating_point() else t for t in ins]
    for t in wide:
        t.requires_grad_(t.is_floating_point() and grad)
    y = fn(*wide)
    line = "%s tol=%g" % (op, 0.02 if half else tol)
    line += "".join(" %s=%s" % (k, number(v)) for k, v in keys.items() if v is not None and v is not False)
    result = y if not y.is_floating_point() else y.to(ins[0].dtype if half else torch.float32)
    line += " : " + " ; ".join(map(text, ins)) + " -> " + text(result)
    if grad and not half and y.requires_grad:
        weight = (torch.arange(y.numel()) * 7 % 11 - 5).reshape(y.shape).double() / 4
        (y * weight).sum().backward()
        line += " ~ " + " ; ".join(text((t.grad if t.grad is not None else torch.zeros_like(t)).float()) for t in wide
                                   if t.is_floating_point() and (t is wide[0] or not targets))
    print(line, file=out)


# ---- convolutions
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_T = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
SIZES = {1: (9,), 2: (6, 7), 3: (4, 3, 5)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 2, 3)}


def conv(n, batch=2, cin=2, cout=4, groups=1, bias=True, sizes=None, kernel=None, dtype=torch.float32, pads=None, **keys):
    lead = () if batch is None else (batch,)
    x = values(*lead, cin, *(sizes or SIZES[n]), dtype=dtype)
    w = values(cout, cin // groups, *(kernel or KERNELS[n]), dtype=dtype)
    ins = [x, w] + ([values(cout, dtype=dtype)] if bias else [])

    def run(*t):
        k = dict(keys)
        if pads:  # asymmetric: PyTorch pads first
            x = F.pad(t[0], [p for i in reversed(range(n)) for p in pads[2 * i:2 * i + 2]])
            return CONV[n](x, *t[1:], groups=groups, **k)
        return CONV[n](*t, groups=groups, **k)

    same = keys.get("padding") == "same"
    shown = {k: v for k, v in keys.items() if not (k == "padding" and same)}
    if pads:
        shown["padding"] = pads
    case("conv", ins, run, axes=n, groups=groups if groups > 1 else None, same=same, **shown)


def conv_transpose(n, batch=2, cin=4, cout=2, groups=1, bias=True, sizes=None, kernel=None, **keys):
    lead = () if batch is None else (batch,)
    x = values(*lead, cin, *(sizes or {1: (5,), 2: (4, 3), 3: (2, 3, 2)}[n]))
    w = values(cin, cout // groups, *(kernel or KERNELS[n]))
    ins = [x, w] + ([values(cout)] if bias else [])
    case("conv_transpose", ins, lambda *t: CONV_T[n](*t, groups=groups, **keys), axes=n, groups=groups if groups > 1 else None,
         **keys)


def convolutions():
    for n in (1, 2, 3):
        conv(n)
        conv(n, bias=False, stride=2)
        conv(n, padding=1)
        conv(n, dilation=2, sizes=(7, 7, 7)[:n] if n < 3 else (5, 5, 6), cin=1, cout=2)
        conv(n, groups=2, stride=2, padding=1)
        conv(n, groups=2, cin=2, cout=2)
        conv(n, padding="same")
        conv(n, batch=None)
        conv(n, kernel=(1,) * n)
        conv(n, kernel=(1,) * n, stride=2)
        conv(n, kernel=SIZES[n], cin=1)
        conv(n, stride=3, padding=2, dilation=2, batch=1)
        conv(n, pads=[1, 0, 2, 1, 0, 1][:2 * n], batch=1)
        conv_transpose(n)
        conv_transpose(n, stride=2)
        conv_transpose(n, stride=2, padding=1, output_padding=1)
        conv_transpose(n, dilation=2, padding=1, bias=False)
        conv_transpose(n, groups=2, stride=2, batch=None)
        conv_transpose(n, stride=3, dilation=2, output_padding=1, batch=1, cin=2)
    conv(2, stride=(2, 1), padding=(0, 1), dilation=(1, 2))
    conv(2, padding="same", dilation=2, kernel=(2, 3))
    conv(3, stride=(1, 2, 1), padding=(1, 0, 1), batch=1)
    conv(2, groups=4, cin=4, cout=4, padding=1, kernel=(3, 3))
    conv_transpose(2, stride=(2, 1), padding=(1, 0), output_padding=(1, 0))
    conv_transpose(2, groups=4, cin=4, cout=4, stride=2)
    conv(2, dtype=torch.float16, batch=1)
    conv(2, dtype=torch.bfloat16, batch=1)


# ---- pools and interpolation
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {("adaptive_max_pool", n): f for n, f in ((1, F.adaptive_max_pool1d), (2, F.adaptive_max_pool2d), (3, F.adaptive_max_pool3d))}
ADAPTIVE.update({("adaptive_avg_pool", n): f for n, f in ((1, F.adaptive_avg_pool1d), (2, F.adaptive_avg_pool2d), (3, F.adaptive_avg_pool3d))})


def distinct(*shape):
    """No two elements are the same, so that every maximum has one place."""
    n = 1
    for s in shape:
        n *= s
    return (torch.randperm(n).float() / 8 - n / 16).reshape(shape)


def max_pool(n, kernel, sizes=None, batch=2, dtype=torch.float32, **keys):
    x = distinct(*(() if batch is None else (batch,)), 2, *(sizes or SIZES[n])).to(dtype)
    case("max_pool", [x], lambda t: MAX_POOL[n](t.double(), kernel, **keys).to(t.dtype), axes=n, kernel=kernel, **keys)


def avg_pool(n, kernel, sizes=None, batch=2, dtype=torch.float32, **keys):
    x = values(*(() if batch is None else (batch,)), 2, *(sizes or SIZES[n]), dtype=dtype)
    shown = {k: v for k, v in keys.items() if k != "count_include_pad"}
    case("avg_pool", [x], lambda t: AVG_POOL[n](t, kernel, **keys), axes=n, kernel=kernel, exclude=not keys.get("count_include_pad", True), **shown)


def adaptive(op, n, sizes, shape, batch=2):
    x = distinct(*(() if batch is None else (batch,)), 2, *shape)
    case(op, [x], lambda t: ADAPTIVE[op, n](t, sizes), axes=n, sizes=sizes)


def interpolate(shape, mode, sizes=None, scale=None, align=None, dtype=torch.float32):
    x = values(2, 2, *shape, dtype=dtype)
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(shape)]
    case("interpolate", [x], lambda t: F.interpolate(t, size=sizes, scale_factor=scale, mode=linear if mode == "linear" else mode,
                                                     align_corners=align).to(t.dtype), mode=mode, sizes=sizes, scale=scale, align=align)


def pools():
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
    max_pool(2, (3, 3), stride=2, padding=1, sizes=(8, 8), dtype=torch.int64)
    max_pool(1, 3, dtype=torch.float16)
    avg_pool(1, 3, dtype=torch.bfloat16)
    for shape, up, down, other in (((5,), (10,), (3,), (7,)), ((4, 5), (8, 15), (2, 3), (7, 7)), ((3, 4, 2), (6, 4, 4), (2, 2, 1), (5, 3, 3))):
        for size in (up, down, other):
            interpolate(shape, "nearest", size)
            interpolate(shape, "nearest-exact", size)
            interpolate(shape, "linear", size, align=False)
            interpolate(shape, "linear", size, align=True)
        interpolate(shape, "nearest", scale=2.0)
        interpolate(shape, "linear", scale=1.7, align=False)
        interpolate(shape, "linear", scale=1.7, align=True)
    interpolate((4,), "nearest", (6,), dtype=torch.uint8)


# ---- normalizations; which of weight, bias, mean and variance are there is the key has
def norm(op, shape, params, has, fn, dtype=torch.float32, **keys):
    ins = [values(*shape, dtype=dtype)]
    for name in has:
        ins.append(values(*params, lo=0.2, hi=2, dtype=dtype) if name == "v" else values(*params, dtype=dtype))
    case(op, ins, lambda x, *p: fn(x, **{k: v for k, v in zip(has, p)}), has=has or None, tol=1e-4, **keys)


def norms():
    for has in ("", "w", "wb"):
        for shape, axes in (((3, 7), 1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((5,), 1), ((2, 2, 3, 2), 3)):
            norm("layer_norm", shape, shape[-axes:], has, lambda x, w=None, b=None: F.layer_norm(x, shape[-axes:], w, b, 1e-5),
                 axes=axes, eps=1e-5)
        for shape, groups in (((2, 4), 2), ((2, 6, 5), 3), ((2, 4, 3, 2), 1), ((1, 4, 2, 3), 4), ((2, 4, 2, 1, 3), 2)):
            norm("group_norm", shape, shape[1:2], has, lambda x, w=None, b=None: F.group_norm(x, groups, w, b, 1e-3),
                 groups=groups, eps=1e-3)
        for shape in ((2, 3, 5), (2, 2, 3, 4), (1, 3, 2, 2, 2)):
            norm("instance_norm", shape, shape[1:2], has, lambda x, w=None, b=None: F.instance_norm(x, None, None, w, b, eps=1e-5), eps=1e-5)
        for shape in ((6, 3), (3, 2, 5), (2, 3, 3, 2), (2, 2, 2, 2, 2)):
            norm("batch_norm", shape, shape[1:2], has, lambda x, w=None, b=None: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), eps=1e-5)
            norm("batch_norm", shape, shape[1:2], has + "mv",
                 lambda x, w=None, b=None, m=None, v=None: F.batch_norm(x, m, v, w, b, False, 0.1, 1e-3) if not m.requires_grad else
                 ((x - m.view(1, -1, *[1] * (x.dim() - 2))) / (v + 1e-3).sqrt().view(1, -1, *[1] * (x.dim() - 2)) *
                  (1 if w is None else w.view(1, -1, *[1] * (x.dim() - 2))) + (0 if b is None else b.view(1, -1, *[1] * (x.dim() - 2)))), eps=1e-3)
        if has != "wb":
            for shape, axes in (((3, 7), 1), ((2, 3, 4), 2)):
                norm("rms_norm", shape, shape[-axes:], has,
                     lambda x, w=None: x / (x.pow(2).mean(tuple(range(-axes, 0)), keepdim=True) + 1e-6).sqrt() * (1 if w is None else w), axes=axes, eps=1e-6)
    norm("layer_norm", (3, 8), (8,), "wb", lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-5), dtype=torch.float16, axes=1, eps=1e-5)
    norm("batch_norm", (3, 4, 2), (4,), "wb", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), dtype=torch.bfloat16, eps=1e-5)


# ---- losses
def losses():
    kinds = {"mse": F.mse_loss, "l1": F.l1_loss, "huber": F.huber_loss, "smooth_l1": F.smooth_l1_loss}
    for reduction in ("mean", "sum", "none"):
        for kind, fn in kinds.items():
            case(kind, [values(3, 4), values(3, 4)], lambda x, y: fn(x, y, reduction=reduction), reduction=reduction)
        case("huber", [values(2, 3, 2), values(2, 3, 2)], lambda x, y: F.huber_loss(x, y, reduction=reduction, delta=0.4), reduction=reduction, delta=0.4)
        case("smooth_l1", [values(7), values(7)], lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.6), reduction=reduction, delta=0.6)
        p, y = values(3, 4, lo=0.01, hi=0.99), values(3, 4, lo=0, hi=1)
        case("bce", [p, y], lambda x, t: F.binary_cross_entropy(x, t.detach(), reduction=reduction), reduction=reduction, targets=True)
        case("bce", [p, y, values(4, lo=0.1, hi=1)], lambda x, t, w: F.binary_cross_entropy(x, t.detach(), w.detach(), reduction=reduction),
             reduction=reduction, targets=True, has="w")
        x = values(3, 4, lo=-9, hi=9)
        case("bce_logits", [x, y], lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=reduction), reduction=reduction)
        case("bce_logits", [x, y, values(4, lo=0.1, hi=3)], lambda x, t, p: F.binary_cross_entropy_with_logits(x, t, reduction=reduction, pos_weight=p.detach()),
             reduction=reduction, has="p", targets=True)
        case("bce_logits", [x, y, values(3, 4, lo=0.1, hi=3), values(4, lo=0.1, hi=3)],
             lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w.detach(), reduction=reduction, pos_weight=p.detach()),
             reduction=reduction, has="wp", targets=True)
        logp, q = values(3, 4, lo=-3, hi=-0.1), values(3, 4, lo=0, hi=1)
        case("kl", [logp, q], lambda x, t: F.kl_div(x, t.detach(), reduction=reduction), reduction=reduction, targets=True)
        case("kl", [logp, values(3, 4, lo=-3, hi=0)], lambda x, t: F.kl_div(x, t, reduction=reduction, log_target=True), reduction=reduction, log_target=True)
    case("kl", [logp, q], lambda x, t: F.kl_div(x, t.detach(), reduction="batchmean"), reduction="batchmean", targets=True)
    case("bce", [torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 0.0])], lambda x, t: F.binary_cross_entropy(x, t.detach(), reduction="none"), grad=False, reduction="none")
    case("bce_logits", [torch.tensor([0.0, 80.0, -90.0, 1000.0]), torch.tensor([0.5, 1.0, 0.0, 0.0])],
         lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"), grad=False, reduction="none")
    for reduction in ("mean", "sum", "none"):
        for shape, classes in (((5, 4), 4), ((2, 3, 4), 3), ((2, 3, 2, 2), 3), ((6,), 6)):
            x = values(*shape, lo=-4, hi=4)
            rest = shape[:1] + shape[2:] if len(shape) > 1 else ()
            t = torch.randint(0, classes, rest)
            w = values(classes, lo=0.2, hi=2)
            case("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction=reduction), reduction=reduction)
            case("cross_entropy", [x, t, w], lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction=reduction), reduction=reduction, has="w", targets=True)
            case("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction=reduction, label_smoothing=0.2), reduction=reduction, smooth=0.2)
            case("cross_entropy", [x, t, w], lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction=reduction, label_smoothing=0.1),
                 reduction=reduction, smooth=0.1, has="w", targets=True)
            logp = x.log_softmax(1 if len(shape) > 1 else 0)
            case("nll", [logp, t], lambda x, t: F.nll_loss(x, t, reduction=reduction), reduction=reduction)
            p = values(*shape, lo=0, hi=1)
            case("cross_entropy", [x, p], lambda x, p: F.cross_entropy(x, p, reduction=reduction), reduction=reduction)
            case("cross_entropy", [x, p, w], lambda x, p, w: F.cross_entropy(x, p, w.detach(), reduction=reduction, label_smoothing=0.3),
                 reduction=reduction, smooth=0.3, has="w", targets=True)
        x, t = values(6, 4), torch.tensor([0, 3, -100, 2, -100, 1])
        case("cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t, reduction=reduction), reduction=reduction)
        case("cross_entropy", [x, t.clamp(0)], lambda x, t: F.cross_entropy(x, t, reduction=reduction, ignore_index=0), reduction=reduction, ignore=0)
        case("cross_entropy", [x, t.clamp(0)], lambda x, t: F.cross_entropy(x, t, reduction=reduction, ignore_index=0, label_smoothing=0.2),
             reduction=reduction, ignore=0, smooth=0.2)
        case("cross_entropy", [x, t.clamp(0), w[:4]], lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction=reduction, ignore_index=0),
             reduction=reduction, ignore=0, has="w", targets=True)
        case("nll", [x, t], lambda x, t: F.nll_loss(x, t, reduction=reduction), reduction=reduction)
    case("cross_entropy", [values(4, 3).half(), torch.tensor([0, 1, 2, 1])], lambda x, t: F.cross_entropy(x, t), reduction="mean")
    case("cross_entropy", [values(4, 3) * 100, torch.tensor([0, 1, 2, 1]).int()], lambda x, t: F.cross_entropy(x, t.long()), reduction="mean")


# ---- attention
def attention(q, k, v, mask=None, causal=False, scale=None, tol=2e-5, dtype=torch.float32):
    ins = [values(*s, dtype=dtype) for s in (q, k, v)] + ([] if mask is None else [mask])

    def run(q, k, v, m=None):
        if k.dim() > 2 and q.shape[-3] != k.shape[-3]:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        if m is not None:
            s = s.masked_fill(~m, -torch.inf) if m.dtype == torch.bool else s + m
        if causal:
            s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
        return s.softmax(-1) @ v

    case("attention", ins, run, causal=causal, scale=scale, tol=tol)


def attentions():
    for causal in (False, True):
        attention((5, 4), (6, 4), (6, 3), causal=causal)
        attention((2, 5, 4), (2, 6, 4), (2, 6, 3), causal=causal)
        attention((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), causal=causal)
        attention((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), causal=causal)
        attention((4, 3, 4), (1, 5, 4), (1, 5, 3), causal=causal, scale=0.3)
        mask = torch.rand(5, 6) < 0.6
        mask[:, 0] = True
        attention((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4), mask, causal)
        attention((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4), mask[:1], causal)
        attention((2, 2, 5, 4), (2, 1, 6, 4), (2, 1, 6, 4), mask.expand(2, 1, 5, 6).contiguous(), causal)
        attention((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4), values(2, 1, 5, 6), causal)
    attention((2, 3, 4), (2, 5, 4), (2, 5, 3), dtype=torch.float16)


GROUPS = {"conv": convolutions, "pool": pools, "norm": norms, "loss": losses, "attention": attentions}

if __name__ == "__main__":
    for name in sys.argv[2:] or GROUPS:
        torch.manual_seed(3)
        with open("%s/%s.txt" % (sys.argv[1], name), "w") as out:
            GROUPS[name]()
