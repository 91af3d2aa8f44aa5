"""Timing functions against each other: in alternation, so that all of them meet the same moods of the machine."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

FEW = 3  # runs of what takes seconds


@dataclass(frozen=True)
class Timing:
    """Times of one function in milliseconds."""

    median_ms: float
    fastest_ms: float
    runs: int


@dataclass(frozen=True)
class Comparison:
    """Functions that do the same work, and the one that the others are measured by."""

    name: str
    question: str
    functions: Mapping[str, Callable[[], Any]]
    baseline: str
    few: Collection[str] = ()  # names of functions that take seconds and run only a few times
    notes: tuple[str, ...] = ()  # what is not there, and what to know about a figure


@dataclass(frozen=True)
class Result:
    """The times of one comparison."""

    name: str
    question: str
    baseline: str
    timings: Mapping[str, Timing]
    notes: tuple[str, ...] = ()

    def ratio(self, name: str) -> float:
        """How many times the baseline's median ``name`` takes."""
        return self.timings[name].median_ms / self.timings[self.baseline].median_ms

    def fastest_ratio(self, name: str) -> float:
        """The same of the fastest times, which a busy machine disturbs less."""
        return self.timings[name].fastest_ms / self.timings[self.baseline].fastest_ms


@dataclass
class Stopwatch:
    """Times of one function, run by run, in seconds."""

    times: list[float] = field(default_factory=list)

    def run(self, function: Callable[[], Any]) -> None:
        start = time.perf_counter()
        function()
        self.times.append(time.perf_counter() - start)

    @property
    def timing(self) -> Timing:
        return Timing(1e3 * statistics.median(self.times), 1e3 * min(self.times), len(self.times))


def alternate(comparison: Comparison, seconds: float) -> Result:
    """Run the functions of a comparison one after the other, again and again.

    Each runs once (twice, if it is quick) without being counted, then ``FEW`` times; those that are not in
    ``comparison.few`` then go on for so many seconds in all.
    """
    watches = {name: Stopwatch() for name in comparison.functions}
    for name, function in comparison.functions.items():
        function()
        if name not in comparison.few:
            function()
    for _ in range(FEW):
        for name, function in comparison.functions.items():
            watches[name].run(function)
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for name, function in comparison.functions.items():
            if name not in comparison.few:
                watches[name].run(function)
    timings = {name: watch.timing for name, watch in watches.items()}
    return Result(comparison.name, comparison.question, comparison.baseline, timings, comparison.notes)


def machine(threads: int) -> dict[str, str]:
    """What the times depend on."""
    libraries = [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    blas = ", ".join(f"{i['internal_api']} {i['version']} {i.get('architecture', '')}".strip() for i in libraries)
    busy = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads used": str(threads),
        "load at the start": busy,
        "python": sys.version.split()[0],
        "numpy": f"{np.__version__} with {blas}",
    }


def _processor() -> str:
    """The processor's model: the field that differs from system to system."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict.fromkeys(line.partition(":")[::2] for line in cpuinfo.read_text(encoding="utf-8").splitlines())
        found = {key.strip(): value.strip() for key, value in fields}
        model = found.get("model name", platform.machine())
        numbers = " ".join(found[key] for key in ("cpu family", "model") if key in found)
        return f"{model} (family and model {numbers})" if numbers else model
    return platform.processor() or platform.machine()
