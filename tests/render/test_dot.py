"""Finding a Graphviz and running it."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest
from pictures import SVG

from npu_kit.errors import RenderError, ToolError
from npu_kit.render import dot
from npu_kit.render.dot import DotTimeout, find_backend, render_dot

GRAPH = 'digraph { a [label="one"]; b; a -> b }'


@pytest.fixture(autouse=True)
def no_forced_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(dot.VARIABLE, raising=False)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An executable Python script to stand in for dot; a test writes its body with ``fill``."""
    return tmp_path / "dot"


def fill(program: Path, body: str) -> Path:
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)
    return program


def test_svg_comes_without_prolog_and_comments() -> None:
    svg = render_dot(GRAPH)
    assert svg.startswith("<svg")
    assert "<!--" not in svg
    assert ">one</text>" in svg


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert render_dot(GRAPH) == render_dot(GRAPH)


def test_plain_output_lists_nodes_and_edges() -> None:
    lines = render_dot(GRAPH, "plain").splitlines()
    assert [line.split()[0] for line in lines] == ["graph", "node", "node", "edge", "stop"]


def test_the_packaged_program_comes_before_the_system_one(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    monkeypatch.setenv("PATH", str(fill(program, "raise SystemExit(1)").parent), prepend=os.pathsep)
    name, found = find_backend()
    assert name == "pure"
    assert found is not None and found.stem == "graphviz-pure"


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a script with a shebang line")
def test_a_system_dot_is_used_where_it_is_all_there_is(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    fill(program, 'import sys; sys.stdin.read(); print("<?xml?><!-- v --><svg>drawn by the system</svg>")')
    monkeypatch.setattr(dot, "_pure", lambda: None)
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_backend() == ("system", program)
    assert render_dot(GRAPH).strip() == "<svg>drawn by the system</svg>"


def test_pygraphviz_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    class AGraph:
        def __init__(self, text: str) -> None:
            if "->" not in text:
                raise ValueError("no arrow")

        def draw(self, format: str, prog: str) -> bytes:
            return f"<svg>{format} by {prog}</svg>".encode()

    fake = types.ModuleType("pygraphviz")
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]  # find_spec asks for one
    fake.AGraph = AGraph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pygraphviz", fake)
    monkeypatch.setenv(dot.VARIABLE, "pygraphviz")
    assert find_backend() == ("pygraphviz", None)
    assert render_dot(GRAPH) == "<svg>svg by dot</svg>"
    with pytest.raises(RenderError, match="no arrow"):
        render_dot("digraph {}")


def test_without_any_graphviz_the_error_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot, "_pure", lambda: None)
    monkeypatch.setattr(dot, "_on_path", lambda program: None)
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setattr(dot.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match="pip install graphviz-pure"):
        render_dot(GRAPH)
    monkeypatch.setenv(dot.VARIABLE, "system")
    with pytest.raises(ToolError, match="NPU_KIT_DOT asks for 'system', which is not installed"):
        render_dot(GRAPH)


def test_a_forced_backend_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(dot.VARIABLE, "plotly")
    with pytest.raises(ToolError, match=r"'plotly' names no backend.*pure, system, pygraphviz"):
        render_dot(GRAPH)


def test_bad_dot_is_refused_with_graphviz_own_words() -> None:
    with pytest.raises(RenderError, match=r"(?i)syntax error"):
        render_dot("digraph { a -> }")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(RenderError, match="known formats are svg, dot, plain"):
        render_dot(GRAPH, "png")


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a script with a shebang line")
def test_a_layout_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    fill(program, "import time; time.sleep(60)")
    monkeypatch.setattr(dot, "_pure", lambda: program)
    with pytest.raises(DotTimeout, match=r"no layout after 0\.2 s"):
        render_dot(GRAPH, timeout_seconds=0.2)


@pytest.mark.skipif(os.name == "nt", reason="permissions differ")
def test_a_program_that_cannot_be_started_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "graphviz-pure"
    broken.write_bytes(b"\x00not a program")
    broken.chmod(0o755)
    monkeypatch.setattr(dot, "_pure", lambda: broken)
    with pytest.raises(ToolError, match="cannot start"):
        render_dot(GRAPH)


def test_warnings_about_letters_stay_off_the_screen(capfd: pytest.CaptureFixture[str]) -> None:
    svg = render_dot('digraph { a [label="名前 é"] }')
    assert "名前" in svg
    assert capfd.readouterr() == ("", "")
    assert SVG.strip("{}") in svg
