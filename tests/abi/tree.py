# SPDX-License-Identifier: MIT
"""What the checks of this folder share: source text without comments, and the way a check ends."""
import pathlib
import re
import sys
import tempfile

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def bare(text):
    """C source without comments and with empty string literals; line numbers stay as they are."""
    def blank(match):
        token = match.group(0)
        return token[0] * 2 if token[0] in "\"'" else "\n" * token.count("\n")
    # An #include is no string literal.
    return TOKEN.sub(lambda m: m.group(0) if m.group(0)[0] == '"' and text[text.rfind("\n", 0, m.start()) + 1:m.start()].lstrip()
                     .startswith("#include") else blank(m), text)


def sources(root, *folders, endings=(".c", ".h")):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in endings and path.is_file():
                yield path


def planted(plants, check):
    """Runs `check` on a tree for each (path, text, ...) and returns those in which it finds nothing."""
    missed = []
    for plant in plants:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in zip(plant[::2], plant[1::2]):
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True)
                file.write_text(text)
            if not check(pathlib.Path(folder)):
                missed.append(repr(plant))
    return missed


def end(problems, missed, what):
    """Prints the outcome and exits."""
    for line in problems:
        print(line)
    for line in missed:
        print(f"negative control: not noticed: {line}")
    print(f"{what}: {len(problems)} problems, {len(missed)} controls missed")
    sys.exit(1 if problems or missed else 0)
