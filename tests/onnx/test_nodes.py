"""Runs the tests of operators and of small models that the `onnx` package carries through libdoorbell.so.

Usage: test_nodes.py LIBRARY [--every N] [--only TEXT] [--list] [--timeout S]. DEV chooses the device. Prints a line for
each test that fails or is refused, and a table. Exits with 1 if a test fails, and with 77 if there is no `onnx`.
A test is refused if the library returns an error that says "not supported".
"""
import argparse
import collections
import os
import pickle
import signal
import sys
import time
import warnings

# The library's thread-local data is part of the static block, where glibc keeps little room for loaded libraries.
if "GLIBC_TUNABLES" not in os.environ:
    os.environ["GLIBC_TUNABLES"] = "glibc.rtld.optional_static_tls=16384"
    os.execv(sys.executable, [sys.executable, *sys.argv])
warnings.simplefilter("ignore")
try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests
except ImportError as missing:
    print(f"skipped: {missing}; pip install onnx")
    sys.exit(77)

from doorbell import SMALL, Failed, Library, Model

RUNS = 3  # the first, the captured and a replayed one
# Results are random, so that only their shapes and types can be compared.
RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
# Operators about strings, sequences and optional values, and images in files.
OUT_OF_SCOPE = {
    "ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
    "SequenceMap", "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement"}


def graphs(graph):
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("g"):
                yield from graphs(a.g)


def operators(model):
    nodes = [n for g in graphs(model.graph) for n in g.node] + [n for f in model.functions for n in f.node]
    return {n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}" for n in nodes}


def is_eligible(model):
    """Whether the model is of the standard domain since opset 7, and about tensors of numbers."""
    if any(o.domain in ("", "ai.onnx") and o.version < 7 for o in model.opset_import):
        return False
    types = [v.type for g in graphs(model.graph) for v in list(g.input) + list(g.output) if v.HasField("type")]
    numbers = all(t.WhichOneof("value") == "tensor_type" and t.tensor_type.elem_type != onnx.TensorProto.STRING
                  for t in types)
    return numbers and not any("." in o or o in OUT_OF_SCOPE for o in operators(model))


class Case:
    def __init__(self, name, model, rtol, atol, sets, folder=None):
        self.name, self.model, self.rtol, self.atol, self.sets, self.folder = name, model, rtol, atol, sets, folder


def read_set(folder, model):
    """The arrays of a folder of input_*.pb and output_*.pb."""
    def arrays(kind, values):
        found = []
        for i in range(len(values)):
            path = os.path.join(folder, f"{kind}_{i}.pb")
            if os.path.exists(path):
                with open(path, "rb") as f:
                    found.append(numpy_helper.to_array(onnx.TensorProto.FromString(f.read())))
        return found
    return arrays("input", model.graph.input), arrays("output", model.graph.output)


def cases():
    for c in collect_testcases(None):
        yield Case(c.name, c.model, c.rtol, c.atol, c.data_sets)
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for c in load_model_tests(kind=kind):
            model = onnx.load(os.path.join(c.model_dir, "model.onnx"))
            if not is_eligible(model):
                continue
            sets = [os.path.join(c.model_dir, d) for d in os.listdir(c.model_dir) if d.startswith("test_data_set")]
            yield Case(f"{c.name} ({kind})", model, c.rtol, c.atol, [read_set(s, model) for s in sets], c.model_dir)


def to_array(value):
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def differs(expected, got, rtol, atol):
    """What is different, or None."""
    expected = np.asarray(expected)
    if tuple(expected.shape) != tuple(got.shape):
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if expected.dtype.name in SMALL:
        expected = expected.astype(SMALL[expected.dtype.name])
    if expected.dtype != got.dtype:
        return f"type {got.dtype}, expected {expected.dtype}"
    if expected.dtype.kind in "fV" or expected.dtype.name.startswith(("float", "bfloat")):
        wide, have = expected.astype(np.float64), got.astype(np.float64)
        # One rounding of the narrow types, near 0 that of 1/2.
        steps = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
        step = steps.get(expected.dtype.name, 0)
        # Expected values have errors of f32, which matter where terms cancel out.
        largest = np.max(np.abs(wide[np.isfinite(wide)]), initial=0)
        rtol, atol = max(rtol, step), max(atol, step / 2, 2.0**-24 * largest)
        if np.allclose(have, wide, rtol=rtol, atol=max(atol, 1e-7), equal_nan=True):
            return None
        with np.errstate(all="ignore"):
            most = np.nanmax(np.abs(have - wide))
        return f"values: {have.ravel()[:4]}, expected {wide.ravel()[:4]}; different by up to {most:g}"
    if np.array_equal(expected.astype(np.int64), got.astype(np.int64)):
        return None
    return f"values: {got.ravel()[:6]}, expected {expected.ravel()[:6]}"


def run_case(library, case):
    """Returns (outcome, reason)."""
    random = bool(operators(case.model) & RANDOM) or "training_dropout" in case.name
    try:
        with Model(library, case.model.SerializeToString(), case.folder) as model:
            for inputs, outputs in case.sets:
                arrays, outputs = [to_array(a) for a in inputs], [to_array(a) for a in outputs]
                for run in range(RUNS):
                    got = model.run(arrays)
                    for i, (e, g) in enumerate(zip(outputs, got)):
                        if random:
                            e = g if np.asarray(e).shape == g.shape and np.asarray(e).dtype == g.dtype else e
                        why = differs(e, g, case.rtol, case.atol)
                        if why:
                            return "failed", f"run {run}, output {i}: {why}"
    except Failed as e:
        return ("refused" if "not supported" in str(e) or "elements of type" in str(e) else "failed"), str(e)
    return "passed", ""


def run_child(path, todo, timeout, results):
    """Runs cases in a child until it ends, fails or hangs. Returns how many of them have a result."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        library = Library(path)
        with os.fdopen(write, "wb") as out:
            for case in todo:
                signal.alarm(timeout)
                pickle.dump(run_case(library, case), out)
                out.flush()
        os._exit(0)
    os.close(write)
    done = 0
    with os.fdopen(read, "rb") as pipe:
        try:
            while done < len(todo):
                results.append((todo[done], *pickle.load(pipe)))
                done += 1
        except EOFError:
            pass
    status = os.waitpid(pid, 0)[1]
    if done < len(todo):
        hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        results.append((todo[done], "failed", "takes too long" if hung else f"the process ended with status {status}"))
        done += 1
    return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true", help="print every result")
    parser.add_argument("--timeout", type=int, default=60)
    args = parser.parse_args()
    todo = [c for c in cases() if args.only in c.name]
    outside = [c for c in todo if not is_eligible(c.model)]
    todo = [c for c in todo if is_eligible(c.model)][::args.every]
    results, begin = [], time.time()
    while len(results) < len(todo):
        run_child(args.library, todo[len(results):len(results) + 200], args.timeout, results)
    counts = collections.Counter(outcome for _, outcome, _ in results)
    for case, outcome, why in results:
        if outcome != "passed" or args.list:
            print(f"{outcome:8} {case.name}: {why[:300]}")
    reasons = collections.Counter(why.split(": ", 1)[-1] for _, outcome, why in results if outcome == "refused")
    for why, n in reasons.most_common():
        print(f"{n:5} refused: {why[:160]}")
    share = 100 * counts["passed"] / max(len(results), 1)
    print(f"{counts['passed']} passed ({share:.1f} %), {counts['refused']} refused, {counts['failed']} failed, "
          f"{len(outside)} about strings, sequences or other domains; {time.time() - begin:.0f} s")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
