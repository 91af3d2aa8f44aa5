"""The command ``npu-kit``.

Exit codes: 0 when all is well, 1 when something asked for failed (one sentence on standard error, no traceback), 2 when
the command line makes no sense. What needs TVM imports it when it is asked for, so the rest works without.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from npu_kit import __version__
from npu_kit.byoc.doctor import describe, diagnose
from npu_kit.errors import NpuKitError, ToolError
from npu_kit.hw import NpuSpec, load_spec, preset_names, spec_to_json
from npu_kit.lessons import copy_lessons
from npu_kit.render.format import format_bytes, number_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``arguments`` are those of the command line by default."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except NpuKitError as error:
        print(f"npu-kit: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("npu-kit: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="npu-kit",
        description="Learn how a compiler backend for an NPU is made, by making one.",
        epilog="The lessons are the main part: npu-kit lessons, then jupyter lab npu_kit_lessons.",
    )
    parser.add_argument("--version", action="version", version=f"npu-kit {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    doctor = commands.add_parser("doctor", help="check that TVM, Graphviz and a C compiler are there and fit")
    doctor.set_defaults(command=_doctor)

    tour = commands.add_parser("tour", help="run a digits classifier through all four stages and check every value")
    tour.add_argument("--spec", default="example", help="machine: a preset's name or a JSON file (default: example)")
    tour.set_defaults(command=_tour)

    spec = commands.add_parser("spec", help="show and check a machine")
    spec.add_argument("spec", nargs="?", default="example", metavar="NAME|FILE", help="default: example")
    spec.add_argument("--json", action="store_true", help="print it as a JSON file to start from")
    spec.add_argument("--list", action="store_true", help="list the machines that come with the kit")
    spec.set_defaults(command=_spec)

    lessons = commands.add_parser("lessons", help="copy the lessons to a folder to work in")
    folder = Path("npu_kit_lessons")
    lessons.add_argument("folder", nargs="?", type=Path, default=folder, help=f"default: {folder}")
    lessons.set_defaults(command=_lessons)
    return parser


def _doctor(options: argparse.Namespace) -> int:
    findings = diagnose()
    print(describe(findings))
    return 1 if any(finding.is_required and not finding.is_ok for finding in findings) else 0


def _spec(options: argparse.Namespace) -> int:
    if options.list:
        for name in preset_names():
            print(f"{name}: {load_spec(name).description}")
        return 0
    machine = load_spec(options.spec)
    print(spec_to_json(machine) if options.json else describe_spec(machine), end="" if options.json else "\n")
    return 0


def describe_spec(spec: NpuSpec) -> str:
    """The machine as text: tiers, engines and power modes, one line each."""
    tile = f"{spec.tile.rows} x {spec.tile.columns}, no side below {spec.tile.minimum}"
    lines = [f"{spec.name}: {spec.description}", "", "Memory tiers"]
    lines += [
        f"  {tier!s:12} {format_bytes(tier.capacity_bytes):>7}"
        f"   {number_of(tier.access_cycles, 'cycle'):>10} an access   {tier.bytes_per_cycle:>3} bytes a cycle"
        for tier in spec.tiers
    ]
    lines += ["", "Engines", *(f"  {e.name:12} {e.rows:>2} x {e.columns}" for e in spec.engines)]
    lines += ["", "Power modes"]
    lines += [
        f"  {mode.name:17} {mode.clock_mhz:>5} MHz   {100 * mode.active_share:>3.0f} % of the lanes"
        + ("   (default)" if mode.name == spec.default_power_mode else "")
        for mode in spec.power_modes
    ]
    lines += ["", f"Output tile {tile}; vectors of {spec.vector_elements}; {', '.join(spec.dtypes)}"]
    return "\n".join([*lines, f"Preferred layout {spec.preferred_layout}"])


def _lessons(options: argparse.Namespace) -> int:
    written, kept = copy_lessons(options.folder)
    print(f"{number_of(len(written), 'notebook')} copied to {options.folder}", end="")
    print(f"; {len(kept)} were there already and stay as they are" if kept else "")
    print(f"Open them: jupyter lab {options.folder}")
    return 0


def _tour(options: argparse.Namespace) -> int:
    try:
        from npu_kit.tour import run_tour
    except ImportError as error:
        raise _no_tvm(error) from None
    return run_tour(options.spec)


def _no_tvm(error: ImportError) -> ToolError:
    return ToolError("TVM cannot be imported", str(error), "npu-kit doctor, which says what to install.")
