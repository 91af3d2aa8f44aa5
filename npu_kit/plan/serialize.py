"""A plan as JSON text, and back: what was decided can be kept, compared, edited and run again.

The text holds the whole plan: graph, machine, steps, places and reasons. It is data, never code. Text that comes in is
not trusted: kinds and keys are checked here, then the rules of graph and machine, and of ``verify``.
So ``execute`` gets from a file what it could get from the planner, or nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry
from npu_kit.graph.strict_json import MAX_TEXT, JsonReader, shown
from npu_kit.hw.presets import spec_from_json, spec_to_json
from npu_kit.outside import OutsideError, read_text, write_text
from npu_kit.plan.ir import Axis, Buffer, Operand, Plan, Reason, Slot, Step
from npu_kit.plan.planned_graph import planned_graph_from, planned_graph_to
from npu_kit.plan.verify import verify_plan

FORMAT_VERSION = 1

_READ = JsonReader("plan JSON", PlanError)
_T = TypeVar("_T")
_PLAN = ("format_version", "graph", "places", "spec", "power_mode", "steps", "buffers", "reasons")
_STEP = ("family", "nodes", "engine", "epilogue_engines", "axes", "operands", "epilogue_operands", "output")
_STEP_REST = ("output_tier", "slots", "dataflow", "prefetch", "spills")
_BUFFER = ("name", "entry", "role", "tier", "offset_bytes", "nbytes", "first_step", "last_step")
_SLOT = ("name", "tier", "offset_bytes", "nbytes", "parts", "copies")


def plan_to_json(plan: Plan) -> str:
    """Write a plan as ASCII text; equal plans give equal text.

    Raises:
        PlanError: the plan breaks a rule, or is larger than 64 MiB of text.
    """
    verify_plan(plan)
    graph, places = planned_graph_to(plan.graph)
    root = {
        "format_version": FORMAT_VERSION,
        "graph": graph,
        "places": places,
        "spec": json.loads(spec_to_json(plan.spec)),
        "power_mode": plan.power_mode,
        "steps": [_step_to_object(step) for step in plan.steps],
        "buffers": [_fields(buffer, _BUFFER) | {"entry": _entry_to(buffer.entry)} for buffer in plan.buffers],
        "reasons": [
            _fields(reason, ("decision", "subject", "chosen", "because")) | {"numbers": dict(reason.numbers)}
            for reason in plan.reasons
        ],
    }
    text = json.dumps(root, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"
    _READ.check_length(text)
    return text


def plan_from_json(text: str) -> Plan:
    """Read a plan; ``plan_from_json(plan_to_json(plan)) == plan``.

    Raises:
        PlanError, GraphError, SpecError: anything at all is wrong; the message names the place or the rule.
    """
    root = _READ.object(_READ.parse(text), "the top level", _PLAN)
    version = _READ.integer(root["format_version"], "format_version")
    if version != FORMAT_VERSION:
        _READ.refuse("format_version", f"it is {version} and this kit reads {FORMAT_VERSION}")
    plan = Plan(
        graph=planned_graph_from(root["graph"], root["places"]),
        spec=spec_from_json(json.dumps(root["spec"]), "plan JSON, spec"),
        power_mode=_READ.text(root["power_mode"], "power_mode"),
        steps=_indexed(root["steps"], "steps", _step_from_object),
        buffers=_READ.items(root["buffers"], "buffers", _buffer),
        reasons=_READ.items(root["reasons"], "reasons", _reason),
    )
    verify_plan(plan)
    return plan


def save_plan(plan: Plan, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write ``plan`` as a JSON file.

    Raises:
        PlanError: the plan breaks a rule, the file exists and ``overwrite`` is False, or it cannot be written.
    """
    target, text = Path(path), plan_to_json(plan)
    try:
        write_text(target, text, overwrite=overwrite)
    except OutsideError as error:
        raise PlanError(f"cannot write {target}", error.why, error.hint) from None
    return target


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a JSON file.

    Raises:
        PlanError, GraphError, SpecError: the file cannot be read, or as ``plan_from_json``.
    """
    try:
        text = read_text(path, MAX_TEXT, "ascii")
    except OutsideError as error:
        raise PlanError(f"cannot read {path}", error.why, error.hint) from None
    return plan_from_json(text)


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _entry_to(entry: Entry) -> list[int]:
    return [entry.node, entry.output]


def _step_to_object(step: Step) -> dict[str, Any]:
    return _fields(step, (*_STEP, *_STEP_REST)) | {
        "nodes": list(step.nodes),
        "epilogue_engines": list(step.epilogue_engines),
        "axes": [[axis.name, axis.extent, axis.tile] for axis in step.axes],
        "operands": [_operand_to_object(operand) for operand in step.operands],
        "epilogue_operands": [[_operand_to_object(one) for one in group] for group in step.epilogue_operands],
        "output": _entry_to(step.output),
        "slots": [_fields(slot, _SLOT) for slot in step.slots],
        "prefetch": [_entry_to(entry) for entry in step.prefetch],
        "spills": [_entry_to(entry) for entry in step.spills],
    }


def _operand_to_object(operand: Operand | None) -> dict[str, Any] | None:
    """An operand, whose slot has its name; nothing for the running tile."""
    if operand is None:
        return None
    return _fields(operand, ("name", "tier", "is_panel")) | {"entry": _entry_to(operand.entry)}


def _step_from_object(value: Any, where: str, index: int) -> Step:
    found = _READ.object(value, where, (*_STEP, *_STEP_REST))
    slots = _READ.items(found["slots"], f"{where}.slots", _slot)
    by_name = {slot.name: slot for slot in slots}

    def operand(item: Any, place: str) -> Operand:
        given = _READ.object(item, place, ("name", "tier", "is_panel", "entry"))
        name = _READ.text(given["name"], f"{place}.name")
        if name not in by_name:
            _READ.refuse(f"{place}.name", f"the step has no slot {name!r:.80}")
        if type(given["is_panel"]) is not bool:
            _READ.refuse(f"{place}.is_panel", f"needs true or false and got {shown(given['is_panel'])}")
        entry, tier = _entry(given["entry"], f"{place}.entry"), _READ.text(given["tier"], f"{place}.tier")
        return Operand(name, entry, tier, by_name[name], given["is_panel"])

    def group(item: Any, place: str) -> tuple[Operand | None, ...]:
        return _READ.items(item, place, lambda one, here: None if one is None else operand(one, here))

    return Step(
        index=index,
        family=_READ.text(found["family"], f"{where}.family"),
        nodes=_READ.items(found["nodes"], f"{where}.nodes", _READ.integer),
        engine=_READ.text(found["engine"], f"{where}.engine"),
        epilogue_engines=_READ.items(found["epilogue_engines"], f"{where}.epilogue_engines", _READ.text),
        axes=_READ.items(found["axes"], f"{where}.axes", _axis),
        operands=_READ.items(found["operands"], f"{where}.operands", operand),
        epilogue_operands=_READ.items(found["epilogue_operands"], f"{where}.epilogue_operands", group),
        output=_entry(found["output"], f"{where}.output"),
        output_tier=_READ.text(found["output_tier"], f"{where}.output_tier"),
        slots=slots,
        dataflow=_READ.text(found["dataflow"], f"{where}.dataflow"),
        prefetch=_READ.items(found["prefetch"], f"{where}.prefetch", _entry),
        spills=_READ.items(found["spills"], f"{where}.spills", _entry),
    )


def _axis(value: Any, where: str) -> Axis:
    items = _READ.array(value, where)
    if len(items) != 3:
        _READ.refuse(where, f"needs [name, extent, tile] and has {len(items)} items")
    extent, tile = (_READ.integer(item, where) for item in items[1:])
    return Axis(_READ.text(items[0], where), extent, tile)


def _slot(value: Any, where: str) -> Slot:
    found = _READ.object(value, where, _SLOT)
    numbers = {key: _READ.integer(found[key], f"{where}.{key}") for key in _SLOT[2:]}
    return Slot(_READ.text(found["name"], f"{where}.name"), _READ.text(found["tier"], f"{where}.tier"), **numbers)


def _buffer(value: Any, where: str) -> Buffer:
    found = _READ.object(value, where, _BUFFER)
    name, role, tier = (_READ.text(found[key], f"{where}.{key}") for key in ("name", "role", "tier"))
    numbers = {key: _READ.integer(found[key], f"{where}.{key}") for key in _BUFFER[4:]}
    return Buffer(name, _entry(found["entry"], f"{where}.entry"), role, tier, **numbers)


def _reason(value: Any, where: str) -> Reason:
    found = _READ.object(value, where, ("decision", "subject", "chosen", "because", "numbers"))
    words = ("decision", "subject", "chosen", "because")
    decision, subject, chosen, because = (_READ.text(found[key], f"{where}.{key}") for key in words)
    given: Mapping[str, Any] = _READ.object(found["numbers"], f"{where}.numbers", (), others=True)
    for key, number in given.items():
        if type(number) not in (int, float):
            _READ.refuse(f"{where}.numbers.{key}", f"needs a number and got {shown(number)}")
    return Reason(decision, subject, chosen, because, dict(given))


def _entry(value: Any, where: str) -> Entry:
    numbers = _READ.items(value, where, _READ.integer)
    if len(numbers) != 2:
        _READ.refuse(where, f"needs [node, output] and got {list(numbers)!r:.80}")
    return Entry(*numbers)


def _indexed(value: Any, where: str, read: Callable[[Any, str, int], _T]) -> tuple[_T, ...]:
    return tuple(read(item, f"{where}[{index}]", index) for index, item in enumerate(_READ.array(value, where)))
