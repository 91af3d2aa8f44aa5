"""What a picture of a partitioned model shows, as data: host operations, regions, composites, operations inside.

Bodies are read as ``lower`` reads them, so the picture shows what is computed and not what a composite is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Union

from tvm import ir, relax

from npu_kit.byoc.codegen.lower import lower
from npu_kit.byoc.model.calls import describe_type, relax_name, span_label
from npu_kit.byoc.model.evaluate import Evaluator, Scope
from npu_kit.byoc.model.walk import is_model_function, model_functions
from npu_kit.byoc.report import CallReport, Partition, Region, decisive
from npu_kit.errors import NpuKitError
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.steps import engine_of
from npu_kit.render.diagram import Arrow, Box, Diagram, Group, bundle_constants


@dataclass(frozen=True)
class _Tensor:
    """A tensor at run time: the box that makes it, and its type in words."""

    box: str
    type: str


_Value = Union[_Tensor, "tuple[_Value, ...]", relax.Function, None]  # None: no tensor (a shape, a number, a dtype)


def describe_partition(partition: Partition) -> Diagram:
    """Extract the drawable parts of ``partition``, for ``npu_kit.render.draw``.

    Every call of a region is drawn on its own; a function that the model calls elsewhere is one box on the host.
    """
    description = _Description(partition)
    functions = model_functions(partition.module)
    for var, function in functions:
        description.function(str(var.name_hint), function, is_alone=len(functions) == 1)
    diagram = Diagram(
        title="Partitioned model",
        boxes=tuple(description.boxes),
        arrows=tuple(description.arrows),
        groups=tuple(description.groups),
        notes=(partition.report.summary, partition.merge_reason),
    )
    return bundle_constants(diagram)


@dataclass
class _Place:
    """Where a body is drawn."""

    group: str  # key of the frame around it
    symbol: str = ""  # of the region, "" on the host
    composite: str = ""  # label, "" outside of one
    entered: int = 0  # composites seen so far in this region


class _Description(Evaluator[_Place]):
    def __init__(self, partition: Partition) -> None:
        self.module = partition.module
        self.rows: dict[str, CallReport] = {row.span: row for row in partition.report if row.span}
        self.regions: dict[str, Region] = {region.symbol: region for region in partition.regions}
        self.engines = {symbol: _engines(region) for symbol, region in self.regions.items()}
        self.boxes: list[Box] = []
        self.kinds: dict[str, str] = {}  # box key -> its kind
        self.arrows: list[Arrow] = []
        self.groups: list[Group] = []

    def function(self, name: str, function: Any, is_alone: bool) -> None:
        """Draw one function of the model; a frame bears its name where there are several."""
        group = "" if is_alone else self.group("function", name, "")
        scope: Scope = {}
        for parameter in function.params:
            name, words = str(parameter.name), describe_type(parameter.ty)
            key = self.box("input", name, (words,), tooltip=f"input {name}: {words}", group=group)
            scope[parameter] = _result(parameter.ty, key)
        result = self.evaluate(function.body, scope, _Place(group))
        for number, tensor in enumerate(_tensors(result)):
            key = self.box("output", f"result {number}", tooltip=tensor.type, group=group)
            self.arrow(tensor, key)

    def constant(self, constant: Any, place: _Place) -> _Value:
        if not isinstance(constant.ty, relax.TensorType):
            return None
        words = describe_type(constant.ty)
        return _result(constant.ty, self.box("constant", words, tooltip=f"constant: {words}", group=place.group))

    def item(self, whole: _Value, index: int) -> _Value:
        return whole[index] if isinstance(whole, tuple) else None

    def cast(self, binding: Any, value: _Value) -> None:
        """A cast computes nothing, so nothing is drawn."""

    def other(self, expr: Any, scope: Scope, place: _Place) -> _Value:
        if not isinstance(expr, relax.If):
            return None
        parts = (expr.cond, expr.true_branch, expr.false_branch)
        inputs = [self.evaluate(part, scope, place) for part in parts]
        return self.operation("if", expr.ty, inputs, place, None, "")

    def call(self, call: Any, scope: Scope, place: _Place) -> _Value:
        arguments = [self.evaluate(argument, scope, place) for argument in call.args]
        callee = self.module[call.op] if isinstance(call.op, ir.GlobalVar) else scope.get(call.op)
        if isinstance(call.op, ir.GlobalVar) and str(call.op.name_hint) in self.regions:
            symbol = str(call.op.name_hint)
            region = self.regions[symbol]
            key = self.group("region", region.label, place.group, f"{region.label}: {symbol}")
            return self.enter(callee, arguments, _Place(key, symbol))
        if isinstance(callee, relax.Function) and callee.attrs is not None and "Composite" in callee.attrs:
            label = f"{callee.attrs['Composite']}#{place.entered}"
            place.entered += 1
            key = self.group("composite", label, place.group)
            return self.enter(callee, arguments, _Place(key, place.symbol, label))
        if isinstance(callee, relax.Function) and not is_model_function(callee):
            return self.enter(callee, arguments, place)
        name = relax_name(call)
        return self.operation(name.removeprefix("relax."), call.ty, arguments, place, span_label(call), name)

    def operation(
        self, title: str, ty: Any, inputs: list[_Value], place: _Place, span: str | None, name: str
    ) -> _Value:
        """A box for one operation, with an arrow for each tensor it reads."""
        row = self.rows.get(span or "")
        is_on_npu = bool(place.symbol)
        words = describe_type(ty)
        key = self.box(
            "op",
            title,
            engine=self.engines[place.symbol].get((place.composite, span or ""), "") if is_on_npu else "",
            place="npu" if is_on_npu else "host",
            note=_why(row) if row and not is_on_npu else "",
            tooltip=_tooltip(name or title, words, row),
            group=place.group,
            key=row.span if row else "",
        )
        for tensor in (tensor for value in inputs for tensor in _tensors(value)):
            self.arrow(tensor, key)
        return _result(ty, key)

    def arrow(self, tensor: _Tensor, target: str) -> None:
        """An arrow with the tensor's type, unless the box it comes from says that already."""
        label = "" if self.kinds[tensor.box] in ("input", "constant") else tensor.type
        self.arrows.append(Arrow(tensor.box, target, label, tensor.type))

    def box(self, kind: str, title: str, rows: tuple[str, ...] = (), key: str = "", **more: str) -> str:
        """Add a box; its key is its call's span, by which a view finds it, or a new one where there is no such call."""
        if not key or key in self.kinds:
            key = f"box {len(self.boxes)}"
        self.kinds[key] = kind
        self.boxes.append(Box(key, kind, title, rows, **more))  # type: ignore[arg-type]  # more holds str fields only
        return key

    def group(self, kind: str, title: str, parent: str, tooltip: str = "") -> str:
        key = f"group {len(self.groups)}"
        self.groups.append(Group(key, kind, title, parent, tooltip))
        return key


def _engines(region: Region) -> dict[tuple[str, str], str]:
    """(composite label, span) -> engine; empty where the NPU cannot compute the region, which compiling will refuse."""
    names: dict[Any, str] = {}  # any will do here, and lower's own would be a hash of every weight

    def name(expr: Any) -> None:
        if isinstance(expr, ir.GenericConst):
            names[expr] = f"constant {len(names)}"

    relax.analysis.post_order_visit(region.function, name)
    try:
        graph, _ = lower(region.function, region.symbol, names)
    except NpuKitError:
        return {}
    return {
        (graph.nodes[node].composite, graph.nodes[node].span): engine_of(graph, node, problem_of(graph, node))
        for node in graph.kernels
    }


def _why(row: CallReport) -> str:
    """Why a call is on the host, what was found first: a picture has room for the beginning only."""
    refused = decisive(row.refusals)
    if refused is None:
        return row.reason
    refusal = refused[1][0]
    return f"refused, {refusal.rule}: found {refusal.found}, needs {refusal.needed}"


def _tooltip(name: str, words: str, row: CallReport | None) -> str:
    if row is None:
        return f"{name}: {words}"
    return f"{row.span} {row.name} = {name}: {row.type}. On the {row.where.replace('npu', 'NPU')}: {row.reason}"


def _result(ty: Any, key: str) -> _Value:
    """The value of type ``ty`` that box ``key`` makes; every tensor of a tuple comes from the same box."""
    if isinstance(ty, relax.TupleType):
        return tuple(_result(field, key) for field in ty.fields)
    return _Tensor(key, describe_type(ty)) if isinstance(ty, relax.TensorType) else None


def _tensors(value: _Value | Iterable[_Value]) -> Iterator[_Tensor]:
    if isinstance(value, _Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)
