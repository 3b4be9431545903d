#!/usr/bin/env python3
"""check.py SOURCE COMPILER ARGUMENTS…

Compiles SOURCE and wants exactly the errors that its comments name:
`// expected-error: text`. Every text occurs in an error, and every error holds
one of the texts.
"""
import os
import re
import subprocess
import sys


def main():
    source, command = sys.argv[1], sys.argv[2:]
    with open(source, encoding="utf-8") as file:
        expected = re.findall(r"// expected-error: (.*)", file.read())
    if not expected:
        sys.exit(f"{source} names no expected-error")
    result = subprocess.run(
        command + [source],
        capture_output=True,
        text=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    errors = re.findall(r"error: (.*)", result.stderr)
    missing = [text for text in expected
               if not any(text in error for error in errors)]
    surplus = [error for error in errors
               if not any(text in error for text in expected)]
    for text in missing:
        print(f"no error says: {text}")
    for error in surplus:
        print(f"not expected: {error}")
    if missing or surplus or result.returncode == 0:
        sys.exit(f"exit status {result.returncode}\n{result.stderr}")


main()
