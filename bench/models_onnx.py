"""Times ONNX models on the CPU, by turns with onnxruntime: a ResNet-50 and a BERT-like encoder with random weights.

Usage: models_onnx.py LIBRARY [resnet50|encoder|FILE.onnx]... [--batch N] [--threads N] [--rounds N] [--write FOLDER]

Prints the processor time of one run of each program (by the clock with --threads 2 or more), the least of the rounds,
the relative speed (above 1, Doorbell is faster) and the largest difference of the results. --write only writes the
models. Needs PyPI's onnx and onnxruntime. Run it under `taskset -c 0` for --threads 1.
"""
import argparse
import os
import sys
import time

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports of packages that may be missing
    print(__doc__)
    sys.exit()

# The library's thread-local data is part of the static block, where glibc keeps little room for loaded libraries.
if "GLIBC_TUNABLES" not in os.environ:
    os.environ["GLIBC_TUNABLES"] = "glibc.rtld.optional_static_tls=16384"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "onnx"))
from doorbell import Library, Model


class Graph:
    """Nodes in the order of their computation, with names of their own."""

    def __init__(self, seed=50):
        self.nodes, self.values, self.random = [], [], np.random.default_rng(seed)

    def add(self, op, *inputs, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value, dtype=np.float32):
        name = f"value_{len(self.values)}"
        self.values.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape, scale=None):
        scale = scale or np.prod(shape[1:]) ** -0.5
        return self.constant(self.random.normal(0, scale, shape))

    def around(self, mean, n):
        return self.constant(self.random.uniform(mean - 0.2, mean + 0.2, n))

    def model(self, name, inputs, outputs):
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.values)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet50(batch):
    """Convolutions, each followed by a batch normalization as in training."""
    g = Graph()

    def conv(x, inputs, outputs, size, stride=1, relu=True):
        pads = [size // 2] * 4
        x = g.add("Conv", x, g.weight(outputs, inputs, size, size), kernel_shape=[size, size], strides=[stride] * 2,
                  pads=pads)
        x = g.add("BatchNormalization", x, g.around(1, outputs), g.around(0, outputs), g.around(0, outputs),
                  g.around(1, outputs))
        return g.add("Relu", x) if relu else x

    x, width = conv("x", 3, 64, 7, 2), 64
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, blocks in enumerate([3, 4, 6, 3]):
        inner = 64 << stage
        for i in range(blocks):
            stride = 2 if stage and not i else 1
            y = conv(conv(x, width, inner, 1), inner, inner, 3, stride)
            y = conv(y, inner, 4 * inner, 1, relu=False)
            shortcut = conv(x, width, 4 * inner, 1, stride, relu=False) if not i else x
            x, width = g.add("Relu", g.add("Add", y, shortcut)), 4 * inner
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    g.nodes.append(helper.make_node("Gemm", [x, g.weight(1000, width), g.around(0, 1000)], ["y"], transB=1))
    model = g.model("resnet50", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 224, 224])],
                    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1000])])
    return model, {"x": g.random.normal(0, 1, (batch, 3, 224, 224)).astype(np.float32)}


def encoder(batch, layers=12, width=768, heads=12, length=128, words=1000):
    """The layers of BERT base, in the form in which PyTorch exports them."""
    g = Graph()
    half, one, root, root2 = (g.constant(v) for v in (0.5, 1.0, (width // heads) ** 0.5, 2 ** 0.5))
    split, joined = (g.constant(v, np.int64) for v in ([0, 0, heads, -1], [0, 0, width]))

    def linear(x, inputs, outputs):
        return g.add("Add", g.add("MatMul", x, g.weight(inputs, outputs, scale=inputs ** -0.5)), g.around(0, outputs))

    def norm(x):
        return g.add("LayerNormalization", x, g.around(1, width), g.around(0, width), axis=-1)

    x = norm(g.add("Gather", g.weight(words, width, scale=1), "tokens"))
    for _ in range(layers):
        q, k, v = (g.add("Transpose", g.add("Reshape", linear(x, width, width), split), perm=perm)
                   for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        p = g.add("Softmax", g.add("Div", g.add("MatMul", q, k), root), axis=-1)
        a = g.add("Reshape", g.add("Transpose", g.add("MatMul", p, v), perm=[0, 2, 1, 3]), joined)
        x = norm(g.add("Add", linear(a, width, width), x))
        f = linear(x, width, 4 * width)
        f = g.add("Mul", g.add("Mul", f, g.add("Add", g.add("Erf", g.add("Div", f, root2)), one)), half)
        x = norm(g.add("Add", linear(f, 4 * width, width), x))
    g.nodes.append(helper.make_node("Identity", [x], ["y"]))
    model = g.model("encoder", [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"])],
                    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", width])])
    return model, {"tokens": g.random.integers(0, words, (batch, length))}


MODELS = {"resnet50": resnet50, "encoder": encoder}


def random_inputs(model, batch):
    """Inputs of a file's model. Sizes that it leaves open are `batch`."""
    inputs = {}
    given = {v.name for v in model.graph.initializer}
    for v in model.graph.input:
        t = v.type.tensor_type
        shape = [d.dim_value or batch for d in t.shape.dim]
        if v.name not in given:
            dtype, rng = np.dtype(helper.tensor_dtype_to_np_dtype(t.elem_type)), np.random.default_rng(1)
            # Integers are often indices or masks, for which 0 and 1 are always valid.
            values = rng.normal(0, 1, shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            inputs[v.name] = values.astype(dtype)
    return inputs


def run(library, name, model, inputs, args):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    content = model.SerializeToString()
    peer = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    clock = time.process_time if args.threads == 1 else time.perf_counter
    least = [np.inf, np.inf]
    with Model(library, content) as ours:
        arrays = list(inputs.values())
        programs = [lambda: ours.run(arrays), lambda: peer.run(None, inputs)]
        for _ in range(3):
            got, expected = programs[0](), programs[1]()
        for _ in range(args.rounds):
            for k, program in enumerate(programs):
                time.sleep(0.05)  # threads of the other program spin for a while after their work
                begin = clock()
                program()
                least[k] = min(least[k], clock() - begin)
    error = max(np.max(np.abs(a.astype(np.float64) - b)) for a, b in zip(got, expected))
    largest = max(np.max(np.abs(b)) for b in expected)
    print(f"{name}, batch {args.batch}, {args.threads} threads: {1e3 * least[0]:.2f} ms, onnxruntime "
          f"{1e3 * least[1]:.2f} ms, relative speed {least[1] / least[0]:.2f}; "
          f"results differ by {error:.2g} of {largest:.2g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write")
    args = parser.parse_args()
    # The library starts as many threads as it has processors when it is loaded.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
    library = None if args.write else Library(args.library)
    for name in args.models:
        if name in MODELS:
            model, inputs = MODELS[name](args.batch)
        else:
            import onnx
            model = onnx.load(name)
            inputs = random_inputs(model, args.batch)
        if args.write:
            with open(os.path.join(args.write, f"{os.path.splitext(os.path.basename(name))[0]}.onnx"), "wb") as f:
                f.write(model.SerializeToString())
        else:
            run(library, name, model, inputs, args)


if __name__ == "__main__":
    main()
