"""tests/goldens/tokens.jsonl: llama.cpp's ids of 1,000 lines of mixed text.

`ids` with control tokens as plain text; `special_ids`, where they differ, with
control tokens parsed. The first line says what the file is made of.
"""

import lines
import oracle

COUNT = 1000


def main():
    tokenizer = oracle.llama()
    rows = [{"model_sha256": oracle.SHA256, "oracle": "llama_cpp 0.3.36"}]
    for text in lines.lines(COUNT):
        data = text.encode("utf-8")
        ids = oracle.text_ids(tokenizer, data)
        row = {"text": text, "ids": ids}
        special = tokenizer.tokenize(data, add_bos=False, special=True)
        if special != ids:
            row["special_ids"] = special
        rows.append(row)
    oracle.write_jsonl("tokens.jsonl", rows)


if __name__ == "__main__":
    main()
