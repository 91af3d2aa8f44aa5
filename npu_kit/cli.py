"""The command ``npu-kit``.

Exit codes: 0 when all is well, 1 when something asked for failed (one sentence on standard error, no traceback), 2 when
the command line makes no sense. What needs TVM imports it when it is asked for, so the rest works without.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from npu_kit import __version__
from npu_kit.doctor import describe, diagnose
from npu_kit.errors import NpuKitError, ToolError
from npu_kit.graph.ops import OPS, find_op
from npu_kit.hw import (
    NpuSpec,
    active_lanes,
    load_spec,
    peak_macs_per_second,
    preset_names,
    ridge_macs_per_byte,
    spec_to_json,
)
from npu_kit.lessons import copy_lessons
from npu_kit.plan_command import add_plan_command
from npu_kit.render.format import format_bytes, number_of
from npu_kit.render.op_cards import card, overview
from npu_kit.render.tables import Table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``arguments`` are those of the command line by default."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that this terminal cannot show is shown escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = options.command(options)
        if sys.stdout is not None:  # it is None where the shell closed it
            sys.stdout.flush()
        return code
    except NpuKitError as error:
        print(f"npu-kit: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("npu-kit: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        _drop_output()
        return 1
    except OSError as error:  # a full disk; files that are asked for have errors of their own
        print(f"npu-kit: cannot write the output: {error.strerror or error}", file=sys.stderr)
        _drop_output()
        return 1


def _drop_output() -> None:
    """Let what is still to be written go nowhere: Python writes it when it ends, and would fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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

    add_plan_command(commands)

    spec = commands.add_parser("spec", help="show and check a machine")
    spec.add_argument("spec", nargs="?", default="example", metavar="NAME|FILE", help="default: example")
    spec.add_argument("--json", action="store_true", help="print it as a JSON file to start from")
    spec.add_argument("--list", action="store_true", help="list the machines that come with the kit")
    spec.set_defaults(command=_spec)

    ops = commands.add_parser("ops", help="list the operations that the NPU computes, or show the card of one")
    ops.add_argument("name", nargs="?", metavar="NAME", help="of an operation: conv2d, or relax.nn.conv2d")
    ops.set_defaults(command=_ops)

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


def _ops(options: argparse.Namespace) -> int:
    if options.name is None:
        print(overview())
        return 0
    by_relax_name = {op.relax_name: op.name for op in OPS.values()}
    print(card(find_op(by_relax_name.get(options.name, options.name))))
    return 0


def describe_spec(spec: NpuSpec) -> str:
    """The machine as text: tiers, engines and power modes, one line each."""
    tiers = Table(
        ("memory tier", "capacity", "cycles an access", "bytes a cycle", "pJ a byte"),
        tuple(
            (
                str(tier),
                format_bytes(tier.capacity_bytes),
                str(tier.access_cycles),
                str(tier.bytes_per_cycle),
                f"{tier.energy_pj_per_byte:g}",
            )
            for tier in spec.tiers
        ),
    )
    engines = Table(
        ("engine", "lanes", "of these on"),
        tuple((e.name, f"{e.rows} x {e.columns}", str(active_lanes(spec, e.name))) for e in spec.engines),
    )
    modes = Table(
        ("power mode", "clock", "lanes on", "GMAC a second", "MACs a DRAM byte at the ridge"),
        tuple(
            (
                mode.name + (" (default)" if mode.name == spec.default_power_mode else ""),
                f"{mode.clock_mhz} MHz",
                f"{100 * mode.active_share:.0f} %",
                f"{peak_macs_per_second(spec, mode.name) / 1e9:,.1f}",
                f"{ridge_macs_per_byte(spec, 'L3', mode.name):.1f}",
            )
            for mode in spec.power_modes
        ),
    )
    tile = f"{spec.tile.rows} x {spec.tile.columns}, no side below {spec.tile.minimum}"
    energies = ", ".join(f"{dtype} {pj:g}" for dtype, pj in spec.mac_energy_pj.items())
    rest = [
        f"Output tile {tile}; vectors of {spec.vector_elements}; {', '.join(spec.dtypes)}",
        f"Picojoules a MAC: {energies}",
    ]
    return "\n\n".join([f"{spec.name}: {spec.description}", *map(str, (tiers, engines, modes)), "\n".join(rest)])


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
