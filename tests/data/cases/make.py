#!/usr/bin/python3
"""Reference values for tests/frontend/test_cases.c by PyTorch and NumPy: python3 make.py [FAMILY...] writes FAMILY.txt here.
core.py describes the lines. Adding a case does not change the inputs of the others."""
import importlib
import os
import sys

sys.dont_write_bytecode = True
import core

FAMILIES = ("unary", "binary", "math", "create", "movement", "shape", "index", "reduce", "scan", "sort", "matmul", "conv", "pool", "norm", "loss", "attention", "second")
here = os.path.dirname(os.path.abspath(__file__))
for family in sys.argv[1:] or FAMILIES:
    core.lines.clear()
    importlib.import_module("family_" + family)
    with open(os.path.join(here, family + ".txt"), "w") as f:
        f.write("\n".join(core.lines) + "\n")
    print(family, len(core.lines), "cases,", sum(" | " in line for line in core.lines), "with gradients")
