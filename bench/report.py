# SPDX-License-Identifier: MIT
"""The figures as text, as a table in docs/performance.md, and as a chart."""

import os
from xml.sax.saxutils import escape

# The markers around the figures of a store in docs/performance.md.
BEGIN = "<!-- figures of {}: written by make bench -->"
END = "<!-- end of figures -->"
CHARTS = {
    "SQLite": "performance.svg",
    "PostgreSQL": "performance-postgres.svg",
    "Redis": "performance-redis.svg",
}


def figure(value, unit):
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:,.{digits}f}"
    return f"{text} {unit}" if unit and unit != "messages/s" else text


def aim(result):
    if result.target is not None:
        return f"≥ {result.target:g}"
    if result.at_most is not None:
        return f"≤ {result.at_most:g} {result.unit}"
    return ""


def beside(result):
    if result.limit is None:
        return ""
    return f"{figure(result.limit, result.unit)} ({result.beside})"


def ratio(result):
    return f"{result.ratio:.2f}" if result.ratio is not None else ""


def line(result):
    parts = [f"  {result.what}: {figure(result.value, result.unit)}"]
    if result.limit is not None:
        parts.append(f"beside {beside(result)}")
    if result.ratio is not None:
        parts.append(f"ratio {ratio(result)}")
    if aim(result):
        parts.append(f"aim {aim(result)}")
    if result.met() is False:
        parts.append("MISSED")
    return ", ".join(parts)


def table(results):
    yield "| what | Postern | beside it | ratio | aim |"
    yield "|---|---:|---:|---:|---:|"
    for result in results:
        yield (
            f"| {result.what} | {figure(result.value, result.unit)}"
            f" | {beside(result)} | {ratio(result)} | {aim(result)} |"
        )


def versions(store, about):
    return f"{about['postern']}, {about[store]}"


def describe(store, about):
    yield (
        f"{versions(store, about)}, measured on {about['date']}: "
        f"{about['processor']}, {about['cores']} cores,"
    )
    yield (
        f"{about['memory_gib']} GiB of memory, Linux {about['kernel']}, "
        f"{about['file_system']}, where one durable page takes "
        f"{about['sync_ms']:.1f} ms;"
    )
    yield (
        f"each pair run {about['rounds']} times in turn, "
        f"load {about['load']:.1f} when it began."
    )


def write_figures(path, store, about, results, failed):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin = BEGIN.format(store)
    before, rest = text.split(begin)
    _, after = rest.split(END, 1)
    figures = "\n".join(
        [begin, "", f"![the ratios as bars]({CHARTS[store]})", "",
         *describe(store, about), "",
         *table(results), "",
         *([f"Could not be measured: {', '.join(failed)}.", ""]
           if failed else []), END]
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + figures + after)


# A bar for each ratio, its target as a line across it. The chart has a light and
# a dark colour scheme.
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #59636e; }
.rail { fill: #d1d9e0; }
.bar { fill: #2f81c4; }
.aim { stroke: #c4432f; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .small { fill: #9198a1; }
  .rail { fill: #3d444d; }
  .bar { fill: #4493f8; }
  .aim { stroke: #f0883e; }
}
"""

WIDTH = 840
LEFT = 380  # where bars begin
FULL = 340  # a ratio of 1
MOST = 1.2  # longer bars are cut off here
STEP = 34
TOP = 48


def bar(result, top):
    width = min(result.ratio, MOST) * FULL
    yield f'<text x="{LEFT - 12}" y="{top + 14}" text-anchor="end">' + (
        escape(result.what) + "</text>"
    )
    yield f'<text class="small" x="{LEFT - 12}" y="{top + 27}"' + (
        f' text-anchor="end">beside {escape(result.beside)}</text>'
    )
    yield f'<rect class="rail" x="{LEFT}" y="{top + 4}" width="{FULL}"' + (
        ' height="16" rx="2"/>'
    )
    yield f'<rect class="bar" x="{LEFT}" y="{top + 4}" width="{width:.0f}"' + (
        ' height="16" rx="2"/>'
    )
    if result.target is not None and result.target <= MOST:
        x = LEFT + result.target * FULL
        yield f'<line class="aim" x1="{x:.0f}" x2="{x:.0f}"' + (
            f' y1="{top}" y2="{top + 24}"/>'
        )
    x = LEFT + max(width, FULL) + 10
    yield f'<text x="{x:.0f}" y="{top + 17}">{result.ratio:.2f}</text>'


def chart(store, about, results):
    chosen = [result for result in results if result.ratio is not None]
    height = TOP + STEP * len(chosen) + 30
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH}'
        f' {height}" width="{WIDTH}" height="{height}" role="img">'
    )
    yield "<title>Postern beside programs that do the same writes</title>"
    yield f"<style>\n{STYLE}</style>"
    yield '<text x="12" y="22">Speed beside what does the same with nothing' + (
        " around it; a full bar is as fast</text>"
    )
    for index, result in enumerate(chosen):
        yield from bar(result, TOP + STEP * index)
    yield f'<text class="small" x="12" y="{height - 10}">' + (
        f"{escape(versions(store, about))}, {about['date']}; "
        "the line across a bar is what is aimed at</text>"
    )
    yield "</svg>"


def write(folder, store, about, results, failed):
    write_figures(os.path.join(folder, "performance.md"), store, about,
                  results, failed)
    path = os.path.join(folder, CHARTS[store])
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(chart(store, about, results)) + "\n")
