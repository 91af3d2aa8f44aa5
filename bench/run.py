"""Compare the kit's fast mode with its peers on this machine. ``make bench`` runs it; README.md says what for."""

from __future__ import annotations

import os
import sys

# OpenBLAS and the kit read these before or when they first run: set them and start again.
SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if any(name in os.environ for name in SLOWING):
    os.execve(sys.executable, [sys.executable, *sys.argv], {k: v for k, v in os.environ.items() if k not in SLOWING})

import argparse
import json
import subprocess
from pathlib import Path

import report
import threadpoolctl
from comparisons import comparisons
from timing import Result, alternate, machine

HERE = Path(__file__).resolve().parent


def memory() -> dict[str, float]:
    """What planning and running allocate."""
    done = subprocess.run([sys.executable, str(HERE / "memory.py")], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads for everybody (1)")
    parser.add_argument("--seconds", type=float, default=10.0, help="spent on each comparison (10)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only comparisons whose name has TEXT in it")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER", help="for JSON and SVG")
    options = parser.parse_args()
    os.environ["NPU_KIT_THREADS"] = str(options.threads)
    results: list[Result] = []
    with threadpoolctl.threadpool_limits(options.threads):
        host = machine(options.threads)
        print("\n".join(f"{key}: {value}" for key, value in host.items()), flush=True)
        for comparison in comparisons(options.threads, options.only):
            results.append(alternate(comparison, options.seconds))
            print("", *report.lines(results[-1]), sep="\n", flush=True)
    allocated = memory()
    print("\nmemory:", ", ".join(f"{key} {value}" for key, value in allocated.items()))
    report.write(options.results, host, results, allocated)


if __name__ == "__main__":
    main()
