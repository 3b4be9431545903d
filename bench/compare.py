#!/usr/bin/env python3
"""Compares two runs of the benchmarks; fails when a case got slower.

  bench/compare.py OLD.jsonl NEW.jsonl [--threshold PERCENT]

Of several lines for the same case on the same device the last one counts. A
case is slower when its time grew by more than the threshold (default 5 %) and
by more than the noise of both runs together.
"""
import argparse
import json
import sys


def load(path):
    runs = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                run = json.loads(line)
                if "us" not in run and "peer_us" in run:
                    continue  # a framework alone: bench/peers
                key = tuple(
                    run.get(field)
                    for field in ("device", "mode", "threads", "op", "case")
                )
                runs[key] = (float(run["us"]), float(run.get("noise", 0)))
            except (ValueError, KeyError, AttributeError) as error:
                sys.exit(f"compare: {path}:{number}: no benchmark line: {error}")
    return runs


def compare(old, new, threshold):
    """Yields (verdict, operator and case, change, margin)."""
    for key in sorted(old.keys() | new.keys(), key=str):
        name = f"{key[-2]} {key[-1]}"
        if key not in new:
            yield "missing", name, 0.0, 0.0
        elif key not in old:
            yield "new", name, 0.0, 0.0
        else:
            (old_us, old_noise), (new_us, new_noise) = old[key], new[key]
            change = new_us / old_us - 1
            margin = max(threshold, old_noise + new_noise)
            verdict = "same"
            if change > margin:
                verdict = "SLOWER"
            elif change < -margin:
                verdict = "faster"
            yield verdict, name, change, margin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--threshold", type=float, default=5, metavar="PERCENT")
    arguments = parser.parse_args()
    old, new = load(arguments.old), load(arguments.new)
    if not old.keys() & new.keys():
        sys.exit("compare: the two runs have no case in common")
    slower = 0
    for verdict, name, change, margin in compare(
        old, new, arguments.threshold / 100
    ):
        slower += verdict == "SLOWER"
        print(f"{verdict:8} {name:60} {change:+7.1%}  (margin {margin:.1%})")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
