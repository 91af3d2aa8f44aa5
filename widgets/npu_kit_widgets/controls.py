"""The controls of the views: ipywidgets with their labels in full, and checks of what a notebook passes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
import traitlets

from npu_kit_widgets.svg_view import SvgView

L1_SIZES = tuple(kb * 1024 for kb in (2, 4, 8, 16, 32, 64, 128, 256))  # to try, beside the machine's own

_WHOLE_LABEL = {"description_width": "initial"}


def text_box(markup: str = "") -> Any:
    """A place for escaped HTML, in the notebook's own font and colours."""
    box = ipywidgets.HTML(markup)
    box.add_class("npu-text")
    return box


def dropdown(label: str, options: Sequence[Any], value: Any) -> Any:
    """A list to choose from; an option is a value, or a pair of a label and a value."""
    layout = {"width": "auto", "max_width": "480px"}
    return ipywidgets.Dropdown(
        options=tuple(options), value=value, description=label, style=_WHOLE_LABEL, layout=layout
    )


def checkbox(label: str, value: bool) -> Any:
    """A box to tick."""
    return ipywidgets.Checkbox(value, description=label, indent=False, style=_WHOLE_LABEL, layout={"width": "auto"})


def slider(label: str, value: int, low: int, high: int, width: str = "300px") -> Any:
    """Whole numbers from ``low`` to ``high``; the value follows while the handle moves."""
    return ipywidgets.IntSlider(
        value, low, high, description=label, style=_WHOLE_LABEL, layout={"width": width, "max_width": "100%"}
    )


def stepped_slider(label: str, options: Sequence[tuple[str, Any]], value: Any, width: str = "300px") -> Any:
    """A slider over labelled values that do not lie evenly."""
    return ipywidgets.SelectionSlider(
        options=tuple(options),
        value=value,
        description=label,
        style=_WHOLE_LABEL,
        layout={"width": width, "max_width": "100%"},
    )


def check_callable(name: str, value: object) -> None:
    """TypeError if ``value``, the argument called ``name``, cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, and is {value!r:.80}")


def check_mapping(name: str, value: object) -> dict[str, Any]:
    """A copy of a mapping of names to things to choose from; TypeError or ValueError if there is nothing to choose."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to things, and is {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} is empty: there is nothing to choose from")
    return dict(value)


def require_one_of(what: str, value: Any, known: Sequence[Any]) -> Any:
    """``value``; TraitError if it is not one of ``known``."""
    if value not in known:
        raise traitlets.TraitError(f"no {what} {value!r}: there are {', '.join(map(repr, known))}")
    return value


def side_by_side(picture: SvgView, panel: Any) -> Any:
    """A picture in its own size and a panel of text beside it; below it where the page is too narrow for both."""

    def fit(_change: Any) -> None:
        picture.layout.flex = f"0 1 {picture.width_pixels + 2}px"

    picture.observe(fit, "svg")
    picture.layout.min_width = panel.layout.min_width = "0"
    panel.layout.flex = "1 1 300px"
    row = ipywidgets.HBox((picture, panel))
    row.add_class("npu-beside")
    return row


def column(*parts: Any) -> Any:
    """Parts below each other."""
    return ipywidgets.VBox(parts)
