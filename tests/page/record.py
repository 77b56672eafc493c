"""Records and data of pages for the tests: a training on two devices, hostile names, and a million events."""
import base64
import json
import os
import random
import re
import subprocess
import zlib

EVIL = "</script><img src=x onerror=window.hurt=1>"
# Names and sizes of the training's kernels: operations and bytes of a launch, nanoseconds, registers, local memory.
KERNELS = [("r_512_32_4_768", 2.4e9, 9.4e6, 90000, 96, 16384), ("r_512_12_64_64", 8.1e8, 6.3e6, 60000, 144, 32768),
           ("E_4096_32_3", 1.2e6, 1.6e7, 21000, 24, 0), ("r_1024_256_4", 4.0e6, 8.4e6, 14000, 40, 2048),
           (EVIL, 1e3, 1e4, 3000, 16, 0)]
PEAKS = {"rates": [{"name": "f32", "flops": 5.2e13}, {"name": "f16 matrix", "flops": 1.1e14},
                   {"name": "bf16 matrix", "flops": 1.09e14}, {"name": "f16", "flops": 1.04e14},
                   {"name": "i32", "flops": 1.0e11}, {"name": "f64", "flops": 1.01e11},
                   {"name": "f64 matrix", "flops": 1.02e11}],
         "levels": [{"name": "16 KiB", "bytes": 16384, "bandwidth": 4e12},
                    {"name": "1 GiB", "bytes": 1 << 30, "bandwidth": 8.2e11}],
         "launch_s": 4e-6, "copy_s": 6e-6, "copy_bandwidth": 2.4e10}


def training_lines(steps):
    """The lines of a record: `steps` training steps on two GPUs."""
    at = 10 ** 12
    yield {"type": "process", "version": 1, "pid": 7, "rank": -1, "pass": 0, "begin_ns": at,
           "command": ["./train", EVIL]}
    for i in range(2):
        yield {"type": "device", "id": i, "name": f"AMD:{i}", "arch": "gfx1100", "description": "a GPU"}
        for k, (name, flops, size, _, registers, local) in enumerate(KERNELS):
            yield {"type": "kernel", "id": i * len(KERNELS) + k, "device": i, "name": name, "grid": [512, 1, 1],
                   "block": [256, 1, 1], "flops": flops, "bytes": size, "registers": registers, "local_bytes": local,
                   "private_bytes": 0, "wave": 32}
    yield from code_lines()
    yield from step_lines(at, steps)
    yield {"type": "counts", "device": 0, "name": KERNELS[0][0], "begin_ns": at, "end_ns": at + 90000, "passes": 1,
           "check": 1, "counters": [
               {"name": "SQ_WAVES", "unit": "waves", "source": "exact", "instances": 6, "value": 4096},
               {"name": "SQ_INSTS_VALU", "unit": "instructions", "source": "exact", "instances": 6, "value": 819200}]}
    yield {"type": "end", "at_ns": at + 10 ** 6 + steps * 10 ** 6}


def code_lines():
    texts = {"shape": "r_512_768", "axes": "loop a:512, reduce b:768", "plan": "upcast a:4; group b:32",
             "graph": "0 CONST index 512\n1 RANGE index a", "c": "void k(float *restrict a) {\n  a[0] = 1;\n}",
             "linear": "0 RANGE",
             "rewrites": "plan\tgraph/rules/fold.rules:7\t(ADD x 0) => x\ta + 0\ta\n12\n",
             "assembly": "  0: s_load_b64 s[0:1], s[4:5], 0x0\n  8: s_endpgm"}
    yield {"type": "code", "device": 0, "name": KERNELS[0][0], "texts": texts}
    yield {"type": "lines", "device": 0, "name": KERNELS[0][0], "source": "Thread trace of the last launch.",
           "columns": ["executed", "stall", "latency"],
           "rows": [[6400, 24, 24, None, "s_clause 0x2"], [6404, 24, 21336, 4, "s_load_b32 s6, s[0:1], 0x24"],
                    [6408, None, None, None, "s_delay_alu " + EVIL]]}
    item = lambda name, writes, reads: {"device": "AMD:0", "name": name, "writes": writes, "reads": reads,
                                        "why": ["the caller asks for it"] * len(writes)}
    yield {"type": "schedule", "buffers": ["f32[512]", "f32[768]", "f32[4]", "f32[9]"],
           "items": [item(KERNELS[2][0], [1], [0]), item(KERNELS[0][0], [2], [1, 0]), item(EVIL, [3], [2])]}


def step_lines(start, steps):
    noise = random.Random(1)
    for step in range(steps):
        at = start + 10 ** 6 * step
        work = "compile" if step == 0 else "submit"
        yield {"type": "host", "work": work, "thread": 70, "begin_ns": at, "end_ns": at + 90000,
               "name": "5 kernels" if step == 0 else ""}
        yield {"type": "host", "work": "wait", "thread": 70, "begin_ns": at + 100000, "end_ns": at + 900000, "name": ""}
        for device in range(2):
            yield {"type": "memory", "device": device, "at_ns": at, "bytes": 10 ** 8 + step * 10 ** 6}
            yield {"type": "copy", "device": device, "queue": 0, "bytes": 1 << 20, "begin_ns": at + 100000,
                   "end_ns": at + 150000}
            now = at + 150000
            for k in range(20):
                kernel = k % len(KERNELS)
                ns = int(KERNELS[kernel][3] * noise.uniform(0.9, 1.2) / 3)
                yield {"type": "call", "kernel": device * len(KERNELS) + kernel, "queue": 0, "begin_ns": now,
                       "end_ns": now + ns}
                now += ns + 500


def make_page(doorbell, folder, steps=60, peaks=True):
    """Writes the page of a training. Returns its path."""
    records, cache = os.path.join(folder, "records"), os.path.join(folder, "cache", "doorbell")
    os.makedirs(records, exist_ok=True)
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(records, "7.prof"), "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in training_lines(steps))
    if peaks:
        devices = {f"AMD:{i} gfx1100 a GPU": PEAKS for i in range(2)} | {"gfx1100 a GPU": PEAKS}
        with open(os.path.join(cache, "peaks.json"), "w") as f:
            json.dump({"version": 1, "devices": devices}, f)
    page = os.path.join(folder, "page.html")
    subprocess.run([doorbell, "prof", "--html", page, "report", records], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache")})
    return page


def make_emulated_page(doorbell, folder):
    """Writes the page of a program that does not use Doorbell, on an emulated GPU. Returns its path."""
    records, page = os.path.join(folder, "emulated"), os.path.join(folder, "emulated.html")
    os.makedirs(records)
    lines = {"source": "Counts of the emulator. Exact: executions.", "columns": ["executed", "lanes"],
             "rows": [[0, 32, None, "S2R R0, SR_TID.X"], [16, 32, 17.5, EVIL]]}
    kernel = {"address": 4096, "dispatches": 2, "waves": 64, "instructions": 2048, "sectors": 128,
              "lds_conflict_cycles": 0, "model_ps": 4000000}
    gpu = {"process": 9, "gpu": 0, "arch": "sm_90", "kernels": [{"name": "first", "lines": lines, **kernel},
                                                                {"name": "", **kernel, "model_ps": 2000000}]}
    with open(os.path.join(records, "9.emu"), "w") as f:
        f.write(json.dumps(gpu) + "\n")
    subprocess.run([doorbell, "prof", "--html", page, "report", records], check=True, stdout=subprocess.DEVNULL)
    return page


def replace_data(page, change, out):
    """Writes the page with other data: change(data) changes what the page's data are."""
    with open(page) as f:
        text = f.read()
    head, data, tail = re.fullmatch(r'(.*<script id="data"[^>]*>)([^<]*)(</script>.*)', text, re.DOTALL).groups()
    value = json.loads(zlib.decompress(base64.b64decode(data)))
    change(value)
    packed = base64.b64encode(zlib.compress(json.dumps(value).encode(), 1)).decode()
    with open(out, "w") as f:
        f.write(head + packed + tail)
    return out


def add_million(data):
    """Replaces the kernels' tracks by four of 250000 calls each."""
    noise = random.Random(2)
    kernels = [track for track in data["tracks"] if track["kind"] == "kernels"]
    data["tracks"] = [track for track in data["tracks"] if track["kind"] != "kernels"]
    for i in range(4):
        ns = [noise.randrange(500, 90000) for _ in range(250000)]
        gap = [1000] + [n + (200 if noise.random() < 0.9 else 40000) for n in ns[:-1]]
        name = [noise.choice(kernels[0]["name"]) for _ in ns]
        data["tracks"].append({**kernels[i % 2], "number": i, "gap": gap, "ns": ns, "name": name})
