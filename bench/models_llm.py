"""Times language models on the CPU, by turns with llama.cpp: prompts of 512 tokens, then single tokens.

Usage: models_llm.py DOORBELL FILE.gguf... [--rounds N] [--tokens N] [--threads N] [--requests N]

Prints tokens per second of processor time (by the clock with --threads 2 or more), the most of the rounds: Doorbell,
llama.cpp, and the relative speed (above 1, Doorbell is faster). Needs PyPI's llama-cpp-python; without it, only
Doorbell is measured. Run it under `taskset -c 0` for --threads 1. make_llama.py writes models.

With --requests N, 1 to 8, it measures the server instead: for 1, 2, 4 and so on up to N requests at once, each of a
prompt of a few words, the tokens of all answers per second by the clock, and the ratio to one request alone.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

PROMPT = 512


def run_llama(path, tokens, threads):
    """Prints the speeds of llama.cpp in this process."""
    import llama_cpp
    now = time.process_time if threads == 1 else time.perf_counter
    m = llama_cpp.Llama(path, n_ctx=2048, n_batch=PROMPT, n_threads=threads, n_threads_batch=threads, verbose=False)
    prompt = [i * 7919 % m.n_vocab() for i in range(PROMPT)]
    speeds = []
    for _ in range(2):  # the first one warms up
        m.reset()
        begin = now()
        m.eval(prompt)
        speeds.append(PROMPT / (now() - begin))
    m.eval([3])
    begin = now()
    for i in range(tokens):
        m.eval([i * 104729 % m.n_vocab()])
    print(speeds[-1], tokens / (now() - begin))


def speeds_of_llama(path, args):
    command = [sys.executable, __file__, "--child", path, "--tokens", str(args.tokens), "--threads", str(args.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    return [float(x) for x in done.stdout.split()] if done.returncode == 0 else None


def speeds_of_doorbell(path, args):
    command = [args.doorbell, "llm", path, "--bench", "-n", str(args.tokens), "--dev", "CPU"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if args.threads > 1:
        return [float(x) for x in re.findall(r": ([0-9.]+) tokens/s", out)]
    return [float(x) for x in re.findall(r"([0-9.]+) per second of processor time", out)]


def completion(url, number, tokens):
    """Sends a request and returns the number of tokens of its answer."""
    body = {"prompt": f"Request number {number} of these", "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def speed_of_requests(url, n, tokens):
    """Tokens per second of n requests that are sent together."""
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        begin = time.perf_counter()
        done = sum(pool.map(lambda i: completion(url, i, tokens), range(n)))
        return done / (time.perf_counter() - begin)


def measure_server(path, args):
    command = [args.doorbell, "llm", path, "--serve", "0", "--parallel", str(args.requests), "--dev", "CPU"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        url = None
        for line in server.stdout:
            url = re.search(r"http://[0-9.:]+", line)
            if url:
                break
        if not url:
            sys.exit(f"{path}: the server did not start; run it alone to see why: {' '.join(command)}")
        alone, n = None, 1
        while n <= args.requests:
            speed_of_requests(url[0], n, args.tokens)  # compiles the kernels
            speed = max(speed_of_requests(url[0], n, args.tokens) for _ in range(args.rounds))
            alone = alone or speed
            print(f"{os.path.basename(path):20} {n} requests  {speed:8.2f}  {speed / alone:6.2f}", flush=True)
            n *= 2
    finally:
        server.terminate()
        server.communicate()


def best(found):
    found = [f for f in found if f]
    return [max(f[i] for f in found) for i in range(2)] if found else [float("nan")] * 2


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1])
    parser.add_argument("doorbell", nargs="?")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, choices=range(1, 9), metavar="N")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_llama(args.child, args.tokens, args.threads)
        return
    for path in args.files:
        if args.requests:
            measure_server(path, args)
            continue
        here, there = [], []
        for _ in range(args.rounds):
            here.append(speeds_of_doorbell(path, args))
            there.append(speeds_of_llama(path, args))
        for name, a, b in zip(["prompt", "tokens"], best(here), best(there)):
            print(f"{os.path.basename(path):20} {name}  {a:8.2f}  {b:8.2f}  {a / b:6.2f}", flush=True)


if __name__ == "__main__":
    main()
