"""A small vocabulary of our own, and what the reference implementations make of
it; for tests that run without a model.

tests/goldens/tiny_tokenizer.json   byte-level BPE trained on prose.txt
tests/goldens/tiny_tokens.jsonl     per line: the words that each pattern splits
                                    it into (by the `regex` module), and the ids
                                    (by the `tokenizers` library)
"""

import json

import lines
import oracle
import regex
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Control characters have no token, so that dropping them is tested.
MISSING = [0x04, 0x06, 0x13]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
COUNT = 400


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
        byte_level(False),
    ])


PRE_TOKENIZERS = {
    "gpt-2": byte_level(True),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": split(LLAMA3),
    "qwen2": split(QWEN2),
}


def words(name, text):
    if name == "smollm":
        parts = regex.split(r"(\p{N})", text)
        return [w for part in parts for w in regex.findall(GPT2, part)]
    pattern = {"gpt-2": GPT2, "llama-bpe": LLAMA3, "qwen2": QWEN2}[name]
    return regex.findall(pattern, text)


def train():
    # Symbols of GPT-2's alphabet, as ByteLevel names them.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=ord)
    order = ([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
             + [b for b in range(256) if b <= 0x20 or 0x7F <= b <= 0xA0
                or b == 0xAD])
    keep = [s for s, b in zip(alphabet, order) if b not in MISSING]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS["smollm"]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(CONTROL) + len(keep) + 400, initial_alphabet=keep,
        special_tokens=CONTROL, show_progress=False)
    prose = (oracle.GOLDENS / "prose.txt").read_text(encoding="utf-8")
    extra = " ".join(lines.SCRIPTS * 3 + lines.EMOJI * 3 + lines.CODE)
    tokenizer.train_from_iterator([prose, extra, "a" * 4096, " " * 64], trainer)
    return tokenizer


def main():
    tokenizer = train()
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True,
                      separators=(",", ":"))
    (oracle.GOLDENS / "tiny_tokenizer.json").write_text(text + "\n")
    # Control tokens must stay text: take them out of the reference.
    plain = json.loads(text)
    plain["added_tokens"] = []
    rows = []
    for line in lines.lines(COUNT * 2, seed=4):
        if len(rows) == COUNT:
            break
        row = {"text": line, "words": {}, "ids": {}}
        for name, pre_tokenizer in PRE_TOKENIZERS.items():
            found = words(name, line)
            assert "".join(found) == line, (name, line, found)
            row["words"][name] = [len(w.encode()) for w in found]
            reference = tokenizers.Tokenizer.from_str(json.dumps(plain))
            reference.pre_tokenizer = pre_tokenizer
            row["ids"][name] = reference.encode(line).ids
        # The same in all four: once is enough.
        for key in ("words", "ids"):
            if len({str(v) for v in row[key].values()}) == 1:
                row[key] = {"all": row[key]["gpt-2"]}
        rows.append(row)
    oracle.write_jsonl("tiny_tokens.jsonl", rows)


if __name__ == "__main__":
    main()
