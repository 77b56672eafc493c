"""Convolutions and transposed convolutions of 1 to 3 axes."""
import torch
import torch.nn.functional as F

from core import In, TOL, case

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_T = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
SIZES = {1: (9,), 2: (6, 7), 3: (4, 3, 5)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 2, 3)}


def tolerance(t):
    """Sums of up to a hundred products, and gradients that add as many."""
    return {"tol": max(1e-5, 2 * TOL[t]) if t != "f64" else 1e-12, "gtol": max(2e-5, 4 * TOL[t]) if t != "f64" else 1e-11, "floor": 2, "gfloor": 4}


def conv(n, batch=2, cin=2, cout=4, groups=1, bias=True, sizes=None, kernel=None, t="f32", pads=None, view=(), **keys):
    x = In(t, (() if batch is None else (batch,)) + (cin,) + tuple(sizes or SIZES[n]), view=view)
    w = In(t, (cout, cin // groups) + tuple(kernel or KERNELS[n]))
    ins = [x, w] + ([In(t, (cout,))] if bias else [])

    def run(x, *p):
        if pads:  # asymmetric: PyTorch pads first
            x = F.pad(x, [v for i in reversed(range(n)) for v in pads[2 * i:2 * i + 2]])
        return CONV[n](x, *p, groups=groups, **keys)

    shown = dict(keys)
    if shown.get("padding") == "same":
        del shown["padding"]
        shown["same"] = 1
    if pads:
        shown["padding"] = pads
    if groups > 1:
        shown["groups"] = groups
    case("conv", ins, run, n=n, **shown, **tolerance(t))


def conv_transpose(n, batch=2, cin=4, cout=2, groups=1, bias=True, sizes=None, kernel=None, t="f32", **keys):
    x = In(t, (() if batch is None else (batch,)) + (cin,) + tuple(sizes or {1: (5,), 2: (4, 3), 3: (2, 3, 2)}[n]))
    w = In(t, (cin, cout // groups) + tuple(kernel or KERNELS[n]))
    ins = [x, w] + ([In(t, (cout,))] if bias else [])
    shown = dict(keys, groups=groups) if groups > 1 else keys
    case("conv_transpose", ins, lambda *a: CONV_T[n](*a, groups=groups, **keys), n=n, **shown, **tolerance(t))


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
conv(2, cin=3, cout=2, sizes=(5, 5), kernel=(3, 3), batch=1, view=[("flip", 3), ("permute", 0, 1, 3, 2)])
conv_transpose(2, stride=(2, 1), padding=(1, 0), output_padding=(1, 0))
conv_transpose(2, groups=4, cin=4, cout=4, stride=2)
for t in ("f16", "bf16", "f64", "f8e4m3", "f8e5m2"):
    conv(2, t=t, batch=1, sizes=(4, 5))
    conv_transpose(1, t=t, batch=1, cin=2)
