"""PyTorch's version of the models of bench/models (bench/models.h). Reads the parameters from a file."""
import json, math, struct
import torch
import torch.nn.functional as F

def read_safetensors(path, device):
  """Returns the tensors by name. The file is the header's length in 8 bytes, the header as JSON, then the data."""
  types = {"F32": torch.float32, "I32": torch.int32}
  with open(path, "rb") as f:
    head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    data = bytearray(f.read())
  out = {}
  for name, t in head.items():
    if name == "__metadata__": continue
    begin, end = t["data_offsets"]
    flat = torch.frombuffer(data, dtype=types[t["dtype"]], count=(end - begin) // 4, offset=begin)
    out[name] = flat.reshape(t["shape"]).clone().to(device)
  return out

class Model:
  """The layers and models. They take parameters and statistics in the order in which the file numbers them."""
  def __init__(self, tensors):
    self.parameters = [tensors[f"p{i}"] for i in range(sum(k[0] == "p" for k in tensors))]
    self.statistics = [tensors[f"s{i}"] for i in range(sum(k[0] == "s" for k in tensors))]
    self.again()
  def again(self): self.next_parameter, self.next_statistic = iter(self.parameters), iter(self.statistics)
  def parameter(self): return next(self.next_parameter)

  def conv(self, x, stride, padding): return F.conv2d(x, self.parameter(), stride=stride, padding=padding)
  def batch_norm(self, x, train):
    scale, shift = self.parameter(), self.parameter()
    if train: return F.batch_norm(x, None, None, scale, shift, training=True)
    return F.batch_norm(x, next(self.next_statistic), next(self.next_statistic), scale, shift)
  def linear(self, x):
    weight, bias = self.parameter(), self.parameter()
    return torch.addmm(bias, x, weight)
  def layer_norm(self, x): return F.layer_norm(x, x.shape[-1:], self.parameter(), self.parameter())

  def digits(self, x, train):
    for _ in range(2):
      x = F.relu(self.conv(x, 1, 0))
      x = F.relu(self.conv(x, 1, 0))
      x = F.max_pool2d(self.batch_norm(x, train), 2)
    return self.linear(x.flatten(1))

  def conv_norm(self, x, kernel, stride, train): return self.batch_norm(self.conv(x, stride, kernel // 2), train)
  def resnet50(self, x, train):
    x = F.max_pool2d(F.relu(self.conv_norm(x, 7, 2, train)), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
      for i in range(blocks):
        stride = 2 if stage and not i else 1
        y = F.relu(self.conv_norm(x, 1, 1, train))
        y = F.relu(self.conv_norm(y, 3, stride, train))
        y = self.conv_norm(y, 1, 1, train)
        if not i: x = self.conv_norm(x, 1, stride, train)
        x = F.relu(y + x)
    weight, bias = self.parameter(), self.parameter()
    return F.linear(x.mean((2, 3)), weight, bias)

  def split(self, qkv): return (t.unflatten(1, (12, 64)).transpose(0, 1)[None] for t in qkv.split(768, 1))
  def gpt2(self, tokens):
    words, places = self.parameter(), self.parameter()
    x = F.embedding(tokens, words) + places[:len(tokens)]
    for _ in range(12):
      q, k, v = self.split(self.linear(self.layer_norm(x)))
      y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
      x = x + self.linear(y[0].transpose(0, 1).flatten(1))
      x = x + self.linear(F.gelu(self.linear(self.layer_norm(x)), approximate="tanh"))
    return F.linear(self.layer_norm(x), words)
  def gpt2_decode(self, token, cache, at):
    words, places = self.parameter(), self.parameter()
    x = F.embedding(token, words) + places[at:at + 1]
    for keys, values in cache:
      q, k, v = self.split(self.linear(self.layer_norm(x)))
      keys[:, :, at:at + 1], values[:, :, at:at + 1] = k, v
      y = F.scaled_dot_product_attention(q, keys[:, :, :at + 1], values[:, :, :at + 1])
      x = x + self.linear(y[0].transpose(0, 1).flatten(1))
      x = x + self.linear(F.gelu(self.linear(self.layer_norm(x)), approximate="tanh"))
    return F.linear(self.layer_norm(x), words)

def make(program, path, device):
  """Returns a function that runs the program once and returns the tensor to compare: its loss or its logits."""
  tensors = read_safetensors(path, device)
  m, x, y = Model(tensors), tensors["x"], tensors["y"].long() if "y" in tensors else None
  if program == "gpt2-decode":
    cache, at = [[torch.zeros(1, 12, 1024, 64, device=device) for _ in range(2)] for _ in range(12)], 510
    def decode():
      nonlocal at
      m.again()
      at = at + 1 if at < 1023 else 512
      with torch.no_grad(): return m.gpt2_decode(x, cache, at)
    return decode
  forward = {"digits": m.digits, "resnet50": m.resnet50, "gpt2": lambda x, train: m.gpt2(x)}[program.split("-")[0]]
  if not program.endswith("-step"):
    def infer():
      m.again()
      with torch.no_grad(): return forward(x, False)
    return infer
  for p in m.parameters: p.requires_grad_()
  optimizers = {"digits": lambda p: torch.optim.Adam(p, lr=1e-3),
                "gpt2": lambda p: torch.optim.AdamW(p, lr=1e-4, weight_decay=0.01),
                "resnet50": lambda p: torch.optim.SGD(p, lr=1e-5, momentum=0.9)}
  optimizer = optimizers[program.split("-")[0]](m.parameters)
  def step():
    m.again()
    with torch.enable_grad(): loss = F.cross_entropy(forward(x, True), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
  return step
