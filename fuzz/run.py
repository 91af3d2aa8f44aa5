"""Fuzzes the loaders, guided by coverage: ``python fuzz/run.py --seconds 60 graph spec``; needs ``npu-kit[fuzz]``.

Half of the inputs are made by changing one place of parsed JSON, which gets past the parser; the rest by changing
bytes. A finding is written to ``fuzz/found``: mend it, and move the file to the target's folder in ``fuzz/corpus``.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import atheris

HERE = Path(__file__).resolve().parent
TARGET_NAMES = ("graph", "plan", "spec", "region", "manifest", "arrays")
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2, 3, 7, 255, 2**15, 2**31 - 1, 2**31, 2**63, 10**39, -(10**30), 0.0, -0.5, 1e308),
    *("", "float32", "int8", "float16", "NHWC", "\x00", "\u202e<script>", [], {}, [0], [0, 0, 0], [1, 1, 1, 1]),
)
MOST_BYTES = 20_000


def main() -> int:
    """Fuzz the targets one after the other, each in a process of its own; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=TARGET_NAMES, help=f"of {', '.join(TARGET_NAMES)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        _fuzz(options.inside, options.seconds)
    unknown = [name for name in options.targets if name not in TARGET_NAMES]
    if unknown:
        parser.error(f"no target {unknown[0]!r}")
    command = [sys.executable, __file__, "--seconds", str(options.seconds), "--inside"]
    failed = [name for name in options.targets if subprocess.run([*command, name], check=False).returncode]
    print(f"findings in {', '.join(failed)}: see {HERE / 'found'}" if failed else "nothing found")
    return 1 if failed else 0


def _fuzz(name: str, seconds: int) -> None:
    with atheris.instrument_imports(include=["npu_kit"]):
        from fuzz_targets import CORPUS, TARGETS
    found, grown = HERE / "found" / name, HERE / "grown" / name
    for folder in (found, grown):
        folder.mkdir(parents=True, exist_ok=True)
    arguments = [
        *(sys.argv[0], f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", "-timeout=30", "-rss_limit_mb=3000"),
        *(f"-artifact_prefix={found}/", str(grown), str(CORPUS / name)),
    ]
    mutator = {} if name == "arrays" else {"custom_mutator": _mutate}
    atheris.Setup(arguments, TARGETS[name], **mutator)
    atheris.Fuzz()


def _mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change one to three places of JSON, or bytes where it is none."""
    chance = random.Random(seed)
    try:
        root = json.loads(data)
        if chance.random() < 0.3:
            raise ValueError("bytes, for once")
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, max_size))
    for _ in range(chance.randint(1, 3)):
        _change(root, chance)
    changed = json.dumps(root).encode()
    return changed if len(changed) <= max_size else data[:max_size]


def _change(root: Any, chance: random.Random) -> None:
    owners = _owners(root)
    if not owners:
        return
    owner = chance.choice(owners)
    key = chance.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
    other = chance.choice(owners)
    donor = other[chance.choice(list(other) if isinstance(other, dict) else range(len(other)))]
    kind = chance.random()
    if kind < 0.15:
        del owner[key]
    elif kind < 0.3 and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(donor))
    elif kind < 0.6 and isinstance(owner[key], int):
        owner[key] = chance.choice([owner[key] + 1, owner[key] - 1, owner[key] * 2, chance.randint(0, 40)])
    elif kind < 0.8:
        owner[key] = copy.deepcopy(donor)
    else:
        owner[key] = copy.deepcopy(chance.choice(VALUES))


def _owners(root: Any) -> list[Any]:
    """Every object and array that holds something."""
    found, pending = [], [root]
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list) and value:
            found.append(value)
            pending.extend(value.values() if isinstance(value, dict) else value)
    return found


if __name__ == "__main__":
    sys.exit(main())
