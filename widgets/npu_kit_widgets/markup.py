"""Sentences, tables of a call's fate and errors as HTML; every piece of text is escaped here."""

from __future__ import annotations

import html
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING

from npu_kit.errors import NpuKitError, text_of
from npu_kit.render.format import clean, shorten

if TYPE_CHECKING:
    from npu_kit.byoc.report import CallReport

_TRACEBACK_LINES = 60


def paragraph(text: str, kind: str = "") -> str:
    """One paragraph; ``kind`` is "question", "quiet" or ""."""
    attribute = f' class="npu-{kind}"' if kind else ""
    return f"<p{attribute}>{html.escape(clean(text))}</p>"


def status(text: str) -> str:
    """One sentence about what the picture shows; screen readers say it when it changes."""
    return f'<div role="status">{paragraph(text)}</div>' if text else ""


def preformatted(text: str) -> str:
    """Text whose lines and blanks stay as they are."""
    lines = (clean(line) for line in text.splitlines())
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def ordered(items: Iterable[str]) -> str:
    """A numbered list."""
    return f"<ol>{''.join(f'<li>{html.escape(clean(item))}</li>' for item in items)}</ol>"


def error_markup(doing: str, error: BaseException, *, is_first: bool = False) -> str:
    """What went wrong, why and what to try, as an alert; for an error that is none of the kit's, the traceback too.

    Args:
        doing: what the view was about to do: "Planning tile 16".
        error: what was raised.
        is_first: nothing is shown yet, so there is no earlier picture to speak of.
    """
    if isinstance(error, NpuKitError):
        lines = [f"{doing} failed: {error.what}"]
        lines += [f"Why: {error.why}"] if error.why else []
        lines += [f"Try: {error.hint}"] if error.hint else []
        more = ""
    else:
        lines = [
            f"{doing} failed: {type(error).__name__}: {text_of(error)}",
            "Try: read the traceback, from its last line up.",
        ]
        trace = "".join(traceback.format_exception(error)).splitlines()[-_TRACEBACK_LINES:]
        more = f"<details><summary>Traceback</summary>{preformatted(chr(10).join(trace))}</details>"
    if not is_first:
        lines.append("What is shown below is from before this change.")
    return f'<div class="npu-error" role="alert">{"".join(map(paragraph, lines))}{more}</div>'


def call_markup(call: CallReport) -> str:
    """Where one call of the model went, and what each pattern that matched said."""
    place = f"on the NPU, {call.region}, in {call.composite}" if call.is_on_npu else "on the host"
    lines = [
        f"<p><b>{html.escape(clean(f'{call.index}: {call.op} {call.name}'))}</b></p>",
        paragraph(f"Result: {call.type}"),
        paragraph(f"Where: {place}"),
        paragraph(f"Why: {call.reason}"),
    ]
    if call.refusals:
        lines.append(paragraph(f"Refusals: {len(call.refusals)}"))
        lines.append(ordered(f"{short_name(pattern)}: {refusal}" for pattern, refusal in call.refusals))
    return "".join(lines)


def call_title(call: CallReport) -> str:
    """A call in one line, for a list to choose from: ``3: nn.conv2d conv2 (region0)``."""
    place = call.region if call.is_on_npu else "host"
    return (
        f"{call.index}: {shorten(call.op.removeprefix('relax.'), 40)} {shorten(call.name, 24)} ({shorten(place, 24)})"
    )


def short_name(pattern: str) -> str:
    """A pattern's name without the backend's prefix."""
    return pattern.rpartition(".")[2]
