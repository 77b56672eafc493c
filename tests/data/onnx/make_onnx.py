"""Writes the models of tests/frontend/test_onnx.c and of fuzz_onnx, each with a .npz of inputs (in:NAME) and the
outputs (out:NAME) that the reference implementation of the `onnx` package computes. Needs PyPI's onnx 1.23 and NumPy.
"""
import contextlib
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FOLDER = os.path.dirname(os.path.abspath(__file__))
SEEDS = os.path.join(FOLDER, "..", "..", "fuzz", "seeds", "fuzz_onnx")
random = np.random.default_rng(16)
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def weight(name, *shape):
    return numpy_helper.from_array(random.normal(0, 0.5, shape).astype(np.float32), name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def port(name, shape, element=F32):
    return helper.make_tensor_value_info(name, element, shape)


def held(array):
    """Values of FLOAT4E2M1 as f32."""
    return array.astype(np.float32) if array.dtype.name == "float4_e2m1fn" else array


def save(name, nodes, inputs, outputs, initializers, arrays, opset=17, external=False):
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, producer_name="test")
    onnx.checker.check_model(model)
    expected = ReferenceEvaluator(model).run(None, arrays)
    path = os.path.join(FOLDER, f"{name}.onnx")
    if external:
        with contextlib.suppress(FileNotFoundError):  # onnx appends to a file that exists
            os.remove(os.path.join(FOLDER, f"{name}.data"))
        onnx.save(model, path, save_as_external_data=True, location=f"{name}.data", size_threshold=0)
    else:
        onnx.save(model, path)
        with open(os.path.join(SEEDS, name), "wb") as f:
            f.write(model.SerializeToString())
    np.savez(os.path.join(FOLDER, f"{name}.npz"), **{f"in:{k}": held(v) for k, v in arrays.items()},
             **{f"out:{p.name}": held(np.asarray(v)) for p, v in zip(outputs, expected)})


def block():
    """A residual block of a convolutional network, with a classifier."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "scale", "bias", "mean", "var"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=4),
        node("Add", ["c2", "p1"], ["sum"]),
        node("GlobalAveragePool", ["sum"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
        node("Softmax", ["y"], ["probabilities"], axis=-1)]
    values = [weight("w1", 4, 3, 3, 3), weight("b1", 4), weight("w2", 4, 1, 3, 3), weight("w3", 5, 4), weight("b3", 5),
              weight("scale", 4), weight("bias", 4), weight("mean", 4),
              numpy_helper.from_array(np.full(4, 0.75, np.float32), "var")]
    x = random.normal(0, 1, (2, 3, 9, 9)).astype(np.float32)
    save("block", nodes, [port("x", ["batch", 3, 9, 9])], [port("probabilities", ["batch", 5]), port("sum", ["batch", 4, 5, 5])],
         values, {"x": x})


def encoder():
    """Self-attention with an embedding; shapes are computed from the input's shape, as exporters write them."""
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "tokens"], ["e"]),
        node("Shape", ["tokens"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Unsqueeze", ["batch", "axis0"], ["batch1"]),
        node("Unsqueeze", ["length", "axis0"], ["length1"]),
        node("Concat", ["batch1", "length1", "heads"], ["split_shape"], axis=0),
        node("Concat", ["batch1", "length1", "width"], ["joined_shape"], axis=0),
        node("Range", ["zero", "length", "one"], ["range"]),
        node("Gather", ["places", "range"], ["place"]),
        node("Add", ["e", "place"], ["h"])]
    for name in "qkv":
        nodes += [node("MatMul", ["h", f"w{name}"], [f"{name}0"]),
                  node("Reshape", [f"{name}0", "split_shape"], [f"{name}1"]),
                  node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [
        node("MatMul", ["q", "k"], ["scores0"]),
        node("Div", ["scores0", "root"], ["scores1"]),
        node("Cast", ["mask"], ["seen"], to=BOOL),
        node("Unsqueeze", ["seen", "axes12"], ["seen4"]),
        node("Where", ["seen4", "scores1", "least"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["a0"]),
        node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["a1", "joined_shape"], ["a2"]),
        node("Add", ["a2", "h"], ["a3"]),
        node("LayerNormalization", ["a3", "gamma", "beta"], ["n"], axis=-1),
        node("MatMul", ["n", "wf"], ["f0"]),
        node("Div", ["f0", "sqrt2"], ["f1"]), node("Erf", ["f1"], ["f2"]), node("Add", ["f2", "unit"], ["f3"]),
        node("Mul", ["f0", "f3"], ["f4"]), node("Mul", ["f4", "half"], ["y"])]
    values = [weight("words", 11, 8), weight("places", 16, 8), weight("wq", 8, 8), weight("wk", 8, 8),
              weight("wv", 8, 8), weight("gamma", 8), weight("beta", 8), weight("wf", 8, 12),
              numpy_helper.from_array(np.array(0, np.int64), "zero"),
              numpy_helper.from_array(np.array(1, np.int64), "one"), ints("axis0", 0), ints("heads", 2, 4),
              ints("width", 8), ints("axes12", 1, 2)]
    values += [numpy_helper.from_array(np.array(v, np.float32), n)
               for n, v in [("root", 2), ("least", -1e4), ("sqrt2", np.sqrt(2)), ("unit", 1), ("half", 0.5)]]
    tokens = random.integers(0, 11, (2, 5))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int64)
    save("encoder", nodes, [port("tokens", ["batch", "length"], I64), port("mask", ["batch", "length"], I64)],
         [port("y", ["batch", "length", 12])], values, {"tokens": tokens, "mask": mask})


def loop():
    """A Loop of three repetitions with a state and a collected result, and an If with a constant condition."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["state", "w"], ["scaled"]), helper.make_node("Tanh", ["scaled"], ["next"]),
         helper.make_node("Identity", ["more"], ["still"])],
        "body", [port("i", [], I64), port("more", [], BOOL), port("state", [4])],
        [port("still", [], BOOL), port("next", [4]), port("scaled", [4])])
    then = helper.make_graph([helper.make_node("Add", ["last", "x"], ["a"])], "then", [], [port("a", [4])])
    other = helper.make_graph([helper.make_node("Sub", ["last", "x"], ["s"])], "else", [], [port("s", [4])])
    true = numpy_helper.from_array(np.array(True), "true")
    save("loop", [helper.make_node("Loop", ["three", "true", "x"], ["last", "all"], body=body),
                  helper.make_node("If", ["true"], ["y"], then_branch=then, else_branch=other)],
         [port("x", [4])], [port("y", [4]), port("all", [3, 4])],
         [weight("w", 4), numpy_helper.from_array(np.array(3, np.int64), "three"), true],
         {"x": random.normal(0, 1, 4).astype(np.float32)})


def dynamic():
    """The shape of the output depends on values of the input."""
    save("dynamic", [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Transpose", ["at"], ["rows"]),
                     helper.make_node("GatherND", ["x", "rows"], ["y"])],
         [port("x", [3, 3])], [port("y", ["count"])], [],
         {"x": np.array([[0, 2, 0], [3, 0, 0], [0, 0, 4]], np.float32)})


def branches():
    """Constants and sizes that depend on values of the input, so that they change from run to run."""
    branch = [helper.make_graph([helper.make_node("Constant", [], [f"c{value}"], value_float=value)], f"of{value}", [],
                                [port(f"c{value}", [])]) for value in (1.0, 2.0)]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    save("branches", [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
                      helper.make_node("Greater", ["sum", "zero"], ["positive"]),
                      helper.make_node("If", ["positive"], ["y"], then_branch=branch[0], else_branch=branch[1]),
                      helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Size", ["at"], ["count"])],
         [port("x", [3])], [port("y", []), port("count", [], I64)], [zero],
         {"x": np.array([1, 2, 0], np.float32)})


def quantized():
    """Weights of 8 bits for each channel, and a product of integers."""
    scale = numpy_helper.from_array(np.array([0.5, 0.25, 0.125, 1], np.float32), "scale")
    bytes_ = numpy_helper.from_array(random.integers(-128, 128, (6, 4)).astype(np.int8), "w8")
    zero = numpy_helper.from_array(np.array([0, 1, -2, 3], np.int8), "zero")
    save("quantized", [helper.make_node("DequantizeLinear", ["w8", "scale", "zero"], ["w"], axis=1),
                       helper.make_node("MatMul", ["x", "w"], ["y"]),
                       helper.make_node("DynamicQuantizeLinear", ["x"], ["x8", "s", "z"]),
                       helper.make_node("MatMulInteger", ["x8", "w8", "z"], ["n"])],
         [port("x", [3, 6])], [port("y", [3, 4]), port("n", [3, 4], TensorProto.INT32)], [scale, bytes_, zero],
         {"x": random.normal(0, 1, (3, 6)).astype(np.float32)}, opset=21)


def narrow():
    """Floats of 4, 6 and 8 bits: all values as constants, in both fields of the format, and casts to them. Values of
    type T are cast to f32, and NaN is made 99. The last one is a cast like a value that is computed."""
    node = helper.make_node
    names = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT6E3M2",
             "FLOAT8E8M0"]
    nodes, constants, outputs = [], [numpy_helper.from_array(np.array(99, np.float32), "n99")], []

    def result(name, shape):
        nodes.extend([node("Cast", [name], [name + "w"], to=F32), node("IsNaN", [name + "w"], [name + "n"]),
                      node("Where", [name + "n", "n99", name + "w"], [name + "f"])])
        outputs.append(port(name + "f", [shape]))

    x = random.normal(0, 1, 61) * 2.0 ** random.integers(-20, 17, 61)
    x = np.concatenate([x, [0, -0.0, 5, -2.5, 0.25, 1e-30, 240, 248, 464, 61440, -1e9, np.inf, -np.inf]]).astype(np.float32)
    for name in names:
        t, bits = getattr(TensorProto, name), {"4": 4, "6": 6, "8": 8}[name[5]]
        codes = np.arange(2**bits - 3, dtype=np.uint8)
        array = codes.view(helper.tensor_dtype_to_np_dtype(t))
        constants.append(numpy_helper.from_array(array, f"{name}_raw"))
        pairs = np.append(codes, 0).astype(np.uint8)
        packed = pairs[::2] | pairs[1::2] << 4 if bits == 4 else codes
        constants.append(TensorProto(name=f"{name}_typed", data_type=t, dims=[codes.size], int32_data=packed.tolist()))
        result(f"{name}_raw", codes.size)
        result(f"{name}_typed", codes.size)
        if name == "FLOAT8E8M0":
            for mode in ("up", "down", "nearest"):
                nodes.append(node("Cast", ["powers"], [mode], to=t, round_mode=mode))
                result(mode, "n")
            continue
        nodes.extend([node("Cast", ["x"], [f"{name}_cast"], to=t),
                      node("QuantizeLinear", ["x", "scale", f"{name}_raw0"], [f"{name}_q"])])
        constants.append(numpy_helper.from_array(array[:1].reshape(()), f"{name}_raw0"))
        result(f"{name}_cast", x.size)
        result(f"{name}_q", x.size)
        if bits == 8:
            nodes.append(node("Cast", ["x"], [f"{name}_over"], to=t, saturate=0))
            result(f"{name}_over", x.size)
    constants.append(numpy_helper.from_array(np.array(0.75, np.float32), "scale"))
    nodes.extend([node("Reshape", ["FLOAT4E2M1_cast", "minus1"], ["flat"]), node("CastLike", ["x", "flat"], ["like"]),
                  node("DequantizeLinear", ["like", "two_powers"], ["y"], output_dtype=F32),
                  node("Transpose", ["fours"], ["turned"])])
    constants.extend([ints("minus1", -1), TensorProto(name="two_powers", data_type=TensorProto.FLOAT8E8M0, int32_data=[130])])
    powers = np.array([1, 1.1, 1.5, 1.6, 3, 0.74, 2.0**-126, 3e38, 7e-12, np.nan], np.float32)
    fours = np.arange(6, dtype=np.uint8).reshape(2, 3).view(helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT4E2M1))
    save("narrow", nodes, [port("x", [x.size]), port("powers", ["n"]), port("fours", [2, 3], TensorProto.FLOAT4E2M1)],
         [*outputs, port("y", [x.size]), port("turned", [3, 2], TensorProto.FLOAT4E2M1)], constants,
         {"x": x, "powers": powers, "fours": fours}, opset=28)


def external():
    save("external", [helper.make_node("MatMul", ["x", "w"], ["y0"]), helper.make_node("Add", ["y0", "b"], ["y"])],
         [port("x", [2, 5])], [port("y", [2, 3])], [weight("w", 5, 3), weight("b", 3)],
         {"x": random.normal(0, 1, (2, 5)).astype(np.float32)}, external=True)


def folded():
    """Products followed by constants of each channel, of which some are also used elsewhere."""
    node = helper.make_node
    values = [weight("w1", 6, 4, 3, 3), weight("b1", 6), weight("w2", 6, 3, 3, 3), weight("w3", 6, 6, 1, 1),
              weight("wg", 5, 6), weight("bg", 5), weight("wm", 5, 7), weight("line", 3, 4, 3),
              weight("factor", 6, 1, 1), weight("addend", 1, 6, 1, 1), weight("slope", 6, 1, 1), weight("columns", 7),
              weight("shift", 1, 7), weight("lines", 3, 1), numpy_helper.from_array(np.float32(0.5), "half")]

    def norm(x, y, channels):
        names = [f"{y}_{k}" for k in ("scale", "bias", "mean", "var")]
        values.extend(weight(k, channels) for k in names[:3])
        values.append(numpy_helper.from_array(random.uniform(0.5, 2, channels).astype(np.float32), names[3]))
        return node("BatchNormalization", [x, *names], [y], epsilon=1e-3)

    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]), norm("c1", "n1", 6),
        node("Mul", ["factor", "n1"], ["m1"]), node("Sub", ["m1", "addend"], ["s1"]),
        node("PRelu", ["s1", "slope"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2], group=2), norm("c2", "n2", 6),
        node("Mul", ["c2", "n2"], ["m2"]),
        node("Conv", ["m2", "w3"], ["c3"]), node("Div", ["half", "c3"], ["d3"]), node("Clip", ["d3"], ["clip"]),
        node("Concat", ["m2", "clip"], ["both"], axis=1),
        node("AveragePool", ["m2"], ["pool"], kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2]),
        node("GlobalMaxPool", ["pool"], ["g"]), node("Flatten", ["g"], ["flat"]),
        node("Gemm", ["flat", "wg", "bg"], ["y0"], transB=1), norm("y0", "y1", 5),
        node("MatMul", ["y1", "wm"], ["y2"]), node("Div", ["y2", "columns"], ["y3"]),
        node("Sub", ["y3", "shift"], ["y"]),
        node("Conv", ["t", "line"], ["l0"], dilations=[2]), node("Add", ["lines", "l0"], ["l1"]),
        node("Mul", ["l1", "half"], ["l"])]
    save("folded", nodes, [port("x", ["batch", 4, 7, 5]), port("t", [2, 4, 9])],
         [port("y", ["batch", 7]), port("both", ["batch", 12, 4, 3]), port("l", [2, 3, 5])], values,
         {"x": random.normal(0, 1, (2, 4, 7, 5)).astype(np.float32),
          "t": random.normal(0, 1, (2, 4, 9)).astype(np.float32)})


def samples():
    """Images that are read between their elements. RoiAlign reads the sizes of its boxes, so this is not captured."""
    node = helper.make_node
    boxes = numpy_helper.from_array(np.array([[0, 0, 5, 4], [1.5, 0.5, 9, 7], [2, 2, 2, 2]], np.float32), "boxes")
    nodes = [
        node("GridSample", ["x", "grid"], ["cubic"], mode="cubic", padding_mode="reflection"),
        node("GridSample", ["x", "grid"], ["linear"], padding_mode="border", align_corners=1),
        node("Add", ["boxes", "shift"], ["moved"]),
        node("RoiAlign", ["x", "moved", "index"], ["cells"], output_height=2, output_width=3, spatial_scale=0.75),
        node("RoiAlign", ["x", "boxes", "index"], ["most"], output_height=2, output_width=2, mode="max",
             sampling_ratio=2),
        node("GridSample", ["x", "grid"], ["edge"], mode="cubic", padding_mode="border"),
        node("GridSample", ["infinite", "beside"], ["zeros"]),
        node("RoiAlign", ["infinite", "box", "first"], ["largest"], output_height=2, output_width=2, mode="max"),
        node("RoiAlign", ["wide", "wide_box", "first"], ["wide_mean"], output_height=2, output_width=2),
        node("DeformConv", ["x", "w", "offset", "b"], ["bent"], pads=[1, 0, 1, 0], strides=[2, 1], offset_group=2)]
    x = random.normal(0, 1, (2, 4, 6, 5)).astype(np.float32)
    infinite = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    infinite[0, 0, 0, 0] = np.inf
    box = np.array([[0.7, 0.8, 3.4, 3.3]])
    values = {"infinite": infinite, "beside": np.array([[[[-3, -3], [-3, 0.5], [0.3, 0.4]]]], np.float32),
              "box": box.astype(np.float32), "wide": 1e200 * infinite[:, :, 2:].astype(np.float64), "wide_box": box}
    save("samples", nodes, [port("x", list(x.shape)), port("grid", [2, 3, 3, 2]), port("shift", [])],
         [port("cubic", [2, 4, 3, 3]), port("linear", [2, 4, 3, 3]), port("cells", [3, 4, 2, 3]),
          port("most", [3, 4, 2, 2]), port("bent", [2, 3, 3, 4]), port("edge", [2, 4, 3, 3]),
          port("zeros", [1, 1, 1, 3]), port("largest", [1, 1, 2, 2]),
          port("wide_mean", [1, 1, 2, 2], TensorProto.DOUBLE)],
         [*(numpy_helper.from_array(v, k) for k, v in values.items()), ints("first", 0), boxes,
          ints("index", 0, 1, 1), weight("w", 3, 4, 3, 2), weight("offset", 2, 24, 3, 4), weight("b", 3)],
         {"x": x, "grid": random.uniform(-1.6, 1.6, (2, 3, 3, 2)).astype(np.float32),
          "shift": np.array(0.25, np.float32)}, opset=20)


def attention():
    """Grouped queries with a cache, a mask and a window, and linear attention after them."""
    node = helper.make_node
    mask = numpy_helper.from_array(random.integers(0, 2, (3, 5)) > 0, "mask")
    # Products of these queries and keys exceed f16 before they are scaled.
    signs = np.array([[1 - 2 * (bin(i & j).count("1") % 2) for j in range(16)] for i in range(3)])
    large = numpy_helper.from_array((100 * signs).astype(np.float16).reshape(1, 1, 3, 16), "large")
    narrow = numpy_helper.from_array(random.normal(0, 1, (1, 1, 3, 4)).astype(np.float16), "narrow")
    x = random.normal(0, 1, (1, 2, 4)).astype(np.float32)
    nodes = [
        node("Attention", ["large", "large", "narrow"], ["half"]),
        node("CausalConvWithState", ["x", "taps", "", "before"], ["causal", "after"]),
        node("Attention", ["q", "k", "v", "mask", "past_k", "past_v"], ["a", "all_k", "all_v"], q_num_heads=4,
             kv_num_heads=2, is_causal=1, softcap=2.0, left_window_size=2),
        node("LinearAttention", ["a", "k", "v", "", "decay", "beta"], ["y", "state"], q_num_heads=4, kv_num_heads=2)]
    shapes = {"q": (2, 3, 24), "k": (2, 3, 12), "v": (2, 3, 12), "past_k": (2, 2, 2, 6), "past_v": (2, 2, 2, 6),
              "decay": (2, 3, 2), "beta": (2, 3, 2)}
    save("attention", nodes, [port(k, list(v)) for k, v in shapes.items()],
         [port("a", [2, 3, 24]), port("all_k", [2, 2, 5, 6]), port("y", [2, 3, 24]), port("state", [2, 2, 6, 6]),
          port("half", [1, 1, 3, 4], TensorProto.FLOAT16), port("causal", [1, 2, 4]), port("after", [1, 2, 2])],
         [mask, large, narrow, weight("taps", 2, 1, 3), weight("before", 1, 2, 2), numpy_helper.from_array(x, "x")],
         {k: random.normal(-0.5, 1, v).astype(np.float32) for k, v in shapes.items()}, opset=27)


def same_name():
    """A seed only: two products whose results have one name, which is an error, are followed by one factor."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y0"]), helper.make_node("MatMul", ["x", "v"], ["y0"]),
             helper.make_node("Mul", ["y0", "factor"], ["y"])]
    graph = helper.make_graph(nodes, "same_name", [port("x", [2, 2])], [port("y", [2, 2])],
                              [weight("w", 2, 2), weight("v", 2, 2), weight("factor", 2)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="test")
    with open(os.path.join(SEEDS, "same_name"), "wb") as f:
        f.write(model.SerializeToString())


os.makedirs(SEEDS, exist_ok=True)
for make in (block, encoder, loop, dynamic, quantized, external, branches, folded, samples,
             attention, same_name, narrow):
    make()
