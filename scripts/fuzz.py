"""Draw thousands of models and hold the kit against TVM's LLVM build and float64, in several processes.

    python scripts/fuzz.py --models 20000 --seed 7

The models run in parts, each in a process of its own, so that neither memory grows nor a crash of TVM ends the rest.
Exit code 1 if a part fails; its output says which model, and the seed to see it again.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/differential/test_models.py::test_fuzz"
PART = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    parts = [(options.seed + first, min(PART, options.models - first)) for first in range(0, options.models, PART)]
    print(f"{options.models} models from seed {options.seed}, in {len(parts)} parts", flush=True)
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (seed, result) in enumerate(pool.map(run_part, parts), 1):
            if result.returncode:
                failed += 1
                print(f"part {number}, seed {seed}: exit code {result.returncode}\n{result.stdout[-6000:]}", flush=True)
            else:
                print(f"part {number} of {len(parts)}: right, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{failed} of {len(parts)} parts failed")
    return int(failed > 0)


def run_part(part: tuple[int, int]) -> tuple[int, subprocess.CompletedProcess[str]]:
    seed, count = part
    environment = os.environ | {"NPU_KIT_FUZZ": str(count), "NPU_KIT_FUZZ_SEED": str(seed)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    return seed, subprocess.run(command, cwd=ROOT, env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True)


if __name__ == "__main__":
    sys.exit(main())
