"""What the benchmarks found: as lines, as JSON, and as a picture of the ratios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timing import Result

from npu_kit.render import theme
from npu_kit.render.svg import Canvas

WIDTH, LABEL_WIDTH, ROW, HEAD = 760.0, 230.0, 20.0, 34.0
BAR_WIDTH = WIDTH - LABEL_WIDTH - 150.0


def lines(result: Result) -> list[str]:
    """A comparison as text: the question, then one line per function, the quickest first."""
    found = [f"{result.name}: {result.question}"]
    found.append(f"  {'':26}{'median':>13}{'fastest':>13}{'runs':>6}{f'times {result.baseline}, by either':>36}")
    for name, timing in sorted(result.timings.items(), key=lambda item: item[1].median_ms):
        times = f"{timing.median_ms:10.2f} ms{timing.fastest_ms:10.2f} ms{timing.runs:6}"
        found.append(f"  {name:26}{times}{result.ratio(name):26.2f}{result.fastest_ratio(name):10.2f}")
    return [*found, *(f"  {note}" for note in result.notes)]


def to_json(machine: Mapping[str, str], results: Sequence[Result], memory: Mapping[str, float]) -> str:
    """Everything that was measured, to compare two states of the code on one machine."""
    document: dict[str, Any] = {"format_version": 1, "machine": dict(machine), "memory": dict(memory)}
    document["comparisons"] = [
        {**asdict(result), "ratios": {name: round(result.ratio(name), 3) for name in result.timings}}
        for result in results
    ]
    return json.dumps(document, indent=2) + "\n"


def picture(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    """The ratios to each comparison's baseline, as bars, as SVG text. A bar that is longer than the picture is cut."""
    rows = sum(len(result.timings) for result in results)
    canvas = Canvas(WIDTH, HEAD + rows * ROW + len(results) * HEAD + 20, "Times of the same work, by who does it")
    canvas.text(16, 22, f"{machine['processor']}, {machine['threads used']} thread(s)", bold=True, width=WIDTH - 32)
    y = HEAD + 6.0
    for result in results:
        canvas.text(16, y + 18, f"{result.name} (times {result.baseline})", bold=True)
        y += HEAD
        longest = max(4.0, *(min(result.ratio(name), 8.0) for name in result.timings))
        for name, timing in result.timings.items():
            ratio = result.ratio(name)
            swatch = theme.ENGINES["conv" if name.startswith("kit") else "dma"]
            canvas.text(LABEL_WIDTH - 8, y + 14, name, anchor="end", width=LABEL_WIDTH - 24)
            length = BAR_WIDTH * min(ratio, longest) / longest
            canvas.rect(LABEL_WIDTH, y + 3, length, ROW - 6, fill=swatch.fill)
            more = " (bar cut)" if ratio > longest else ""
            canvas.text(LABEL_WIDTH + length + 6, y + 14, f"{ratio:.2f}, {timing.median_ms:.1f} ms{more}")
            y += ROW
    return str(canvas.picture())


def write(folder: Path, machine: Mapping[str, str], results: Sequence[Result], memory: Mapping[str, float]) -> None:
    """Write ``results.json`` and ``results.svg`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(to_json(machine, results, memory), encoding="utf-8")
    (folder / "results.svg").write_text(picture(machine, results), encoding="utf-8")
