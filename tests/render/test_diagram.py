"""Diagrams: checked, drawn, made smaller, listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pictures import HOSTILE_NAMES, SVG, check, parse, tooltips, words

from npu_kit import render
from npu_kit.errors import RenderError
from npu_kit.render import (
    Arrow,
    Box,
    Diagram,
    Group,
    bundle_constants,
    collapse,
    hide_constants,
    outline,
    to_dot,
)
from npu_kit.render.diagram import picture as diagram_picture
from npu_kit.render.diagram.edit import simplify
from npu_kit.render.dot import DotTimeout, render_dot
from npu_kit.render.format import shorten


@pytest.fixture
def model() -> Diagram:
    """A host operation between an input and a region of two composites; three constants feed one operation."""
    boxes = (
        Box("x", "input", "x", ("1x8 float32",)),
        Box("exp", "op", "exp", place="host", note="no pattern names relax.exp"),
        Box("w", "constant", "8x4 float32", group="dense"),
        Box("matmul", "op", "matmul", engine="matrix", place="npu", group="dense"),
        *(Box(f"c{i}", "constant", "4 float32", group="bn") for i in range(3)),
        Box("norm", "op", "batch_norm", engine="vector", place="npu", group="bn"),
        Box("out", "output", "result 0"),
    )
    groups = (
        Group("region", "region", "region0"),
        Group("dense", "composite", "npu.dense#0", "region"),
        Group("bn", "composite", "npu.batch_norm#1", "region"),
    )
    arrows = (
        Arrow("x", "exp"),
        Arrow("exp", "matmul", "1x8 float32"),
        Arrow("w", "matmul"),
        Arrow("matmul", "norm", "1x4 float32"),
        *(Arrow(f"c{i}", "norm") for i in range(3)),
        Arrow("norm", "out", "1x4 float32"),
    )
    return Diagram("A small model", boxes, arrows, groups)


def plain(diagram: Diagram) -> tuple[int, int]:
    """How many nodes and edges Graphviz reads in the diagram's DOT text."""
    lines = render_dot(to_dot(diagram), "plain").splitlines()
    return sum(line.startswith("node ") for line in lines), sum(line.startswith("edge ") for line in lines)


def named(name: str) -> Diagram:
    """A diagram in which every text is ``name``."""
    boxes = (
        Box("a", "input", name, (name,), tooltip=name, group="g"),
        Box("b", "op", name, (name, name), engine=name, place="npu", note=name, tooltip=name, group="h"),
        Box("c", "output", name),
    )
    groups = (Group("g", "region", name, tooltip=name), Group("h", "composite", name, "g", name))
    return Diagram(name, boxes, (Arrow("a", "b", name, name), Arrow("b", "c", name, name)), groups, (name,))


def test_dot_is_as_in_the_golden_file(model: Diagram, golden: Callable[[str, str], None]) -> None:
    golden("diagram.dot", to_dot(model))


def test_every_box_and_arrow_reaches_graphviz(model: Diagram) -> None:
    assert plain(model) == (len(model.boxes), len(model.arrows))


def test_the_picture_says_what_the_diagram_says(model: Diagram) -> None:
    root = parse(render.draw(replace(model, notes=("Two of three calls.",))))
    shown = words(root)
    for text in ("exp", "matmul", "region0", "npu.dense#0", "no pattern names relax.exp", "Two of three calls."):
        assert text in shown, text
    for label in ("matrix engine", "vector engine", "host", "constant", "input, output"):  # a word per colour
        assert label in shown, label
    keys = {element.get("data-key") for element in root.iter() if element.get("data-key")}
    assert keys == {box.key for box in model.boxes} | {group.key for group in model.groups}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_only_text(name: str) -> None:
    diagram = named(name)
    assert plain(diagram) == (3, 2)
    root = parse(render.draw(replace(diagram, title=name if name.strip() else "untitled")))
    if name.strip():
        assert " ".join(shorten(name, 36).split()) in [" ".join(word.split()) for word in words(root)]
    assert len([e for e in root.iter() if e.get("class") == "node"]) == 3


def test_a_long_name_is_cut_in_the_box_and_whole_in_the_tooltip() -> None:
    root = parse(render.draw(named("x" * 10_000)))
    assert max(map(len, words(root))) < 120
    assert "x" * 10_000 in tooltips(root)
    assert float(root.get("width", "")) < 1000


def test_wide_letters_get_room() -> None:
    """graphviz-pure has no widths for them: their box must be as wide as the text is drawn."""
    name = "名" * 20
    root = parse(render.draw(Diagram("wide", (Box("a", "op", name, engine="conv"),), ())))
    shape = next(e for e in root.iter(f"{SVG}g") if e.get("class") == "node").find(f"{SVG}path")
    assert shape is not None
    numbers = [float(pair.split(",")[0]) for pair in shape.get("d", "").strip("M").replace("C", " ").split()]
    assert max(numbers) - min(numbers) >= 20 * 12


def test_a_highlighted_box_differs_by_more_than_colour(model: Diagram) -> None:
    marked = replace(model, boxes=tuple(replace(box, is_highlighted=box.key == "exp") for box in model.boxes))
    assert to_dot(marked).count("penwidth=4") == 1


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda d: replace(d, boxes=(*d.boxes, d.boxes[0])), "x"),
        (lambda d: replace(d, boxes=(*d.boxes, Box("new", "opp", "t"))), "opp"),
        (lambda d: replace(d, boxes=(*d.boxes, Box("new", "op", "t", group="lost"))), "lost"),
        (lambda d: replace(d, boxes=(*d.boxes, Box("region", "op", "t"))), "region"),
        (lambda d: replace(d, arrows=(Arrow("x", "nowhere"),)), "nowhere"),
        (lambda d: replace(d, groups=d.groups[::-1]), "bn"),
        (lambda d: replace(d, groups=(*d.groups, d.groups[0])), "region"),
        (lambda d: replace(d, groups=(*d.groups, Group("new", "zone", "t"))), "zone"),
    ],
)
def test_a_broken_diagram_is_refused_by_name(model: Diagram, change: Callable[[Diagram], Diagram], key: str) -> None:
    with pytest.raises(RenderError, match=repr(key)):
        to_dot(change(model))


def test_collapsing_composites(model: Diagram) -> None:
    small = collapse(model, "composite")
    assert [box.key for box in small.boxes] == ["x", "exp", "dense", "bn", "out"]
    dense = small.boxes[2]
    assert (dense.kind, dense.title, dense.rows, dense.engine) == (
        "group",
        "npu.dense#0",
        ("1 operation", "matrix"),
        "matrix",
    )
    assert [(a.source, a.target) for a in small.arrows] == [
        ("x", "exp"),
        ("exp", "dense"),
        ("dense", "bn"),
        ("bn", "out"),
    ]
    assert [group.key for group in small.groups] == ["region"]
    assert plain(small) == (5, 4)


def test_collapsing_regions_takes_what_is_inside_along(model: Diagram) -> None:
    small = collapse(model, "region")
    assert [box.key for box in small.boxes] == ["x", "exp", "region", "out"]
    assert small.boxes[2].rows == ("2 operations", "matrix, vector")
    assert small.groups == ()
    again = collapse(collapse(model, "composite"), "region")
    assert [box.key for box in again.boxes] == [box.key for box in small.boxes]


def test_hiding_and_bundling_constants(model: Diagram) -> None:
    hidden = hide_constants(model)
    assert not [box for box in hidden.boxes if box.kind == "constant"]
    assert hidden.notes == ("4 constants not drawn.",)
    assert plain(hidden) == (5, 4)
    bundled = bundle_constants(model)
    constants = [box for box in bundled.boxes if box.kind == "constant"]
    assert [(box.title, box.rows) for box in constants] == [("8x4 float32", ()), ("3 constants", ("3 of 4 float32",))]
    assert plain(bundled) == (7, 6)


def test_a_constant_with_two_readers_is_not_bundled(model: Diagram) -> None:
    shared = replace(model, arrows=(*model.arrows, Arrow("c0", "matmul")))
    assert bundle_constants(shared) == shared


def test_nothing_to_leave_out_changes_nothing(model: Diagram) -> None:
    bare = Diagram("bare", model.boxes[:2], model.arrows[:1])
    assert hide_constants(bare) == collapse(bare, "region") == bundle_constants(bare) == bare
    assert simplify(model, len(model.boxes)) == model


def test_simplifying_stops_as_soon_as_it_is_small_enough(model: Diagram) -> None:
    assert [len(simplify(model, limit).boxes) for limit in (9, 8, 5, 4, 1)] == [9, 5, 5, 4, 4]


def test_the_outline_indents_what_is_inside(model: Diagram) -> None:
    assert outline(model).splitlines() == [
        "- x  [input, 1x8 float32]",
        "- exp  [host]",
        "region0",
        "  npu.dense#0",
        "    - 8x4 float32  [constant]",
        "    - matmul  [matrix, npu]",
        "  npu.batch_norm#1",
        *["    - 4 float32  [constant]"] * 3,
        "    - batch_norm  [vector, npu]",
        "- result 0  [output]",
    ]


def chain(length: int, per_group: int) -> Diagram:
    boxes = tuple(Box(f"b{i}", "op", f"op{i}", group=f"g{i // per_group}" if per_group else "") for i in range(length))
    groups = tuple(Group(f"g{i}", "composite", f"c{i}") for i in range(-(-length // per_group) if per_group else 0))
    return Diagram("chain", boxes, tuple(Arrow(f"b{i}", f"b{i + 1}") for i in range(length - 1)), groups)


def test_a_large_graph_is_drawn_with_its_composites_collapsed() -> None:
    root = parse(render.draw(chain(800, 8)))
    assert len([e for e in root.iter() if e.get("class") == "node"]) == 100
    assert "Each composite is drawn as one box." in words(root)


def test_a_graph_that_is_too_large_becomes_a_list() -> None:
    root = check(render.draw(chain(2000, 0)))
    assert words(root)[0] == "chain: as a list, because 2,000 boxes are too many to draw."
    assert "- op0" in words(root)
    assert words(root)[-1].startswith("... and 1,8")


def test_a_graph_on_which_graphviz_runs_out_of_time_becomes_a_list(
    model: Diagram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(dot_text: str) -> str:
        raise DotTimeout("gave up", "no layout after 10 s")

    monkeypatch.setattr(diagram_picture, "render_dot", too_slow)
    root = check(render.draw(model))
    assert words(root)[0] == "A small model: as a list, because no layout after 10 s."
