# SPDX-License-Identifier: MIT
"""What takes turns with another, of which one ratio for each turn says more than two means: both had the machine as it was then."""
import math
import statistics
import sys


def ratios(ours, theirs):
    return [a / b for a, b in zip(ours, theirs)]


def spread(ratio):
    """Mean and its standard error, median, least and most."""
    error = statistics.stdev(ratio) / math.sqrt(len(ratio)) if len(ratio) > 1 else 0
    return f"{statistics.mean(ratio):.3f} ± {error:.3f} | {statistics.median(ratio):.3f} | {min(ratio):.2f} to {max(ratio):.2f}"


def table(found, other):
    """Markdown of found[what][who], lists by turn; each who is compared with `other`."""
    rows = [f"| | turns | | mean | {other} | ratio | median | least to most |",
            "|---|---|---|---|---|---|---|---|"]
    for what, sides in found.items():
        theirs = sides.get(other, [])
        for who, ours in sides.items():
            ratio = ratios(ours, theirs)
            if who != other and ratio:
                rows.append(f"| {what} | {len(ratio)} | {who} | {statistics.mean(ours):.0f} "
                            f"| {statistics.mean(theirs):.0f} | {spread(ratio)} |")
    return "\n".join(rows)


def order(sides, turn):
    """Who is first in one turn is last in the next."""
    return sides if turn % 2 == 0 else sides[::-1]


def main():
    """Lines "figure: TURN WHO WHAT VALUE [VALUE OF ANOTHER KIND]" become the table, and means of the other kind."""
    found, more = {}, {}
    for words in (line.split() for line in sys.stdin):
        if words[:1] != ["figure:"]:
            continue
        _, turn, who, what, value, *rest = words
        values = found.setdefault(what, {}).setdefault(who, [])
        if int(turn) != len(values):
            sys.exit(f"pairs: {who}, {what}: turn {turn} follows {len(values)} turns")
        values.append(float(value))
        if rest:
            more.setdefault(what, {}).setdefault(who, []).append(float(rest[0]))
    print(table(found, sys.argv[1]))
    for what, sides in more.items():
        print(f"\n{sys.argv[2]}, {what}: " + ", ".join(f"{who} {statistics.mean(values):.2f}" for who, values in sides.items()))


if __name__ == "__main__":
    main()
