#!/usr/bin/python3
"""Reference values for tests/frontend/test_index.c by NumPy: python3 make.py > index.txt

A line is  SUBSCRIPT... = [sizes] numbers = numbers  where x is 1, 2, ... 120 in the shape [4, 5, 6]. The first numbers
are x[SUBSCRIPT...] in row-major order; the second are x after the assignment of -1, -2, ... to x[SUBSCRIPT...] in this
order. A subscript is a number; begin:end:step, with _ for each part that is omitted; N, a new axis; R, all remaining
axes (...); or T[sizes]numbers, an i64 tensor.
"""
import numpy as np


def S(*a):
    return slice(*a)


def I(x):
    return np.array(x, np.int64)


CASES = [
    (1,), (-1, S(1, 3)), (S(None, None, -1),), (S(3, 0, -2), ..., S(None, None, 2)), (None, 2, None, ...), (..., -2), (1, 2, 3),
    (S(1, 9), S(-3, None), S(None, -1)), (S(2, 2),), (...,), (S(None, None, 7),), (S(-9, -1, 3), 0, S(4, None, -3)),
    (I([0, 2, -1]),), (S(None), I([1, 3, 0]),), (S(None), I([[1], [2]]), I([0, 3, -6]),), (I([0, 1]), S(None), I([2, 3])),
    (0, S(None), I([1, 2])), (S(None), 0, I([1, 2])), (I([1, 2]), None, 0), (S(1, 3), I([0, 4]), S(None, None, 2)), (..., I([5, 0])),
    (I([[0, 1], [2, 3]]), I([4, 3])), (I([0, 3]), I([1, 2]), I([2, 5])), (I(2),), (S(None, None, -1), I([4, 0]), None),
    (None, I([1, 0]), S(1, 2)), (I([-4]), ..., I([[1], [-1]])), (I([1, 1, 2]),), (S(None), I([2, 2]), 4),
]


def word(s):
    if s is None:
        return "N"
    if s is Ellipsis:
        return "R"
    if isinstance(s, slice):
        return ":".join("_" if v is None else str(v) for v in (s.start, s.stop, s.step if s.step is not None else 1))
    if isinstance(s, np.ndarray):
        return "T[%s]%s" % (",".join(map(str, s.shape)), ",".join(map(str, s.ravel())))
    return str(s)


def numbers(x):
    return " ".join("%d" % v for v in x.ravel())


for case in CASES:
    x = np.arange(1, 121).reshape(4, 5, 6)
    y = x[case].copy()
    z = x.copy()
    z[case] = -np.arange(1, y.size + 1).reshape(y.shape)
    print("%s = [%s] %s = %s" % (" ".join(map(word, case)), ",".join(map(str, y.shape)), numbers(y), numbers(z)))
