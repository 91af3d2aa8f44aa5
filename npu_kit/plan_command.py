"""The command ``npu-kit plan``: a model's plans as programs, with their costs and reasons; saved, and compared."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_kit.errors import NpuKitError, ToolError
from npu_kit.graph.ir import Graph
from npu_kit.hw import NpuSpec, load_spec
from npu_kit.outside import is_path
from npu_kit.plan.alternatives import alternatives, waits
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.ir import Plan
from npu_kit.plan.nest import instruction_count
from npu_kit.plan.planner import make_plan
from npu_kit.plan.serialize import load_plan, save_plan
from npu_kit.render import program, reasons_table, summary_table
from npu_kit.render.format import format_count, number_of

COSTED_INSTRUCTIONS = 500_000  # the timeline of so many takes about ten seconds
ROWS_AT_ONCE = 5_000  # of an unfolded program


def add_plan_command(commands: Any) -> None:
    """Add ``plan`` to the commands of a parser."""
    plan = commands.add_parser(
        "plan",
        help="show a model's plan as a program: loops, tiles, engines, tiers, bytes and cycles",
        description="Show the plans of a sample model, or a saved plan, as programs: every load, computation and store "
        "with its engine, tiers, offset, bytes and start cycle, repeated tiles folded into loops.",
        epilog="Examples: npu-kit plan mlp --why.  npu-kit plan digits --step 2 --unfold.  "
        "npu-kit plan matmul_relu --json a.json, then npu-kit plan matmul_relu --tile 16 --diff a.json.",
    )
    plan.add_argument(
        "model", metavar="MODEL|FILE", help="a sample model, such as mlp, or a saved plan: a name with a / or .json"
    )
    plan.add_argument("--machine", default="example", metavar="NAME|FILE", help="default: example")
    plan.add_argument("--tile", type=_tile, metavar="N|ROWSxCOLUMNS", help="output tile (default: the machine's)")
    plan.add_argument("--dataflow", choices=DATAFLOWS, help="what stays on the array (default: chosen by cost)")
    plan.add_argument("--power-mode", metavar="MODE", help="default: the machine's")
    plan.add_argument("--region", type=int, metavar="N", help="only this region, counted from 0")
    plan.add_argument("--step", type=int, metavar="N", help="only this step, counted from 0")
    plan.add_argument("--unfold", action="store_true", help="every instruction on a line of its own, no loops")
    plan.add_argument("--why", action="store_true", help="the reason of each decision, with what the next best costs")
    plan.add_argument("--json", type=Path, metavar="FILE", help="save the plan, to be loaded again")
    plan.add_argument("--diff", type=Path, metavar="FILE", help="show only what differs from a saved plan")
    plan.set_defaults(command=run_plan_command)


def run_plan_command(options: argparse.Namespace) -> int:
    """Print what was asked for; returns the exit code.

    Raises:
        NpuKitError: there is no such model, machine, region or step, or no such plan.
    """
    plans = _plans(options)
    if options.region is not None and not 0 <= options.region < len(plans):
        raise NpuKitError(f"no region {options.region}", f"the model has {number_of(len(plans), 'region')}, from 0 on")
    chosen = list(enumerate(plans)) if options.region is None else [(options.region, plans[options.region])]
    if (options.json or options.diff) and len(chosen) != 1:
        raise NpuKitError(f"a file is one plan, and there are {len(chosen)}", "each region has its own", "--region 0")
    for number, plan in chosen:
        if len(plans) > 1:
            print(f"{'' if number == chosen[0][0] else chr(10)}Region {number} of {len(plans)}")
        if options.diff:
            print(program(load_plan(options.diff)).diff(plan))
        else:
            for text in _texts(plan, options):
                print(text)
        if options.json:
            print(f"\nSaved as {save_plan(plan, options.json)}")
    return 0


def _texts(plan: Plan, options: argparse.Namespace) -> Iterator[str]:
    shown = program(plan).filter(step=options.step)
    if options.unfold:
        rows = shown.rows
        yield from (str(rows[first : first + ROWS_AT_ONCE]) for first in range(0, len(rows), ROWS_AT_ONCE))
    else:
        yield str(shown)
    count = instruction_count(plan)
    is_short = count <= COSTED_INSTRUCTIONS
    if options.step is None:
        note = f"{format_count(count)} instructions are too many for a timeline here: no cycles, no waits."
        yield f"\n{summary_table(plan)}" if is_short else f"\n{note}"
    if options.why:
        reasons = (*plan.reasons, *alternatives(plan), *(waits(plan) if is_short else ()))
        yield "\nWhy"
        yield from (f"  {reason}." for reason in reasons)
        yield f"\n{reasons_table(plan, reasons=reasons)}"


def _plans(options: argparse.Namespace) -> list[Plan]:
    if is_path(options.model):
        if options.tile or options.dataflow or options.power_mode or options.machine != "example":
            raise NpuKitError(f"{options.model} is a plan", "it has its machine, tile, dataflow and mode already")
        return [load_plan(options.model)]
    spec = load_spec(options.machine)
    if options.tile is not None:
        spec = spec.replace(tile=options.tile)
    choices = {"dataflow": options.dataflow, "power_mode": options.power_mode}
    return [make_plan(graph, spec, **choices) for graph in _graphs(options.model, spec)]


def _graphs(model: str, spec: NpuSpec) -> list[Graph]:
    try:
        from npu_kit.byoc.codegen.lower import lower
        from npu_kit.byoc.partition import partition
        from npu_kit.zoo import MODELS, build
    except ImportError as error:
        hint = "npu-kit doctor, which says what to install; a saved plan needs no TVM."
        raise ToolError("TVM cannot be imported", str(error), hint) from None
    if model not in MODELS and Path(model).is_file():
        raise NpuKitError(f"no sample model {model!r}", "a file of that name is there", f"./{model}, for the file.")
    parts = partition(build(model), spec, bind_constants=True)
    if not parts.regions:
        first = parts.report[0]
        why = f"nothing of it goes to the NPU of {spec.name}, to begin with {first.op}: {first.reason}"
        raise NpuKitError(f"{model} has no plan", why)
    return [lower(region.function, str(region.function.attrs["global_symbol"]))[0] for region in parts.regions]


def _tile(text: str) -> int | tuple[int, int]:
    """``16`` or ``8x32``."""
    sides = text.split("x")
    if len(sides) > 2 or not all(side.isdecimal() for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is no tile: 16, or 8x32")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))
