"""Trains small tokenizers, writes them as GGUF files, and writes what llama.cpp and Hugging Face's tokenizers make of
many texts (tests/frontend/test_tokenizer.c). Needs PyPI's gguf, llama-cpp-python, sentencepiece, tokenizers.

NAME.gguf: the tokenizer without a model. NAME.jsonl: a line {"text", "special", "ids"} for each text.
"""
import glob
import io
import json
import os
import random
import tempfile

import gguf
import llama_cpp
import sentencepiece
import tokenizers

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(FOLDER, "../../..")
SEEDS = os.path.join(ROOT, "tests/fuzz/seeds/fuzz_tokenizer")
TOKENS = 400
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "\n", "\n\n", " \n \n", "\t\tx", "\r\n", "Hello, world!", "Hello,  world!!\n\n",
    "I'm they're WE'LL don't it's he'd I've 'S 'RE", "1 12 123 1234 12345.678 3,14159", "x1y22z333", "2024-01-02T03:04",
    "the queue of the device and the kernel", "The the THE tHe", "camelCaseWords and snake_case_words", "HTTPServer2",
    "a/b/c //comment\n/* x */\n", "#include <stdio.h>\n\nint main(void) {\n  return 0;\n}\n", "    indented\n\tby tab",
    "Grüße aus Köln", "naïve café déjà vu", "Привет, мир", "Γειά σου Κόσμε", "你好，世界", "こんにちは世界", "안녕하세요",
    "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "😀😃 👩‍👩‍👧‍👦 🇩🇪", "e\u0301 a\u0308", "ﬁ ﬂ ™ ① ½ ²", "\u00a0nbsp\u00a0",
    "\u3000wide\u3000space\u2003em", "zero\u200bwidth", "tabs\t\t\tand   spaces   ", "...!!!???", "$100 + €50 = £?",
    "<s>", "</s>", "<s>text</s>", "a<|user|>b", "<|user|> hi <|end|>", "<0x41>", "▁", "▁▁a", " ▁ ", "\x00\x01\x7f",
    "𝕳𝖊𝖑𝖑𝖔", "ǅ ǆ Ǆ", "ʰello", "١٢٣ ४५६ Ⅷ ㉗", "one\u2028two", "'", "''s", "' s", "don’t", "é" * 5, "a" * 50, " " * 17, "\n" * 5,
]

# Characters that the unigram model's file replaces, as a small part of what NFKC does.
REPLACEMENTS = [("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", ""), ("ﬁ", "fi"),
                ("ﬂ", "fl"), ("™", "TM"), ("①", "1"), ("½", "1⁄2"), ("e\u0301", "é"), ("Ⅷ", "VIII"), ("…", "...")]


def corpus():
    paths = sorted(glob.glob(os.path.join(ROOT, "frontend/*/*.c")))[:40] + [os.path.join(ROOT, "frontend/README.md")]
    return "".join(open(p).read() for p in paths) + "\n".join(TEXTS) * 3


def random_texts(n):
    r = random.Random(1)
    words = corpus().split()
    pieces = [" ", "  ", "\n", "é", "'s", "12", "世", "<s>", "!", "\t", "Ab", ","]
    return ["".join(r.choice(words) if r.random() < 0.5 else r.choice(pieces) for _ in range(12)) for _ in range(n)]


def writer(name, model, folder=FOLDER):
    w = gguf.GGUFWriter(os.path.join(folder, name), "llama")
    w.add_string("tokenizer.ggml.model", model)
    return w


def finish(w, texts, scores, kinds, **ids):
    w.add_array("tokenizer.ggml.tokens", texts)
    if scores:
        w.add_array("tokenizer.ggml.scores", scores)
    w.add_array("tokenizer.ggml.token_type", kinds)
    for key, value in ids.items():
        w.add_uint32("tokenizer.ggml." + key, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def sentencepiece_model(name, model, **options):
    out = io.BytesIO()
    lines = [line for line in corpus().split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=TOKENS + 256 * options.get("byte_fallback", 0),
        character_coverage=0.98, user_defined_symbols=["<|user|>"], num_threads=1, minloglevel=2, **options)
    p = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    n = p.get_piece_size()
    kinds = [2 if p.is_unknown(i) else 3 if p.is_control(i) else 6 if p.is_byte(i) else 5 if p.is_unused(i)
             else 4 if p.id_to_piece(i) == "<|user|>" else 1 for i in range(n)]
    w = writer(name + ".gguf", model)
    if model == "t5":
        from sentencepiece import sentencepiece_model_pb2  # noqa: only here: needs protobuf
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(out.getvalue())
        w.add_array("tokenizer.ggml.precompiled_charsmap", proto.normalizer_spec.precompiled_charsmap)
        w.add_bool("tokenizer.ggml.remove_extra_whitespaces", proto.normalizer_spec.remove_extra_whitespaces)
    finish(w, [p.id_to_piece(i) for i in range(n)], [p.get_score(i) for i in range(n)], kinds,
           bos_token_id=p.bos_id(), eos_token_id=p.eos_id(), unknown_token_id=p.unk_id())


def byte_level_model():
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated")
    t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [split, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator([corpus()], tokenizers.trainers.BpeTrainer(
        vocab_size=TOKENS, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(t.to_str())["model"]
    texts = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    for pre in ["gpt-2", "llama-bpe", "qwen2", "tekken"]:
        w = writer("bpe-" + pre + ".gguf", "gpt2")
        w.add_string("tokenizer.ggml.pre", pre)
        w.add_array("tokenizer.ggml.merges", merges)
        n = len(texts)
        finish(w, texts + ["<s>", "</s>", "<|user|>"], None, [1] * n + [3, 3, 4], bos_token_id=n, eos_token_id=n + 1)
    return model


def golden(name, texts):
    """The tokens of llama.cpp."""
    m = llama_cpp.Llama(os.path.join(FOLDER, name + ".gguf"), vocab_only=True, verbose=False)
    with open(os.path.join(FOLDER, name + ".jsonl"), "w") as f:
        for text in texts:
            for special in [False, True]:
                ids = m.tokenize(text.encode(), add_bos=special, special=special) if text else []
                f.write(json.dumps({"text": text, "special": special, "ids": ids}) + "\n")


def golden_tekken(model, texts):
    """llama.cpp approximates the expression of tekken, so its tokens are those of tokenizers."""
    model["ignore_merges"] = True
    t = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], ignore_merges=True))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Split(tokenizers.Regex(TEKKEN), "isolated"),
         tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    with open(os.path.join(FOLDER, "bpe-tekken.jsonl"), "w") as f:
        for text in texts:
            if "<|user|>" not in text:
                f.write(json.dumps({"text": text, "special": False, "ids": t.encode(text).ids}) + "\n")


def seeds():
    """Tokenizers of a few tokens, followed by a text, for fuzz_tokenizer."""
    os.makedirs(SEEDS, exist_ok=True)
    for name, model in [("spm", "llama"), ("unigram", "t5"), ("bpe", "gpt2")]:
        w = writer(name, model, SEEDS)
        w.add_string("tokenizer.ggml.pre", "llama-bpe")
        w.add_array("tokenizer.ggml.merges", ["a b", "ab c"])
        texts = ["<unk>", "<s>", "<0x41>", "a", "b", "c", "ab", "abc", "\u2581", "\u2581a", "<x>"]
        finish(w, texts, [-float(i) for i in range(len(texts))], [2, 3, 6, 1, 1, 1, 1, 1, 1, 1, 4], bos_token_id=1)
        with open(os.path.join(SEEDS, name), "ab") as f:
            f.write(b"abc a ab<x>A <s>caba\n\xff\xc3a\xe2\x96\x81a 12 b'll  c".ljust(64, b"!"))


def main():
    seeds()
    texts = TEXTS + random_texts(40)
    sentencepiece_model("spm", "llama", model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for a, b in REPLACEMENTS:
            f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        f.flush()
        sentencepiece_model("unigram", "t5", model_type="unigram", normalization_rule_tsv=f.name)
    model = byte_level_model()
    for name in ["spm", "unigram", "bpe-gpt-2", "bpe-llama-bpe", "bpe-qwen2"]:
        golden(name, texts)
    golden_tekken(model, texts)


if __name__ == "__main__":
    main()
