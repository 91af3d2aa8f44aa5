"""Hold the kit against every case of the ``onnx`` package, and write down what came out.

Each case runs in a worker process, so that one that ends its process costs one case.

    python scripts/conformance.py              compare with tests/conformance/expected.json; exit code 1 if one is worse
    python scripts/conformance.py --update     write that file and docs/conformance.md
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import onnx_cases  # noqa: E402
from conformance_report import Expectation, Row, is_worse, report  # noqa: E402
from onnx_verdict import Verdict, judge  # noqa: E402

EXPECTED = ROOT / "tests" / "conformance" / "expected.json"
DOCUMENT = ROOT / "docs" / "conformance.md"
SECONDS_PER_CASE = 600
RANDOM_SEED = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the expectation and the document")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--worker", metavar="SUITE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, json.load(sys.stdin))
        return 0
    rows = judge_everything(options.jobs)
    found, text = Expectation.of(rows), report(rows)
    if options.update:
        EXPECTED.write_text(found.to_json(), encoding="ascii", newline="\n")
        DOCUMENT.write_text(text, encoding="utf-8", newline="\n")
        return 0
    expected = Expectation.read(EXPECTED).outcomes
    worse = [
        f"{key}: {outcome}, expected {expected[key]}"
        for key, outcome in found.outcomes.items()
        if is_worse(outcome, expected.get(key))
    ]
    print("\n".join(worse) or "No case is worse than expected.")
    if not worse and (found.outcomes != expected or text != DOCUMENT.read_text(encoding="utf-8")):
        print("Something is better, or new: python scripts/conformance.py --update writes it down.")
    return int(bool(worse))


def judge_everything(jobs: int) -> list[Row]:
    """One row per case, in the order of the suites."""
    keys = {suite: list(onnx_cases.cases(suite)) for suite in onnx_cases.SUITES}
    keys["network"] = [f"{name}{seed}" for name in onnx_cases.NETWORKS for seed in ("", f" {RANDOM_SEED}")]
    shares = [(suite, names[job::jobs]) for suite, names in keys.items() for job in range(jobs)]
    results: dict[str, dict[str, Any]] = {}
    queue = iter(shares)
    lock = threading.Lock()

    def serve() -> None:
        while True:
            with lock:
                share = next(queue, None)
            if share is None:
                return
            for key, row in run_worker(*share):
                results[key] = row
                print(f"{row['outcome']:18} {row['key']}", flush=True)

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [Row(**results[key]) for names in keys.values() for key in names]


def run_worker(suite: str, keys: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Judge ``keys`` in a process of its own, and in another from the next one on if that process dies."""
    left = list(keys)
    while left:
        command = [sys.executable, __file__, "--worker", suite]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(left))
            process.stdin.close()
            for line in process.stdout:
                yield left.pop(0), json.loads(line)
        if left:
            key = left.pop(0)
            ran_out = f" (an exception, or more than {SECONDS_PER_CASE} s)" if process.returncode == 1 else ""
            case = load(suite, key)
            yield key, row_of(case, Verdict("crashed", reason=f"exit code {process.returncode}{ran_out}"))


def work(suite: str, keys: Sequence[str]) -> None:
    """Print one line of JSON per case, as soon as it is judged."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what TVM and the importer print goes elsewhere
    for key in keys:
        faulthandler.dump_traceback_later(SECONDS_PER_CASE, exit=True)
        case = load(suite, key)
        print(json.dumps(row_of(case, judge(case))), file=out, flush=True)


def load(suite: str, key: str) -> onnx_cases.Case:
    if suite != "network":
        return onnx_cases.cases(suite)[key]
    name, _, seed = key.partition(" ")
    return onnx_cases.network(name, int(seed) if seed else None)


def row_of(case: onnx_cases.Case, verdict: Verdict) -> dict[str, Any]:
    return {"key": case.key, "op": case.op, **dataclasses.asdict(verdict)}


if __name__ == "__main__":
    sys.exit(main())
