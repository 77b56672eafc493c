"""libdoorbell.so through ctypes, as far as the tests of ONNX need it."""
import ctypes
import os

import numpy as np

try:
    import ml_dtypes
    EXTRA = {"bfloat16": 11, "float8_e4m3fn": 14, "float8_e5m2": 15}
    SMALL = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8",  # held in tensors of other types
             **dict.fromkeys(["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "float6_e2m3fn",
                              "float6_e3m2fn"], "float32")}
except ImportError:
    ml_dtypes, EXTRA, SMALL = None, {}, {}

# Values of enum db_dtype.
DTYPES = {"bool": 1, "int8": 2, "uint8": 3, "int16": 4, "uint16": 5, "int32": 6, "uint32": 7, "int64": 8, "uint64": 9,
          "float16": 10, "float32": 12, "float64": 13, **EXTRA}
NAMES = {number: name for name, number in DTYPES.items()}


class List(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint), ("v", ctypes.POINTER(ctypes.c_int64))]


class Failed(Exception):
    """A function of the library returned an error; the text is db_error()."""


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(os.path.abspath(path))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, args in [
                ("db_error", text, []), ("db_onnx_load", pointer, [text, pointer]),
                ("db_onnx_parse", pointer, [pointer, ctypes.c_size_t, text, pointer]),
                ("db_onnx_free", None, [pointer]), ("db_onnx_inputs", ctypes.c_uint, [pointer]),
                ("db_onnx_outputs", ctypes.c_uint, [pointer]),
                ("db_onnx_run", ctypes.c_int, [pointer, pointer, pointer]),
                ("db_from_at", pointer, [text, ctypes.c_int, pointer, ctypes.c_int, pointer, List]),
                ("db_rank", ctypes.c_uint, [pointer]), ("db_dim", ctypes.c_int64, [pointer, ctypes.c_int]),
                ("db_dtype_of", ctypes.c_int, [pointer]),
                ("db_read", ctypes.c_int, [pointer, pointer, ctypes.c_size_t]),
                ("db_scope_begin", None, []), ("db_scope_end", None, [])]:
            f = getattr(self.c, name)
            f.restype, f.argtypes = result, args

    def fail(self):
        raise Failed(self.c.db_error().decode(errors="replace"))

    def tensor(self, array):
        name = array.dtype.name
        if name in SMALL:
            array = array.astype(SMALL[name])
        if array.dtype.name not in DTYPES:
            raise Failed(f"elements of type {name}")
        array = np.asarray(array, order="C")
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        return self.c.db_from_at(b"test", 0, array.ctypes.data, DTYPES[array.dtype.name], None,
                                 List(array.ndim, shape))

    def array(self, tensor):
        name = NAMES[self.c.db_dtype_of(tensor)]
        dtype = np.dtype(getattr(ml_dtypes, name)) if name in EXTRA else np.dtype(name)
        out = np.empty([self.c.db_dim(tensor, i) for i in range(self.c.db_rank(tensor))], dtype)
        if self.c.db_read(tensor, out.ctypes.data, out.nbytes):
            self.fail()
        return out


class Model:
    """A loaded model; `with` frees it."""

    def __init__(self, library, content, folder=None):
        self.library, self.c = library, library.c
        self.handle = self.c.db_onnx_parse(content, len(content), folder and folder.encode(), None)
        if not self.handle:
            library.fail()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.db_onnx_free(self.handle)

    def run(self, arrays):
        self.c.db_scope_begin()
        try:
            count = self.c.db_onnx_outputs(self.handle)
            tensors = (ctypes.c_void_p * max(len(arrays), 1))(*[self.library.tensor(a) for a in arrays])
            out = (ctypes.c_void_p * max(count, 1))()
            if len(arrays) != self.c.db_onnx_inputs(self.handle):
                raise Failed(f"the model has {self.c.db_onnx_inputs(self.handle)} inputs, the test {len(arrays)}")
            if self.c.db_onnx_run(self.handle, tensors, out):
                self.library.fail()
            return [self.library.array(out[i]) for i in range(count)]
        finally:
            self.c.db_scope_end()
