#!/usr/bin/env python3
"""Writes optim.txt: parameters after several optimizer steps, and learning rates of schedules.

PyTorch computes the parameters. LAMB, LARS, Muon and Lion are computed in NumPy as their papers describe them. The parameters
are w [3, 4], v [4, 2] and, except for Muon, b [5]. The loss is sum(k * (p - t)**2) over all elements. Element i of each
parameter starts at p = sin(i), with t = cos(2 i) and k = 0.5 + i % 3. A line is
    kind key=value... : the parameters w, v, b after step 1, then after steps 2, 3 and 6
lr_step=N,F multiplies the learning rate by F before step N; the first step is 1. The last lines are learning rates:
    lr kind key=value... : the rates at steps 0, 1, 2, ...
"""
import numpy as np, torch
from torch.optim import lr_scheduler as sched

SHAPES = [(3, 4), (4, 2), (5,)]
STEPS, SHOWN = 6, (1, 2, 3, 6)
out = open("optim.txt", "w")

def start(shapes):
    ps, ts, ks = [], [], []
    for s in shapes:
        i = np.arange(np.prod(s), dtype=np.float64)
        ps.append(np.sin(i).reshape(s)); ts.append(np.cos(2 * i).reshape(s)); ks.append((0.5 + i % 3).reshape(s))
    return ps, ts, ks

def line(head, shown):
    out.write(head + " : " + " ".join("%.8g" % x for x in shown) + "\n")

def text(options):
    return "".join(" %s=%g" % (k, v) for k, v in options.items())

def by_torch(kind, make, options, lr_step=None, clip=None):
    ps, ts, ks = start(SHAPES)
    ps = [torch.tensor(p, requires_grad=True) for p in ps]
    o, shown = make(ps, options), []
    for step in range(1, STEPS + 1):
        if lr_step and step == lr_step[0]:
            for g in o.param_groups: g["lr"] *= lr_step[1]
        o.zero_grad()
        sum((torch.tensor(k) * (p - torch.tensor(t)) ** 2).sum() for p, t, k in zip(ps, ts, ks)).backward()
        if clip and clip[0] == "norm": torch.nn.utils.clip_grad_norm_(ps, clip[1])
        if clip and clip[0] == "value": torch.nn.utils.clip_grad_value_(ps, clip[1])
        o.step()
        if step in SHOWN: shown += [x for p in ps for x in p.detach().numpy().ravel()]
    head = kind + text(options)
    if lr_step: head += " lr_step=%d,%g" % lr_step
    if clip: head += " clip_%s=%g" % clip
    line(head, shown)

def by_numpy(kind, update, options, shapes=SHAPES):
    ps, ts, ks = start(shapes)
    state, shown = [{} for _ in ps], []
    for step in range(1, STEPS + 1):
        for i in range(len(ps)): ps[i] = update(ps[i], 2 * ks[i] * (ps[i] - ts[i]), state[i], step, **options)
        if step in SHOWN: shown += [x for p in ps for x in p.ravel()]
    line(kind + text(options), shown)

def sgd(ps, o):
    return torch.optim.SGD(ps, lr=o["lr"], momentum=o.get("momentum", 0), weight_decay=o.get("weight_decay", 0), nesterov=bool(o.get("nesterov", 0)))
def adam(ps, o, cls=torch.optim.Adam):
    return cls(ps, lr=o.get("lr", 1e-3), betas=(o.get("beta1", 0.9), o.get("beta2", 0.999)), eps=o.get("eps", 1e-8), weight_decay=o.get("weight_decay", 0))
def adamw(ps, o): return adam(ps, o, torch.optim.AdamW)

def rmsprop(ps, o):
    return torch.optim.RMSprop(ps, lr=o.get("lr", 0.01), alpha=o.get("beta2", 0.99), eps=o.get("eps", 1e-8), weight_decay=o.get("weight_decay", 0), momentum=o.get("momentum", 0), centered=bool(o.get("centered", 0)))
def adafactor(ps, o):
    return torch.optim.Adafactor(ps, lr=o.get("lr", 0.01), beta2_decay=-o.get("decay", 0.8), eps=(o.get("eps", 2**-23), o.get("least_scale", 0.001)), d=o.get("clip", 1), weight_decay=o.get("weight_decay", 0))

# Algorithm 2 of "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", phi the identity
def lamb(p, g, s, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * g * g
    r = (s["m"] / (1 - beta1 ** t)) / (np.sqrt(s["v"] / (1 - beta2 ** t)) + eps) + weight_decay * p
    a, b = np.linalg.norm(p), np.linalg.norm(r)
    return p - lr * (a / b if a > 0 and b > 0 else 1) * r

# Algorithm 1 of "Large Batch Training of Convolutional Networks"
def lars(p, g, s, t, lr=0.01, momentum=0.9, weight_decay=0.0, trust=0.001):
    a, b = np.linalg.norm(p), np.linalg.norm(g)
    local = trust * a / (b + weight_decay * a) if a > 0 and b > 0 else 1
    s["v"] = momentum * s.get("v", 0) + lr * local * (g + weight_decay * p)
    return p - s["v"]

# "Muon: An optimizer for hidden layers in neural networks"
def muon(p, g, s, t, lr=0.02, momentum=0.95, weight_decay=0.0):
    s["m"] = momentum * s.get("m", 0) + g
    x = g + momentum * s["m"]
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    x = x.T if tall else x
    return p * (1 - lr * weight_decay) - lr * max(1, p.shape[0] / p.shape[1]) ** 0.5 * x

# Algorithm 2 of "Symbolic Discovery of Optimization Algorithms"
def lion(p, g, s, t, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
    m = s.get("m", 0)
    s["m"] = beta2 * m + (1 - beta2) * g
    return p - lr * (np.sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)

by_torch("sgd", sgd, dict(lr=0.1))
by_torch("sgd", sgd, dict(lr=0.05, momentum=0.9))
by_torch("sgd", sgd, dict(lr=0.05, momentum=0.8, nesterov=1, weight_decay=0.1))
by_torch("sgd", sgd, dict(lr=0.05, momentum=0.9), lr_step=(3, 0.1))
by_torch("sgd", sgd, dict(lr=0.1), clip=("norm", 1.5))
by_torch("sgd", sgd, dict(lr=0.1), clip=("norm", 1e6))
by_torch("sgd", sgd, dict(lr=0.1), clip=("value", 0.7))
by_torch("adam", adam, dict())
by_torch("adam", adam, dict(lr=0.05, beta1=0.8, beta2=0.99, eps=0.001, weight_decay=0.2))
by_torch("adam", adam, dict(lr=0.1), lr_step=(2, 0.5))
by_torch("adamw", adamw, dict(weight_decay=0.01))
by_torch("adamw", adamw, dict(lr=0.1, beta1=0.85, weight_decay=0.3))
by_numpy("lamb", lamb, dict())
by_numpy("lamb", lamb, dict(lr=0.05, weight_decay=0.1))
by_numpy("lars", lars, dict())
by_numpy("lars", lars, dict(lr=1, momentum=0.5, weight_decay=0.01, trust=0.02))
by_numpy("muon", muon, dict(), SHAPES[:2])
by_numpy("muon", muon, dict(lr=0.1, momentum=0.9, weight_decay=0.05), SHAPES[:2])
by_torch("rmsprop", rmsprop, dict())
by_torch("rmsprop", rmsprop, dict(lr=0.05, beta2=0.9, eps=0.001, weight_decay=0.1, momentum=0.5))
by_torch("rmsprop", rmsprop, dict(lr=0.02, momentum=0.5, centered=1))
by_numpy("lion", lion, dict())
by_numpy("lion", lion, dict(lr=0.05, beta1=0.5, beta2=0.8, weight_decay=0.3))
by_torch("adafactor", adafactor, dict())
by_torch("adafactor", adafactor, dict(lr=0.5, decay=0.6, eps=0.01, least_scale=0.5, clip=1.1, weight_decay=0.1))

def rates(kind, make, options, n=12, metrics=None):
    o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=options["lr"])
    s, shown = make(o, options), []
    for i in range(n):
        if metrics: s.step(metrics[i])
        shown.append(o.param_groups[0]["lr"])
        if not metrics: o.step(); s.step()
    line("lr " + kind + text(options), shown)

rates("constant", lambda o, k: sched.ConstantLR(o, k["factor"], int(k["steps"])), dict(lr=0.2, factor=0.25, steps=4))
rates("step", lambda o, k: sched.StepLR(o, int(k["every"]), k["gamma"]), dict(lr=0.2, gamma=0.5, every=3))
rates("multistep", lambda o, k: sched.MultiStepLR(o, [2, 5, 6], k["gamma"]), dict(lr=0.2, gamma=0.1))
rates("exponential", lambda o, k: sched.ExponentialLR(o, k["gamma"]), dict(lr=0.2, gamma=0.9))
rates("cosine", lambda o, k: sched.CosineAnnealingLR(o, int(k["steps"]), k["least"]), dict(lr=0.2, least=0.01, steps=10))
rates("linear", lambda o, k: sched.LinearLR(o, k["from"], 1, int(k["steps"])), {"lr": 0.2, "from": 0.1, "steps": 5})
rates("one_cycle", lambda o, k: sched.OneCycleLR(o, k["lr"], int(k["steps"]), cycle_momentum=False), dict(lr=0.2, steps=12))
rates("one_cycle", lambda o, k: sched.OneCycleLR(o, k["lr"], int(k["steps"]), pct_start=k["rise"], cycle_momentum=False), dict(lr=0.2, rise=0.5, steps=12))
METRICS = [5, 4, 4, 4, 4, 3.9999, 3, 3, 3, 3, 3, 3, 3, 3, 3]
rates("plateau", lambda o, k: sched.ReduceLROnPlateau(o, patience=int(k["patience"]), cooldown=int(k["cooldown"]), factor=k["factor"], min_lr=k["least"]),
      dict(lr=0.2, factor=0.5, patience=1, cooldown=2, least=0.03), 15, METRICS)
