"""DOT text to SVG, on any machine: find a Graphviz, run it with a time limit.

The pip package ``graphviz-pure`` comes first, before a system ``dot``: it is one binary with its own font widths, so a
lesson, a golden file and the README get the same bytes on every machine, and a half-installed system Graphviz (no
plugins, no fonts) is never met. Set ``NPU_KIT_DOT`` to ``pure``, ``system`` or ``pygraphviz`` to force one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from npu_kit.errors import RenderError, ToolError

FORMATS = ("svg", "dot", "plain")
TIMEOUT_SECONDS = 10.0
VARIABLE = "NPU_KIT_DOT"
BACKENDS = ("pure", "system", "pygraphviz")

_INSTALL = "pip install graphviz-pure (or: apt-get install graphviz, conda install -c conda-forge graphviz)"


class DotTimeout(ToolError):
    """Graphviz did not finish the layout in time."""


def find_backend() -> tuple[str, Path | None]:
    """The backend that ``render_dot`` will use, and its program (None for pygraphviz).

    Raises:
        ToolError: none is installed, or not the one that NPU_KIT_DOT asks for.
    """
    forced = os.environ.get(VARIABLE, "")
    if forced and forced not in BACKENDS:
        raise ToolError(f"{VARIABLE}={forced!r} names no backend", f"known are {', '.join(BACKENDS)}", "unset it")
    for name in (forced,) if forced else BACKENDS:
        if name == "pygraphviz":
            if importlib.util.find_spec("pygraphviz") is not None:
                return name, None
        elif program := _pure() if name == "pure" else _on_path("dot"):
            return name, program
    wanted = f"{VARIABLE} asks for {forced!r}, which is" if forced else f"{', '.join(BACKENDS)} are all"
    raise ToolError("cannot draw a graph", f"{wanted} not installed here", _INSTALL)


def render_dot(dot_text: str, format: str = "svg", *, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """Lay out ``dot_text`` and return it as text.

    Args:
        dot_text: a graph in the DOT language.
        format: "svg" (without prolog and comments, ready to stand inside HTML), "dot" or "plain".
        timeout_seconds: when to give up; dot needs about 9 s for 1,000 nodes and 5,000 edges.

    Raises:
        RenderError: another format, or DOT that Graphviz does not accept; with its message.
        ToolError: no Graphviz here. DotTimeout, a subclass: the layout took too long.
    """
    if format not in FORMATS:
        raise RenderError(f"cannot draw a graph as {format!r}", f"known formats are {', '.join(FORMATS)}")
    _, program = find_backend()
    output = _run(program, dot_text, format, timeout_seconds) if program else _run_pygraphviz(dot_text, format)
    return _strip_prolog(output) if format == "svg" else output


def _run(program: Path, dot_text: str, format: str, timeout_seconds: float) -> str:
    try:
        done = subprocess.run(
            [str(program), f"-T{format}"],
            input=dot_text.encode("utf-8"),
            capture_output=True,  # graphviz-pure warns on stderr about every non-ASCII letter
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DotTimeout(
            f"{program.name} gave up on a graph of {len(dot_text):,} characters",
            f"no layout after {timeout_seconds:g} s",
            "draw less: collapse the composites or regions, or print the outline",
        ) from None
    except OSError as error:
        raise ToolError(f"cannot start {program}", str(error), _INSTALL) from error
    if done.returncode != 0:
        message = done.stderr.decode("utf-8", "replace").strip()
        raise RenderError(f"{program.name} refused the graph", message[:500] or f"exit status {done.returncode}")
    return done.stdout.decode("utf-8")


def _run_pygraphviz(dot_text: str, format: str) -> str:
    import pygraphviz

    try:
        drawn: bytes = pygraphviz.AGraph(dot_text).draw(format=format, prog="dot")
    except (ValueError, OSError) as error:  # its DotError is a ValueError
        raise RenderError("pygraphviz refused the graph", str(error)[:500]) from error
    return drawn.decode("utf-8")


def _strip_prolog(svg: str) -> str:
    return re.sub(r"<!--.*?-->\n?", "", svg[svg.index("<svg") :], flags=re.DOTALL)


def _pure() -> Path | None:
    program = "graphviz-pure" + (".exe" if os.name == "nt" else "")
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        if (Path(folder) / program).is_file():
            return Path(folder) / program
    return _on_path(program)


def _on_path(program: str) -> Path | None:
    found = shutil.which(program)
    return Path(found) if found else None
