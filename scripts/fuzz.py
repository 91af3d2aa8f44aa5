"""Draw thousands of models and hold the kit against TVM's LLVM build and float64, in several processes.

    python scripts/fuzz.py --cases 20000 --seed 7      exit code 1 if one is not right, or a process died
    python scripts/fuzz.py --only 7:1234               that case alone, made as small as it still fails

Each part runs in a process of its own, so that neither memory grows nor a crash of TVM ends the rest.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PART = 500  # cases in one process
TOGETHER = 20  # cases whose LLVM code is built in one go
OPTIMIZED = 5  # of so many of these builds one is as LLVM optimizes it, and the others are not, which is faster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=None, help="drawn, and printed, where it is not given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", metavar="SEED:NUMBER", help="run one case, as it is printed where it fails")
    parser.add_argument("--part", nargs=3, type=int, help=argparse.SUPPRESS)  # seed, first case, number of cases
    options = parser.parse_args()
    if options.only:
        seed, number = map(int, options.only.split(":"))
        return run_part(seed, number, 1)
    if options.part:
        return run_part(*options.part)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    return run_all(seed, options.cases, options.jobs)


def run_all(seed: int, cases: int, jobs: int) -> int:
    """Run the cases in parts, and print what comes of each part as it ends."""
    started = time.monotonic()
    print(f"{cases} cases of seed {seed}, {jobs} processes at a time", flush=True)
    parts = [(seed, first, min(PART, cases - first)) for first in range(0, cases, PART)]
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for (_, first, count), result in zip(parts, pool.map(run_process, parts), strict=True):
            failed += result.returncode != 0
            seconds = time.monotonic() - started
            rate = (first + count) / seconds
            print(f"{result.stdout.rstrip()}  [{first + count} of {cases}, {rate:.1f} a second]", flush=True)
            if result.returncode not in (0, 1):
                print(f"the process of cases {seed}:{first} to {first + count - 1} ended with {result.returncode}")
            if result.returncode:
                print(result.stderr.rstrip(), flush=True)  # of the others it holds TVM's warnings
    print(f"{failed} of {len(parts)} parts failed" if failed else f"no mismatch in {cases} cases of seed {seed}")
    return int(failed > 0)


def run_process(part: tuple[int, int, int]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, __file__, "--part", *map(str, part)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_part(seed: int, first: int, count: int) -> int:
    """Run cases ``first`` to ``first + count - 1`` of ``seed``; print one line, and each failure before it."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from fuzz_cases import draw_case, reduce_failure, run_cases

    warnings.simplefilter("ignore")  # NaN in a quantize, int8 products that wrap: drawn on purpose
    agreements, failures = [], []
    for start in range(first, first + count, TOGETHER):
        numbers = range(start, min(start + TOGETHER, first + count))
        opt_level = 0 if (start - first) // TOGETHER % OPTIMIZED else 3
        agreed, failed = run_cases((draw_case(seed, number) for number in numbers), opt_level)
        agreements += agreed
        failures += failed
        for failure in failed:
            print(f"case {failure.case.name}: {type(failure.error).__name__}: {failure.error}\n  {failure.case}")
            smaller = reduce_failure(failure)
            print(f"  smaller: {type(smaller.error).__name__}: {smaller.error}\n  {smaller.case}", flush=True)
    with_llvm = sum(agreement.with_llvm for agreement in agreements)
    calls = sum(agreement.npu_calls for agreement in agreements)
    print(
        f"{count} cases: {len(failures)} wrong, {len(agreements)} compared with float64, "
        f"{with_llvm} with TVM's LLVM build, {calls} calls on the NPU"
    )
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
