#!/usr/bin/env python3
"""plot.py REPORT.json [...] [-o roofline.svg]: what `lamina block --json` has
measured, a point a stage: bytes to the right, time upwards, both logarithmic.
The line is the read bandwidth of the same run; the circle on the same bytes is
the best kernel that only moves them. Needs nothing but Python.
"""
import argparse
import html
import json
import math

WIDTH, HEIGHT, MARGIN = 860, 560, 70
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#b9770e", "#555555")


class Axis:
    """Decades from the smallest to the largest value, on [first, last]."""

    def __init__(self, values, first, last):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.first, self.last = first, last

    def __call__(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + part * (self.last - self.first)

    def decades(self):
        return [10.0**i for i in range(self.low, self.high + 1)]


def unit(value, names):
    """1536000 -> "1.5 M"."""
    index = 0
    while value >= 999.5 and index + 1 < len(names):
        value /= 1000
        index += 1
    return f"{value:.3g} {names[index]}".rstrip()


def text(x, y, words, anchor="start", size=12, colour="#222"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'font-size="{size}" fill="{colour}">{html.escape(words)}</text>'
    )


def line(x1, y1, x2, y2, colour, extra=""):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" {extra}/>'
    )


def points_of(report):
    """(name, bytes, us, limit_us) of all stages that take time, and the sum."""
    points = [
        (s["name"], s["bytes"], s["us"], s["limit_us"])
        for s in report["stages"]
        if s["us"] > 0
    ]
    total = report["total"]
    points.append(("block", total["bytes"], total["us"], total["limit_us"]))
    if "model" in report:
        model = report["model"]
        points.append(("model", model["bytes"], model["us"], model["limit_us"]))
    return points


def draw(reports):
    all_points = [p for r in reports for p in points_of(r)]
    x = Axis([p[1] for p in all_points], MARGIN, WIDTH - MARGIN)
    times = [t for p in all_points for t in p[2:] if t > 0]
    y = Axis(times, HEIGHT - MARGIN, MARGIN)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for value in x.decades():
        out.append(line(x(value), y.first, x(value), y.last, "#ddd"))
        name = unit(value, ("B", "kB", "MB", "GB", "TB"))
        out.append(text(x(value), y.first + 18, name, "middle"))
    for value in y.decades():
        out.append(line(x.first, y(value), x.last, y(value), "#ddd"))
        name = unit(value, ("us", "ms", "s"))
        out.append(text(x.first - 8, y(value) + 4, name, "end"))
    for index, report in enumerate(reports):
        colour = COLOURS[index % len(COLOURS)]
        speed = report["read_gb_per_s"] * 1e3  # bytes a microsecond
        low = max(10.0**x.low, 10.0**y.low * speed)
        high = min(10.0**x.high, 10.0**y.high * speed)
        if low < high:
            out.append(line(x(low), y(low / speed), x(high), y(high / speed),
                            colour, 'stroke-dasharray="6 4"'))
        for name, size, us, limit in points_of(report):
            at = f'cx="{x(size):.1f}"'
            if limit > 0:
                out.append(f'<circle {at} cy="{y(limit):.1f}" r="4" '
                           f'fill="none" stroke="{colour}"/>')
            out.append(f'<circle {at} cy="{y(us):.1f}" r="4" fill="{colour}"/>')
            share = f" {100 * limit / us:.0f} %" if limit > 0 else ""
            out.append(text(x(size) + 7, y(us) - 5, name + share, size=11,
                            colour=colour))
        heading = (f'{report["shape"]}, {report["weights"]}, batch '
                   f'{report["batch"]}, context {report["context"]}, '
                   f'{report["device"]}')
        out.append(text(MARGIN, 22 + 16 * index, heading, size=13,
                        colour=colour))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", metavar="REPORT.json")
    parser.add_argument("-o", "--output", default="roofline.svg")
    options = parser.parse_args()
    reports = []
    for path in options.reports:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(draw(reports))


if __name__ == "__main__":
    main()
