# SPDX-License-Identifier: MIT
"""Where the library calls the C library and the system: a site is the address after a call, by function and offset, the same in
all that the library is linked into."""
import pathlib
import re
import subprocess

# An eventfd takes 1 as long as nobody has added 2^64 - 2 to it (eventfd(2)); without it nobody wakes up.
CANNOT_FAIL = {("gnv_event_set", "write"), ("gnv_vfio_watch_stop", "write")}


def wrapped():
    """The functions that fail.c makes fail."""
    text = (pathlib.Path(__file__).parent / "fail.c").read_text()
    found = re.findall(r"^(?:WRAP\([^,]*, (\w+)|(?:int|long|void \*)\s?\*?(\w+)\([^;]*\)$)", text, re.M)
    return {a or b for a, b in found}


def functions(binary):
    """Address: (file, function), of a program or library that has its symbols. Local ones stand after the name of their file."""
    text = subprocess.run(["readelf", "-sW", binary], capture_output=True, text=True, check=True).stdout
    found, file = {}, ""
    for line in text[text.index("'.symtab'"):].splitlines():
        words = line.split()
        if len(words) < 7 or not words[0].endswith(":"):
            continue
        name = words[7] if len(words) > 7 else ""
        if words[3] == "FILE":
            file = name
        elif words[3] == "FUNC" and words[6] not in ("UND", "ABS"):
            shared = words[4] != "LOCAL" or name.startswith(("gnv_", "gpunvme_"))
            found[int(words[1], 16)] = ("" if shared else file, name)
    return found


def sites_of(binary, names):
    """Address after a call of one of the names: (file, function, offset, name)."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", binary], capture_output=True, text=True, check=True).stdout
    starts, found, pending, where = functions(binary), {}, None, None
    for line in text.splitlines():
        at = re.match(r" +([0-9a-f]+):\t(.*)", line)
        if not at:
            continue
        address = int(at[1], 16)
        if pending:
            found[address] = (*where[1], address - where[0], pending)
        if address in starts:
            where = (address, starts[address])
        call = re.match(r"call +[0-9a-f]+ <(\w+)@plt>", at[2])
        pending = call[1] if call and call[1] in names and where else None
    return found


def text_of(site):
    file, function, offset, name = site
    return f"{name} in {function}{f' of {file}' if file else ''}, +0x{offset:x}"
