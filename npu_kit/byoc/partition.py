"""Cuts a model into regions for the NPU and a rest for the host, with a reason for every call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions

from npu_kit.byoc import BACKEND
from npu_kit.byoc.codegen.lower import lower
from npu_kit.byoc.explain import explain
from npu_kit.byoc.model.normalize import first_line, prepare, why_malformed
from npu_kit.byoc.model.walk import composites_of, model_functions, operators_in, region_functions, walk
from npu_kit.byoc.patterns.pattern_operators import required_operators
from npu_kit.byoc.patterns.table import pattern_rows
from npu_kit.byoc.patterns.watch import Recorder, watch
from npu_kit.byoc.report import Partition
from npu_kit.byoc.run.callback import call_through
from npu_kit.doctor import require_tvm
from npu_kit.errors import NpuKitError, PartitionError, PlanError, UnsupportedError
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.planner import make_plan

MERGE_MODES = ("safe", "always", "never")


def partition(
    mod: IRModule,
    spec: NpuSpec | str | os.PathLike[str] = "example",
    patterns: Sequence[Any] | None = None,
    merge: str = "safe",
    bind_constants: bool = False,
) -> Partition:
    """Find what the NPU can compute, and cut it out of the model.

    Args:
        mod: a Relax model, before LegalizeOps.
        spec: the machine, or the name or file of one.
        patterns: what a composite may hold, most specific first: a list as FuseOpsByPattern takes it, with names that
            begin with ``example_npu.``. None is the kit's own table, with its checks bound to ``spec``.
        merge: whether adjacent composites share a region, so that what passes between them can stay on the chip.
            "safe": where TVM's merging is known to work, otherwise one region per composite; "never": one region per
            composite; "always": merge or raise.
        bind_constants: keep weights inside the regions; otherwise they arrive as extra arguments.

    Raises:
        PartitionError: ``mod`` is no Relax model, or cannot be merged though ``merge`` is "always"; a pattern's name
            does not begin with ``example_npu.``. What a check of ``patterns`` raises comes out as it was raised.
        UnsupportedError: ``mod`` holds what TVM does not survive.
    """
    if not isinstance(merge, str) or merge not in MERGE_MODES:
        raise PartitionError(f"merge={merge!r:.80}", f"it is one of {', '.join(map(repr, MERGE_MODES))}")
    if not isinstance(bind_constants, bool):
        raise PartitionError(f"bind_constants={bind_constants!r:.80}", "it is True or False")
    require_tvm()
    machine = load_spec(spec)
    recorder = Recorder()
    watched = watch(pattern_rows(machine) if patterns is None else patterns, recorder)
    _refuse_other_backends(watched)
    prepared = _prepared(mod)
    _refuse_taken(prepared)
    # Each pattern costs a pass over the module, and most patterns of a table need operators that a model lacks.
    present = operators_in(prepared)
    possible = [pattern for pattern in watched if required_operators(pattern.pattern) <= present]
    module, obstacle = _cut(prepared, possible, merge, bind_constants, recorder, machine)
    report, regions = explain(prepared, module, watched, recorder)
    is_merged = bool(regions) and not obstacle
    if not regions:
        obstacle = "nothing matched"
    return Partition(
        original=mod,
        prepared=prepared,
        module=module,
        spec=machine,
        regions=regions,
        report=report,
        merged=is_merged,
        merge_reason="Adjacent composites share a region." if is_merged else f"Not merged: {obstacle}.",
    )


def _prepared(mod: Any) -> IRModule:
    """``prepare(mod)``; where TVM's passes fail at a module that is not well formed, what is wrong with it."""
    try:
        prepared: IRModule = call_through(prepare, mod)
        return prepared
    except NpuKitError:
        raise
    except Exception as error:
        malformed = why_malformed(mod)
        if not malformed:
            raise
        why = f"{malformed:.300}" if malformed == first_line(error) else f"{malformed:.300} ({first_line(error):.300})"
        hint = "relax.analysis.well_formed(mod), which names the first fault, until it names none."
        raise PartitionError("this module is not well formed", why, hint) from error


def _refuse_other_backends(patterns: Sequence[Any]) -> None:
    """Patterns whose regions would go to a codegen that is not the kit's, and to none where there is no such one."""
    for pattern in patterns:
        backend, _, rest = str(pattern.name).partition(".")
        if backend != BACKEND or not rest:
            own = rest or ("mine" if backend in ("", BACKEND) else backend)
            raise PartitionError(
                f"pattern {pattern.name!r}",
                f"what stands before the dot in a pattern's name is the backend, and it must be {BACKEND}",
                f"the name '{BACKEND}.{own}'.",
            )


def _refuse_taken(mod: IRModule) -> None:
    """A module that has regions of this backend already: what is left of it would look like the whole model."""
    for symbol, function in region_functions(mod):
        if str(function.attrs["Codegen"]) == BACKEND:
            raise PartitionError(
                "this module is partitioned already",
                f"{symbol[:80]} is a region of {BACKEND}",
                "the module as it was before, or Partition.original.",
            )


def _cut(
    prepared: IRModule,
    patterns: Sequence[Any],
    merge: str,
    bind_constants: bool,
    recorder: Recorder,
    machine: NpuSpec,
) -> tuple[IRModule, str]:
    """The partitioned module, and why its composites are not merged, "" if they are."""
    obstacle = "merge is 'never'" if merge == "never" else _merge_obstacle(prepared)
    if not obstacle:
        fused = _fuse(prepared, patterns, bind_constants, False, recorder)
        try:
            merged = call_through(_merge, fused)
            obstacle = _why_too_large(merged, machine)
            if not obstacle:
                return merged, ""
        except Exception as error:  # whatever TVM raises: the other way to cut always works
            obstacle = f"TVM's merging raised {type(error).__name__}, {_last_line(error)}"
    if merge == "always":
        raise PartitionError("cannot merge composites into regions", obstacle, "merge='safe' for one region each.")
    return _fuse(prepared, patterns, bind_constants, True, recorder), obstacle


def _fuse(
    mod: IRModule, patterns: Sequence[Any], bind_constants: bool, one_by_one: bool, recorder: Recorder
) -> IRModule:
    """Group what matches into composites; where ``one_by_one``, wrap each in a region of its own."""
    fuse = FuseOpsByPattern(patterns, bind_constants=bind_constants, annotate_codegen=one_by_one)
    try:
        return call_through(fuse, mod)
    except BaseException as error:
        if recorder.error is not None:
            raise recorder.error from None
        if not isinstance(error, Exception):
            raise
        hint = "a check with npu_kit.byoc.patterns.checks.check_flow, which refuses matches that something else reads."
        raise PartitionError("the patterns cannot be fused", _last_line(error), hint) from error


def _merge(mod: IRModule) -> IRModule:
    """Merge adjacent composites. TVM looks for them in ``main`` only, so the entry bears that name meanwhile."""
    ((entry, _),) = model_functions(mod)
    name = str(entry.name_hint)
    return _rename(MergeCompositeFunctions()(_rename(mod, name, "main")), "main", name)


def _merge_obstacle(mod: IRModule) -> str:
    """Why TVM cannot merge composites in ``mod``, "" if it can."""
    functions = [(var, function) for var, function in mod.functions.items() if isinstance(function, relax.Function)]
    if len(functions) != 1:
        names = ", ".join(sorted(str(var.name_hint) for var, _ in functions))
        return f"merging needs a module of one function, and this one has {len(functions)} ({names})"
    ((entry, function),) = functions
    for bound in walk(function):
        if bound.value is None:
            return f"merging does not know MatchCast, and {bound.var.name} is one"
        if isinstance(bound.value, relax.If):
            return f"merging does not know If, and {bound.var.name} is one"
        if isinstance(bound.value, relax.Function):
            return f"merging does not know inner functions, and {bound.var.name} is one"
        if isinstance(bound.value, relax.Call):
            if entry.same_as(bound.value.op):
                return f"{entry.name_hint} calls itself"
            if any(isinstance(argument, ir.StringImm) for argument in bound.value.args):
                return f"merging does not know text as an argument, and {bound.var.name} has one"
    if entry.name_hint != "main" and any(var.name_hint == "main" for var in mod.get_global_vars()):
        return "merging works on a function called main, and that name belongs to a TensorIR function here"
    return ""


def _why_too_large(mod: IRModule, machine: NpuSpec) -> str:
    """Why a region of several composites does not fit the machine where each alone does, "" if all fit.

    Inside a region everything that passes between composites may have to stand in DRAM at once.
    """
    for symbol, function in region_functions(mod):
        if str(function.attrs["Codegen"]) != BACKEND or len(composites_of(function)) < 2:
            continue
        try:
            graph, _ = lower(function, symbol)
            if sum(node.outputs[0].nbytes for node in graph.nodes) > machine.tier("L3").capacity_bytes:
                make_plan(graph, machine)
        except PlanError as error:
            return f"as one region, {error.what}: {error.why}"
        except UnsupportedError:
            continue  # whoever compiles it hears of it
    return ""


def _rename(mod: IRModule, old: str, new: str) -> IRModule:
    if old == new:
        return mod
    functions = {}
    for var, function in mod.functions.items():
        if var.name_hint == old:
            var, function = ir.GlobalVar(new), function.with_attr("global_symbol", new)
        functions[var] = function
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
