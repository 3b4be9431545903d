#!/usr/bin/env python3
"""Writes apps/model/unicode_tables.inc: where \\p{L}, \\p{N} and White_Space begin.

Needs `pip install unicodedata2==16.0.0`, so that the tables do not depend on
the Python that runs it. An entry is (first code point << 2 | class) and holds
up to the next one. Run without arguments; prints nothing when all is well.
"""

import pathlib

import unicodedata2

VERSION = "16.0.0"
OTHER, LETTER, NUMBER, SPACE = range(4)
# PropList.txt; stable by Unicode's policy since 6.3.
WHITE_SPACE = {
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
    0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
}


def class_of(code_point):
    if code_point in WHITE_SPACE:
        return SPACE
    category = unicodedata2.category(chr(code_point))
    return {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)


def main():
    if unicodedata2.unidata_version != VERSION:
        raise SystemExit(
            f"unicodedata2 has Unicode {unicodedata2.unidata_version}, "
            f"want {VERSION}"
        )
    entries, last = [], None
    for code_point in range(0x110000):
        now = class_of(code_point)
        if now != last:
            entries.append(code_point << 2 | now)
            last = now
    path = (
        pathlib.Path(__file__).resolve().parents[1]
        / "apps" / "model" / "unicode_tables.inc"
    )
    lines = [
        f"// Unicode {VERSION}; made by scripts/generate_unicode_tables.py.",
        "// clang-format off",
    ]
    line = ""
    for entry in entries:
        item = f"0x{entry:x},"
        if len(line) + len(item) > 80:
            lines.append(line)
            line = ""
        line += item
    lines += [line, "// clang-format on", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
