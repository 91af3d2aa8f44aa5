"""Any name at all, through every renderer: what comes out is one well-formed, harmless piece of text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from graphs import conv_relu_pool
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pictures import HOSTILE_NAMES, check, parse, rename

from npu_kit import render
from npu_kit.byoc.report import CallReport, Partition, Refusal, Region, Report
from npu_kit.errors import NpuKitError, PlanError
from npu_kit.graph.ir import Graph
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.hw.presets import load_spec
from npu_kit.plan.forecast import forecast
from npu_kit.plan.metrics import total_metrics
from npu_kit.plan.planner import make_plan
from npu_kit.render.call_list_picture import CallRow, call_list
from npu_kit_widgets.markup import call_markup, call_title, error_markup, ordered, paragraph, preformatted, status

PIECES = (
    '"',
    "'",
    "<",
    ">",
    "&",
    "\\",
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b[2J",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ud800",
    "🙂",
)
NAMES = (
    st.lists(st.text(max_size=8) | st.sampled_from((*PIECES, *HOSTILE_NAMES)), min_size=1, max_size=5)
    .map("".join)
    .filter(bool)
)
SPEC = load_spec()
GRAPH = conv_relu_pool()


def report_of(name: str) -> Report:
    refusal = Refusal("memory", name, name, name)
    call = CallReport(0, name, name, name, name, "npu", name, name, name, ((name, refusal),), name)
    return Report((call, replace(call, where="host")), (name,))


def partition_of(name: str) -> Partition:
    return Partition(None, None, None, SPEC, (Region(name, name, None, (name,), (0,)),), report_of(name), False, name)


def plan_of(name: str) -> Any:
    return make_plan(rename(GRAPH, name), SPEC)


def diagram_of(name: str) -> render.Diagram:
    boxes = (render.Box(name, "op", name, place="npu"), render.Box(name + "2", "op", name, place="host"))
    return render.Diagram(name, boxes, (render.Arrow(name, name + "2"),))


def events_of(name: str) -> Any:
    return forecast(plan_of(name), (0,))


PICTURES: dict[str, Callable[[str], str]] = {
    "graph": lambda name: render.graph(rename(GRAPH, name)),
    "diagram": lambda name: render.draw(diagram_of(name)),
}
OWN_PICTURES: dict[str, Callable[[str], str]] = {
    "memory map": lambda name: render.memory_map(plan_of(name), 0, title=name),
    "occupancy": lambda name: render.occupancy(plan_of(name), title=name),
    "tiles": lambda name: render.tiles(plan_of(name), 0),
    "timeline": lambda name: render.timeline(events_of(name), names=dict.fromkeys(range(20), name), title=name),
    "roofline": lambda name: render.roofline(
        {name: total_metrics(plan_of("x")), name + "2": total_metrics(plan_of("x"))}
    ),
    "images": lambda name: render.images([np.zeros((2, 2))], [name], title=name),
    "call list": lambda name: call_list([CallRow(name, 0, name, name, name, name, name, name, name)], name),
}
LINES: dict[str, Callable[[str], str]] = {
    "report": lambda name: str(report_of(name)),
    "steps": lambda name: str(render.steps_table(plan_of(name))),
    "reasons": lambda name: str(render.reasons_table(plan_of(name))),
    "table": lambda name: str(render.Table((name, name), ((name, name),))),
    "outline": lambda name: render.outline(diagram_of(name)),
    "region": lambda name: repr(Region(name, name, None, (), ())),
    "partition": lambda name: repr(partition_of(name)),
    "title": lambda name: call_title(report_of(name).calls[0]),
}
HTML: dict[str, Callable[[str], str]] = {
    "report": lambda name: report_of(name)._repr_html_(),
    "partition": lambda name: partition_of(name)._repr_html_(),
    "table": lambda name: render.Table((name, name), ((name, name),))._repr_html_(),
    "call": lambda name: call_markup(report_of(name).calls[0]),
    "error of the kit": lambda name: error_markup(name, PlanError(name, name, name)),
    "any error": lambda name: error_markup(name, KeyError(name)),
    "paragraph": paragraph,
    "status": status,
    "list": lambda name: ordered([name]),
    "preformatted": preformatted,
}
TAGS = {
    "wbr",
    *("p", "b", "div", "pre", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "style"),
}
UNDRAWABLE = ("Cc", "Cs", "Co", "Cn")
hostile = settings(max_examples=25, deadline=None)


def renderers(found: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("draw", found.values(), ids=found)


def assert_plain(text: str) -> None:
    """No character that a terminal or a browser acts on, and none that no encoding can write."""
    text.encode()
    for character in text:
        assert character == "\n" or unicodedata.category(character) not in UNDRAWABLE, hex(ord(character))
        assert unicodedata.bidirectional(character) not in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI", "FSI")


class Harmless(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ("class", "role", "style", "scope"), name
            assert "<" not in (value or "") and "url" not in (value or "")


@renderers(PICTURES)
@hostile
@given(name=NAMES)
def test_pictures_that_graphviz_lays_out(draw: Callable[[str], str], name: str) -> None:
    parse(draw(name))


@renderers(OWN_PICTURES)
@hostile
@given(name=NAMES)
def test_pictures(draw: Callable[[str], str], name: str) -> None:
    check(draw(name))


@renderers(LINES)
@hostile
@given(name=NAMES)
@example(name="x" * 10_000)
def test_text(draw: Callable[[str], str], name: str) -> None:
    found = draw(name)
    assert_plain(found)
    assert found.count("\n") == draw("x").count("\n")  # a name makes no lines
    assert max(map(len, found.splitlines())) < 2_000


@renderers(HTML)
@hostile
@given(name=NAMES)
def test_html(draw: Callable[[str], str], name: str) -> None:
    found = draw(name)
    found.encode()
    assert not set(found) & set("\0\x1b\u202e\u2066")
    parser = Harmless()
    parser.feed(found)
    parser.close()


@hostile
@given(name=NAMES)
def test_errors_and_files(name: str) -> None:
    """A name goes through text and back, or is refused; what is told of it is one short line."""
    graph: Graph = rename(GRAPH, name)
    try:
        assert from_json(to_json(graph)) == graph
    except NpuKitError as error:
        assert_plain(str(error))
        assert len(str(error)) < 3_000
    with pytest.raises(NpuKitError) as caught:
        load_spec(name)
    assert len(str(caught.value)) < 3_000
    assert_plain(str(caught.value))
