"""PyTorch's version of the cases of bench/kernels (bench/speed/ops.c) and bench/models. Answers each line of standard
input with a line:
  case OP DTYPE NUMBERS...  prepares a case of bench/kernels
  model PROGRAM FILE        prepares a model, with the parameters in FILE
  run N                     runs it N times and answers with the seconds
  values N                  runs it once and answers with N elements of the result, evenly spaced"""
import sys, time
sys.dont_write_bytecode = True
try:
  import torch
  import torch.nn.functional as F
except ImportError:
  print("not here: PyTorch (pip install torch)", flush=True)
  sys.exit(0)

device, threads = sys.argv[1], int(sys.argv[2])
clock = time.process_time if sys.argv[3] == "cpu-time" else time.perf_counter
torch.set_num_threads(threads)
torch.set_grad_enabled(False)
if device == "cuda" and not torch.cuda.is_available():
  print("not here: PyTorch with CUDA", flush=True)
  sys.exit(0)

dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

def new(dtype, *shape): return (torch.rand(*shape, device=device) * 2 - 1).to(dtype)

def matmul(t, batch, m, n, k, ta, tb, *_):
  lead = (batch,) if batch > 1 else ()
  a, b = new(t, *lead, *((k, m) if ta else (m, k))), new(t, *lead, *((n, k) if tb else (k, n)))
  a, b, out = a.transpose(-1, -2) if ta else a, b.transpose(-1, -2) if tb else b, new(t, *lead, m, n)
  return lambda: torch.matmul(a, b, out=out)
def conv(t, batch, cin, size, cout, kernel, stride, groups, *_):
  groups = groups or 1
  x, w = new(t, batch, cin, size, size), new(t, cout, cin // groups, kernel, kernel)
  return lambda: F.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)
def conv_gradient(which, t, batch, cin, size, cout, kernel, stride, groups, *_):
  groups, pad = groups or 1, kernel // 2
  out = (size + 2 * pad - kernel) // stride + 1
  x, w, dy = new(t, batch, cin, size, size), new(t, cout, cin // groups, kernel, kernel), new(t, batch, cout, out, out)
  return lambda: torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0],
                                                     groups, [which == 0, which == 1, False])[which]
def conv_dx(*case): return conv_gradient(0, *case)
def conv_dw(*case): return conv_gradient(1, *case)
def max_pool(t, batch, channels, size, kernel, stride, *_):
  x = new(t, batch, channels, size, size)
  return lambda: F.max_pool2d(x, kernel, stride, (kernel - 1) // 2)
def max_pool_back(t, batch, channels, size, kernel, stride, *_):
  x = new(t, batch, channels, size, size).requires_grad_(True)
  dy = new(t, *F.max_pool2d(x, kernel, stride, (kernel - 1) // 2).shape)
  def step():
    with torch.enable_grad():
      return torch.autograd.grad(F.max_pool2d(x, kernel, stride, (kernel - 1) // 2), x, dy)[0]
  return step
def sort(t, rows, cols, *_):
  x = new(t, rows, cols)
  return lambda: torch.sort(x, -1)[0]
def topk(t, rows, cols, k, *_):
  x = new(t, rows, cols)
  return lambda: torch.topk(x, min(k, cols))[0]
def cumsum(t, rows, cols, *_):
  x, out = new(t, rows, cols), new(t, rows, cols)
  return lambda: torch.cumsum(x, 1, out=out)
def attention(t, heads, length, width, causal, *_):
  q, k, v = (new(t, 1, heads, length, width) for _ in range(3))
  return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
def attention_back(t, heads, length, width, causal, *_):
  q, k, v, dy = (new(t, 1, heads, length, width) for _ in range(4))
  for x in (q, k, v): x.requires_grad_(True)
  def step():
    with torch.enable_grad():
      y = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
      return torch.autograd.grad(y, (q, k, v), dy)[0]
  return step
def softmax(t, rows, cols, *_):
  x, out = new(t, rows, cols), new(t, rows, cols)
  return lambda: torch.softmax(x, -1, out=out)
def layer_norm(t, rows, cols, *_):
  x, w, b = new(t, rows, cols), new(t, cols), new(t, cols)
  return lambda: F.layer_norm(x, (cols,), w, b)
def batch_norm(t, n, c, h, w, *_):
  x, scale, shift = new(t, n, c, h, w), new(t, c), new(t, c)
  return lambda: F.batch_norm(x, None, None, scale, shift, training=True)
def gelu(t, rows, cols, *_):
  x = new(t, rows, cols)
  return lambda: F.gelu(x, approximate="tanh")
def exp2(t, rows, cols, *_):
  x, out = new(t, rows, cols), new(t, rows, cols)
  return lambda: torch.exp2(x, out=out)
def sum(t, rows, cols, axis, *_):
  x = new(t, rows, cols)
  return (lambda: torch.sum(x)) if axis < 0 else lambda: torch.sum(x, axis)
def add(t, rows, cols, *_):
  x, y, out = new(t, rows, cols), new(t, rows, cols), new(t, rows, cols)
  return lambda: torch.add(x, y, out=out)
def scale(t, rows, cols, *_):
  x = new(t, rows, cols)
  return lambda: F.relu_(x * 2.5 + 0.5)
def transpose(t, rows, cols, *_):
  x, out = new(t, rows, cols), new(t, cols, rows)
  return lambda: out.copy_(x.t())

ops = {f.__name__: f for f in (matmul, conv, conv_dx, conv_dw, attention, attention_back, softmax, layer_norm,
                               batch_norm, gelu, exp2, sum, add, scale, transpose, max_pool, max_pool_back, sort, topk,
                               cumsum)}
run = None
def synchronize():
  if device == "cuda": torch.cuda.synchronize()

def answer(words):
  global run
  if words[0] == "hello":
    how = "" if device == "cpu" else " on " + torch.cuda.get_device_name()
    return f"{torch.__version__}{how}, {torch.get_num_threads()} threads"
  if words[0] == "case":
    run = None
    run = ops[words[1]](dtypes[words[2]], *map(int, words[3:]))
    run()
    synchronize()
    return "ok"
  if words[0] == "model":
    import torch_models
    run = None
    run = torch_models.make(words[1], words[2], device)
    return "ok"
  if words[0] == "values":
    x, n = run().flatten(), int(words[1])
    return " ".join(repr(x[i * (len(x) - 1) // max(n - 1, 1)].item()) for i in range(n))
  start = clock()
  for _ in range(int(words[1])): run()
  synchronize()
  return repr(clock() - start)

for line in sys.stdin:
  try: text = answer(line.split())
  except Exception as e: text = "no " + str(e).split("\n")[0]
  print(text, flush=True)
