"""Minimax approximations for compiler/rules/decompose.rules and frontend/ops/functions.c, by Remez's exchange
algorithm.

fit() finds p[0..n] that minimizes the largest |p(x) - f(x)| * weight(x) over an interval. rounded() rounds the
coefficients to a type one by one, lowest power first. After each it fits the remaining coefficients again, which
compensates for the rounding. odd_rational() approximates odd functions. Needs mpmath and numpy. Run it to print every
table."""
import struct

import numpy
from mpmath import atanh, cos, erf, log, log1p, lu_solve, matrix, mp, mpf, pi, sin, sqrt, tanh

mp.dps = 40
GRID = 301


def points(a, b, n):
    return [(a + b) / 2 - (b - a) / 2 * cos(pi * i / n) for i in range(n + 1)]


class Problem:
    """Samples f and weight once over [a, b]."""

    def __init__(self, f, weight, a, b):
        self.a, self.b = mpf(a), mpf(b)
        self.x = points(self.a, self.b, GRID)
        self.f, self.w = [f(x) for x in self.x], [weight(x) for x in self.x]

    def fit(self, n, fixed=(), rounds=12):
        """fixed: the k lowest coefficients. The rest is x^k times a polynomial, so f - fixed is divided by x^k."""
        k = len(fixed)
        keep = [i for i, x in enumerate(self.x) if x or not k]
        x = [self.x[i] for i in keep]
        f = [(self.f[i] - mp.polyval(fixed[::-1], self.x[i])) / self.x[i] ** k if k else self.f[i] for i in keep]
        w = [self.w[i] * abs(self.x[i]) ** k for i in keep]
        free, count = n + 1 - k, n + 2 - k
        at = sorted({round((len(x) - 1) * (1 - cos(pi * i / (count - 1))) / 2) for i in range(count)})
        best = None
        for _ in range(rounds):
            left, right = matrix(count, count), matrix(count, 1)
            for i, g in enumerate(at):
                for j in range(free):
                    left[i, j] = x[g] ** j
                left[i, free] = -(-1) ** i / w[g]
                right[i] = f[g]
            p = list(lu_solve(left, right))
            level = abs(p.pop())
            error = [(mp.polyval(p[::-1], u) - v) * z for u, v, z in zip(x, f, w)]
            most = max(abs(e) for e in error)
            if best is None or most < best[1]:
                best = list(fixed) + p, most
            peaks, start = [], 0  # the index of the largest error in each run of errors of one sign
            for i in range(1, len(error) + 1):
                if i == len(error) or (error[i] > 0) != (error[start] > 0):
                    peaks.append(max(range(start, i), key=lambda j: abs(error[j])))
                    start = i
            while len(peaks) > count:
                peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
            if len(peaks) < count or peaks == at or most <= level * mpf("1.005"):
                break
            at = peaks
        return best

    def rounded(self, n, t, fixed=()):
        fixed = list(fixed)
        while len(fixed) <= n:
            p, _ = self.fit(n, fixed)
            fixed.append(to_type(p[len(fixed)], t))
        return fixed, max(abs((mp.polyval(fixed[::-1], x) - f) * w) for x, f, w in zip(self.x, self.f, self.w))


def odd_rational(f, most, n, m, grid=500, rounds=900):
    """Finds x p(s) / q(s), s = x^2, with the smallest relative error over [0, most]. Each round solves a least-squares
    problem, linearized with the previous q, then increases the weights where the error is large (Lawson's method)."""
    x = most * (1 - numpy.cos(numpy.pi * (numpy.arange(grid) + 0.5) / grid)) / 2
    s = (x / most) ** 2  # in [0, 1], which keeps the matrix well conditioned
    slope = numpy.array([float(f(mpf(v)) / mpf(v)) for v in x])
    powers = numpy.stack([s ** k for k in range(max(n, m) + 1)], 1)
    weight, below, best = numpy.ones(grid), numpy.ones(grid), None
    for _ in range(rounds):
        scale = numpy.sqrt(weight) / (below * slope)
        left = numpy.concatenate([powers[:, : n + 1], -slope[:, None] * powers[:, 1 : m + 1]], 1)
        c = numpy.linalg.lstsq(left * scale[:, None], slope * scale, rcond=None)[0]
        below = 1 + powers[:, 1 : m + 1] @ c[n + 1 :]
        error = abs(powers[:, : n + 1] @ c[: n + 1] / below / slope - 1)
        if best is None or max(error) < best[0]:
            best = max(error), c
        weight *= error / max(error) + 1e-3
        weight /= max(weight)
    error, c = best
    return [[1.0] * (part == 1) + [to_type(v / most ** (2 * (k + part)), "f32") for k, v in enumerate(half)]
            for part, half in enumerate((c[: n + 1], c[n + 1 :]))], error


def to_type(v, t):
    return mpf(float(v)) if t == "f64" else mpf(struct.unpack("f", struct.pack("f", float(v)))[0])


def shown(v):
    mantissa, exponent = float(v).hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent


def show(name, c, error):
    print("%s, error 2^%.2f" % (name, log(error) / log(2)))
    print("  " + ", ".join(shown(v) for v in c), flush=True)


def exp2(r):
    return mpf(2) ** r


def log2_slope(m):  # log2(1 + m) / m
    return log1p(m) / m / log(2) if m else 1 / log(mpf(2))


def artanh_rest(z):
    return (2 * atanh(sqrt(z)) / sqrt(z) - 2) / z if z else mpf(2) / 3


def sine(s):
    return sin(sqrt(s)) / sqrt(s) if s else mpf(1)


def decompose():
    p = Problem(exp2, lambda r: 1 / exp2(r), mpf(-1) / 2, mpf(1) / 2)
    show("exp2_single", *p.rounded(6, "f32", [mpf(1)]))
    show("exp2_double", *p.rounded(11, "f64", [mpf(1)]))
    p = Problem(log2_slope, lambda m: 1 / log2_slope(m), sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1)
    c, error = p.fit(9)
    show("log2_single", [to_type(v, "f32") for v in c], error)
    most = (sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)  # of s = m / (2 + m)
    p = Problem(artanh_rest, lambda z: (z + mpf(10) ** -6) / 2, 0, most ** 2 * mpf("1.0001"))
    c, error = p.fit(6)
    show("artanh_double", c, error)
    p = Problem(sine, lambda s: 1 / sine(s), 0, (pi / 2) ** 2 * mpf("1.0001"))
    show("sin_single", *p.rounded(4, "f32", [mpf(1)]))
    show("sin_double", *p.rounded(8, "f64", [mpf(1)]))


def math():
    slope = lambda x: log1p(x) / x if x else mpf(1)
    p = Problem(slope, lambda x: 1 / slope(x), 0, 1)
    show("log1p_of_part", *p.rounded(9, "f32", [mpf(1)]))
    for name, f, most, n, m in (("tanh", tanh, 9.02, 4, 4), ("erf", erf, 3.93, 5, 5)):
        (p, q), error = odd_rational(f, most, n, m)
        show(name + " p", p, error)
        show(name + " q", q, error)


if __name__ == "__main__":
    decompose()
    math()
