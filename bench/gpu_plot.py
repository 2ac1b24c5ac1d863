# SPDX-License-Identifier: MIT
"""Pictures of what bench/gpu_run measured. Needs gnuplot."""
import pathlib
import shutil
import subprocess
import sys

COLOURS = {"ours": "#2a6f97", "block-drain": "#c9a227", "ticket": "#a23b2a"}
LIGHT = {"ours": "#9cc4da", "ticket": "#dba79e"}
BARE = "ps 0"
HEAD = """set terminal svg size 760,440 font 'sans-serif,13' background '#ffffff'
set output '{target}'
set title '{title}'
set grid ytics lc rgb '#dddddd'
set key below
"""


def select(points, **wanted):
    return [p for p in points if all(p.get(k) == v for k, v in wanted.items())]


def line(rows, title, colour, style="pt 7 ps 0.5"):
    """One line of a plot: rows of x and y; the data goes inline."""
    data = "\n".join(f"{x} {y:.6g}" for x, y in rows)
    return f"with linespoints lw 2 lc rgb '{colour}' {style} title '{title}'", data


def lines(lines_of_plot):
    lines_of_plot = [(how, data) for how, data in lines_of_plot if data]
    blocks = "".join(f"$d{i} << END\n{data}\nEND\n" for i, (_, data) in enumerate(lines_of_plot))
    return blocks + "plot " + ", ".join(f"$d{i} using 1:2 {how}" for i, (how, _) in enumerate(lines_of_plot)) + "\n"


def rows(points, x):
    return sorted((p[x], p["rate"] / 1e6) for p in points)


def lane_scaling(points):
    def of(queue, name):
        return rows(select(points, figure="lane_scaling", queue=queue, point=name), "lanes")
    return ("million commands/s by lanes, up to 128 queues",
            "set logscale xy\nset format x '%.0f'\nset xlabel 'lanes'\nset xtics (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)\n" +
            lines([line(of("ours", "128 queues"), "libgpunvme", COLOURS["ours"]),
                   line(of("ours", "1 queue"), "libgpunvme, one queue", LIGHT["ours"]),
                   line(of("block-drain", "128 queues"), "block-drain queue", COLOURS["block-drain"]),
                   line(of("ticket", "128 queues"), "ticket queue", COLOURS["ticket"])]))


def queues(points):
    names = ("1 queue", "2 queues", "8 queues", "32 queues", "128 queues")

    def of(controller):
        chosen = select(points, figure="rates", queue="ours", controller=controller, check=0)
        return sorted((p["queues"], p["rate"] / 1e6) for p in chosen if p["point"] in names and p["batch"] == points[0]["batch"])
    return ("million commands/s by queues",
            "set logscale x 2\nset xrange [1:128]\nset yrange [0:*]\nset xtics (1, 2, 8, 32, 128)\n"
            "set xlabel 'queues of 1,024 entries'\n" +
            lines([line(of("cpu"), "rings in host memory, CPU threads as controller", COLOURS["ours"]),
                   line(of("gpu"), "rings in GPU memory, warps as controller", LIGHT["ours"]),
                   line([(1, 750), (128, 750)], "what PCIe Gen5 x16 carries, about", "#888888", BARE)]))


def peers(points):
    def of(queue, controller):
        return rows(select(points, figure="peers", queue=queue, point="128 queues", controller=controller, check=0), "block_lanes")
    ours = select(points, figure="peers", queue="ours", point="128 queues", controller="cpu")
    own = max((p["rate"] / 1e6 for p in ours), default=0)
    return ("million commands/s at 128 queues, by lanes of each queue",
            "set logscale xy\nset xlabel 'lanes of each queue'\nset xtics (8, 32, 64, 128, 256, 512, 992)\n"
            "set xrange [8:1000]\nset yrange [5:1000]\n" +
            lines([line([(8, own), (992, own)], "libgpunvme, 528 lanes", COLOURS["ours"], BARE),
                   line(of("block-drain", "cpu"), "block-drain queue", COLOURS["block-drain"]),
                   line(of("ticket", "cpu"), "ticket queue", COLOURS["ticket"]),
                   line(of("ticket", "gpu"), "ticket queue, rings in GPU memory", LIGHT["ticket"])]))


def latency(points):
    chosen = [p for p in select(points, figure="latency", controller="cpu") if p["batch"] == points[0]["batch"]]
    data = "\n".join(f'"{p["queue"]}\\n{p["point"]}" '.replace(" of", "\\nof") +
                     " ".join(f"{p[k] / 1000:.3f}" for k in ("p50_ns", "p99_ns", "p999_ns")) for p in chosen)
    return ("one command at a time: microseconds",
            f"$d << END\n{data}\nEND\nset key inside top left\nset style data histograms\nset style fill solid\nset yrange [0:*]\n"
            "plot $d using 2:xtic(1) lc rgb '#2a6f97' title '50 %', '' using 3 lc rgb '#89b6cc' title '99 %', "
            "'' using 4 lc rgb '#cfdfe8' title '99.9 %'\n")


PARTS = {"reserve": "#2a6f97", "write": "#5b9bbd", "publish": "#c9a227", "look and deliver": "#a23b2a", "take": "#dba79e",
         "the rest": "#bbbbbb"}


def parts(points):
    """Of a copy of the header that reads the clock between the steps: "parts" is in the results of gpu_run --parts only."""
    data = "\n".join(f'"{p["point"]}" ' + " ".join(f"{p[name] / 1000:.3f}" for name in PARTS) for p in select(points, figure="parts"))
    columns = ", ".join(f"{'$d' if i == 0 else chr(39) * 2} using {i + 2}{':xtic(1)' if i == 0 else ''} lc rgb '{colour}' title '{name}'"
                        for i, (name, colour) in enumerate(PARTS.items()))
    return ("where the time of a command goes: microseconds",
            f"$d << END\n{data}\nEND\nset style data histograms\nset style histogram rowstacked\nset style fill solid\nset boxwidth 0.5\n"
            f"set yrange [0:*]\nplot {columns}\n")


def draw(results, folder):
    """Writes gpu-*.svg into the folder. Returns their paths."""
    if not shutil.which("gnuplot"):
        sys.exit("plot: gnuplot is missing; install the package gnuplot-nox (scripts/setup bench)")
    machine, drawn = results["machine"], []
    for figure in lane_scaling, queues, peers, latency, parts:
        if figure is parts and not select(results["points"], figure="parts"):
            continue
        title, body = figure(results["points"])
        target = pathlib.Path(folder) / f"gpu-{figure.__name__.replace('_', '-')}.svg"
        head = HEAD.format(target=target, title=f"{machine['gpu']}: {title}")
        subprocess.run(["gnuplot"], input=head + body, text=True, check=True)
        drawn.append(target)
    return drawn
