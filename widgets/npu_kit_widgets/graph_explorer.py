"""What does one call of the model become in the JSON graph?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import traitlets

from npu_kit.graph.ir import Graph
from npu_kit.graph.serialize import to_json
from npu_kit.render import Diagram, draw, graph_diagram
from npu_kit.render.format import number_of
from npu_kit_widgets.controls import check_callable, dropdown, require_one_of, side_by_side, text_box
from npu_kit_widgets.markup import call_title, preformatted, status
from npu_kit_widgets.svg_view import SvgView
from npu_kit_widgets.view import View

if TYPE_CHECKING:
    from npu_kit.byoc.report import CallReport, Partition, Region


class GraphExplorer(View):
    """The JSON graph of the region that a call went to, with the nodes lowered from it framed, and their text.

    Choose a call from the list, or click a node of the graph.
    """

    selected = traitlets.Unicode()  # span of the chosen call
    nodes = traitlets.Tuple()  # ids of the nodes lowered from it, in its region's graph

    def __init__(self, partition: Partition, lower: Callable[[Any, str], Any]) -> None:
        """Show the call that became part of the largest composite.

        Args:
            partition: a partitioned model.
            lower: turns a region's function and symbol into a Graph, or into a pair that begins with one:
                ``npu_kit.byoc.codegen.lower.lower``.

        Raises:
            TypeError: ``lower`` cannot be called.
            ValueError: the model has no call.
        """
        check_callable("lower", lower)
        self._calls: dict[str, CallReport] = {call.span: call for call in partition.report}
        if not self._calls:
            raise ValueError("partition has no call: there is nothing to choose from")
        self._regions: dict[str, Region] = {region.label: region for region in partition.regions}
        self._lower = lower
        self._graphs: dict[str, Graph] = {}  # by region label, lowered when first shown
        self._drawn = ""  # label of the region in the picture
        self._status, self._text = text_box(), text_box()
        self._picture = SvgView(height="560px", framed=False)  # the renderer frames the nodes
        first = _first_of_largest_composite(tuple(self._calls.values()))
        chooser = dropdown("call", [(call_title(call), span) for span, call in self._calls.items()], first)
        super().__init__(
            "What does one call of the model become in the JSON graph?",
            [chooser],
            [self._status, side_by_side(self._picture, self._text)],
            [self._picture],
        )
        self.selected = first
        self._tie("selected", chooser)
        self._picture.on_pick(self._on_pick)
        self.observe(lambda _: self._refresh(), "selected")
        self._refresh()

    def _state(self) -> str:
        return f"{self.selected}, {number_of(len(self.nodes), 'node')}"

    def _refresh(self) -> None:
        call = self._calls[self.selected]
        with self._guarded(f"Lowering {call.region or call.op}"):
            # A call on the host has no graph: the one that was shown stays, without a frame.
            label = call.region or self._drawn or next(iter(self._regions), "")
            ids: tuple[int, ...] = ()
            if label:
                graph = self._graph_of(label)
                ids = nodes_of_call(graph, call)
                picture = draw(_compact(graph_diagram(graph, highlight=ids, attributes=False)))
                kernels = [f"node {i}" for i in graph.kernels]
                self._picture.show(picture, choices=kernels, selected=f"node {ids[0]}" if ids else "")
                self._text.value = "".join(map(preformatted, node_texts(graph, ids)))
            self.nodes, self._drawn = ids, label
            self._status.value = status(_sentence(call, ids))

    def _graph_of(self, label: str) -> Graph:
        if label not in self._graphs:
            region = self._regions[label]
            lowered = self._lower(region.function, region.symbol)
            self._graphs[label] = lowered[0] if isinstance(lowered, tuple) else lowered
        return self._graphs[label]

    def _on_pick(self, key: str) -> None:
        """A node was chosen in the picture: go to the call it came from."""
        node = self._graphs[self._drawn].nodes[int(key.removeprefix("node "))]
        if node.span in self._calls:
            self.selected = node.span

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> str:
        return str(require_one_of("call", proposal["value"], list(self._calls)))


def nodes_of_call(graph: Graph, call: CallReport) -> tuple[int, ...]:
    """Ids of the kernel nodes lowered from ``call``: those that carry its span."""
    return tuple(i for i in graph.kernels if graph.nodes[i].span == call.span)


def _compact(diagram: Diagram) -> Diagram:
    """Number the constants and leave their names, which are made from their content, to the tooltips."""
    boxes = (
        replace(box, title=f"{box.title.partition(':')[0]}: const") if box.kind == "constant" else box
        for box in diagram.boxes
    )
    return replace(diagram, boxes=tuple(boxes))


def node_texts(graph: Graph, ids: tuple[int, ...]) -> list[str]:
    """The JSON objects of some nodes as they stand in the graph's text, one key to a line."""
    objects = json.loads(to_json(graph))["nodes"]
    return [f"nodes[{i}] = {_layout(objects[i])}" for i in ids]


def _layout(value: Any, indent: str = "") -> str:
    """An object with one key to a line, everything inside an array on one."""
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = indent + "  "
    lines = [f"{inner}{json.dumps(key)}: {_layout(item, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _sentence(call: CallReport, ids: tuple[int, ...]) -> str:
    what = f"Call {call.index}, {call.op.removeprefix('relax.')},"
    if not call.is_on_npu:
        return f"{what} has no node: it stays on the host, and only regions are lowered. Why: {call.reason}."
    if not ids:
        return f"{what} has no node of its own in {call.region}: what it does needs no computing."
    numbers = " and ".join(map(str, ids))
    return f"{what} becomes node {numbers} of {call.region}, in composite {call.composite}."


def _first_of_largest_composite(calls: tuple[CallReport, ...]) -> str:
    """The span of the first call in the composite with the most calls; of the first call if none is on the NPU."""
    sizes: dict[tuple[str, str], int] = {}
    for call in calls:
        if call.is_on_npu:
            sizes[call.region, call.composite] = sizes.get((call.region, call.composite), 0) + 1
    return max(calls, key=lambda call: sizes.get((call.region, call.composite), 0)).span
