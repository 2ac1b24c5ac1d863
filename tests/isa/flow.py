# SPDX-License-Identifier: MIT
"""Disassembled kernels as graphs: what instruction can follow what, and whether a path avoids something."""
import collections
import re

LINE = re.compile(r"\t(.*?)\s*// 0*([0-9A-F]+): [0-9A-F ]+?(?: <(\w+?)(?:\+0x([0-9a-f]+))?>)?$")


class Kernel:
    """text[i] is an instruction, after[i] are the indices of those that may follow it."""

    def __init__(self, name, lines, base):
        self.name, self.text, places, targets = name, [], {}, []
        for text, address, label, offset in lines:
            places[address] = len(self.text)
            self.text.append(re.sub(r"\s+", " ", text).strip())
            targets.append(base[label] + int(offset or "0", 16) if label in base else None)
        self.after = []
        for i, text in enumerate(self.text):
            follow = []
            if not text.startswith(("s_endpgm", "s_branch ")) and i + 1 < len(self.text):
                follow.append(i + 1)
            if text.startswith(("s_branch", "s_cbranch")):
                follow.append(places[targets[i]])
            self.after.append(follow)

    def find(self, pattern):
        return [i for i, text in enumerate(self.text) if re.match(pattern, text)]

    def follow(self, i, together):
        """What can follow i; together: some lane goes each way, so that nothing is jumped over for want of lanes."""
        return self.after[i][:1] if together and self.text[i].startswith("s_cbranch_execz") else self.after[i]

    def reach(self, starts, avoid="", together=False):
        """Indices that can be executed after `starts` when nothing that matches `avoid` is."""
        seen, todo = set(), [n for s in starts for n in self.follow(s, together)]
        while todo:
            i = todo.pop()
            if i in seen or (avoid and re.match(avoid, self.text[i])):
                continue
            seen.add(i)
            todo += self.follow(i, together)
        return seen

    def fewest(self, start, ends, count, together=False):
        """The smallest number of instructions of `count`, indices, on a path from start to one of ends; None: no path."""
        cost, todo = {start: 0}, collections.deque([start])
        while todo:
            i = todo.popleft()
            for n in self.follow(i, together):
                extra = n in count
                if n not in cost or cost[i] + extra < cost[n]:
                    cost[n] = cost[i] + extra
                    (todo.append if extra else todo.appendleft)(n)
        found = [cost[e] for e in ends if e in cost]
        return min(found) if found else None


def kernels(disassembly):
    """name: Kernel, from the output of llvm-objdump -d."""
    lines, base, name = collections.defaultdict(list), {}, None
    for line in disassembly.splitlines():
        head = re.match(r"([0-9a-f]+) <(\w+)>:", line)
        if head:
            name = head[2]
            base[name] = int(head[1], 16)
        match = LINE.match(line)
        if match and name and match[1] != "s_code_end":
            lines[name].append((match[1], int(match[2], 16), match[3], match[4]))
    return {name: Kernel(name, found, base) for name, found in lines.items()}
