"""One SVG in the page, whose parts can be chosen with the mouse or the keyboard."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from npu_kit.render.picture import Picture

_HERE = Path(__file__).parent
_PART_NAME = re.compile(r"[a-z][a-z-]*")


class SvgView(anywidget.AnyWidget):
    """Shows ``svg``, frames the part called ``selected``, and reports which part was chosen.

    A part is an element with a ``data-`` attribute; the attribute's value is its id. The renderers write ``data-key``
    (graphs), ``data-tile``, ``data-event`` and others. The front end drops whatever in the SVG could run, load or lead
    anywhere.

    >>> view = SvgView('<svg xmlns="http://www.w3.org/2000/svg"><g data-key="a"/></svg>', "One group")
    >>> view
    SvgView('One group')
    """

    _esm = _HERE / "svg_view.js"
    _css = _HERE / "svg_view.css"

    svg = traitlets.Unicode("").tag(sync=True)
    alt = traitlets.Unicode("").tag(sync=True)  # what the picture is, for readers who do not see it
    part = traitlets.Unicode("key").tag(sync=True)  # "key": the elements with data-key are the parts
    choices: Any = traitlets.Tuple(default_value=None, allow_none=True).tag(sync=True)  # ids; None: every part
    selected = traitlets.Unicode("").tag(sync=True)  # id of the part that is meant, "" for none
    framed = traitlets.Bool(True).tag(sync=True)  # False where the picture itself shows which part is selected
    picked = traitlets.Unicode("")  # id of the part that was chosen last

    def __init__(
        self,
        svg: str = "",
        alt: str = "",
        *,
        part: str = "key",
        choices: Sequence[str] | None = None,
        selected: str = "",
        framed: bool = True,
        height: str = "",
    ) -> None:
        """Make the view; nothing is displayed yet.

        Args:
            svg: the picture, as the renderers write it; "" shows nothing.
            alt: what the picture is; a Picture's own where it is left out.
            part: which ``data-`` attribute makes an element a part.
            choices: ids that can be chosen, in the order of the keyboard; None for all.
            selected: id of the part that is meant; the picture is scrolled until it shows.
            framed: whether the front end draws a frame around it.
            height: CSS length from which on the picture scrolls, such as "560px"; "" for none.

        Raises:
            traitlets.TraitError: ``svg`` is no SVG, ``part`` no attribute's name.
        """
        if isinstance(svg, Picture):
            alt = alt or svg.alt
        chosen = None if choices is None else tuple(choices)
        super().__init__(svg=str(svg), alt=alt, part=part, choices=chosen, selected=selected, framed=framed)
        if height:
            self.layout.max_height = height
            self.layout.overflow = "auto"
        self._callbacks: tuple[Callable[[str], object], ...] = ()
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"SvgView({self.alt!r})"

    def show(self, picture: Picture, *, choices: Sequence[str] | None = None, selected: str = "") -> None:
        """Replace the picture, its name, its parts and the selection, in one message to the front end."""
        with self.hold_sync():
            self.choices = None if choices is None else tuple(choices)
            self.selected = selected
            self.alt = picture.alt
            self.svg = str(picture)

    def on_pick(self, callback: Callable[[str], object]) -> None:
        """Call ``callback(id)`` each time a part is chosen, also when it is the same one again."""
        self._callbacks = (*self._callbacks, callback)

    def part_ids(self) -> list[str]:
        """Ids of the parts that can be chosen, in order."""
        found = dict.fromkeys(html.unescape(name) for name in re.findall(f'data-{self.part}="([^"]*)"', self.svg))
        return list(found) if self.choices is None else [name for name in self.choices if name in found]

    @property
    def width_pixels(self) -> float:
        """The picture's own width; 0 while there is none."""
        found = re.search(r'^\s*<svg[^>]*? width="([0-9.]+)', self.svg)
        return float(found[1]) if found else 0.0

    @property
    def picture(self) -> Picture:
        """The picture as it is now, for a static rendering."""
        return Picture(self.svg, self.alt)

    def _receive(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """A message of the front end; whatever is not the choice of a part that is there is ignored."""
        name = content.get("pick") if isinstance(content, dict) else None
        if not isinstance(name, str) or name not in self.part_ids():
            return
        self.picked = name
        for callback in self._callbacks:
            callback(name)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, "text/html": self.picture._repr_html_()}, metadata

    @traitlets.validate("svg")
    def _check_svg(self, proposal: Any) -> str:
        text: str = proposal["value"]
        if text and not text.lstrip().startswith("<svg"):
            raise traitlets.TraitError(f"svg must begin with '<svg' and begins with {text[:20]!r}")
        return text

    @traitlets.validate("choices")
    def _check_choices(self, proposal: Any) -> tuple[str, ...] | None:
        names: tuple[str, ...] | None = proposal["value"]
        for name in names or ():
            if not isinstance(name, str):
                raise traitlets.TraitError(f"choices must be ids, which are text, and one is {name!r}")
        return names

    @traitlets.validate("part")
    def _check_part(self, proposal: Any) -> str:
        name: str = proposal["value"]
        if not _PART_NAME.fullmatch(name):
            raise traitlets.TraitError(f"part must be small letters and '-', as in data-key, and is {name!r}")
        return name
