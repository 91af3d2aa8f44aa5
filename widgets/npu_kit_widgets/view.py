"""What all views share: a question, a few controls, pictures that follow them, errors that are shown and never lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ipywidgets
import traitlets

from npu_kit_widgets.controls import text_box
from npu_kit_widgets.markup import error_markup, paragraph
from npu_kit_widgets.svg_view import SvgView


class View(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Base of the explorers: lays out its parts, ties traits to controls, guards callbacks, has a static twin.

    The state of a view is its traits. A control is tied to one, so moving the control and assigning the trait are the
    same thing. What a view computes from its state runs inside ``_guarded``: an error is shown in the view as text and
    kept in ``error``, and the pictures stay as they were.
    """

    error = traitlets.Instance(BaseException, allow_none=True)  # what is wrong now, None if nothing

    def __init__(
        self, question: str, controls: Sequence[Any], body: Sequence[Any], pictures: Sequence[SvgView]
    ) -> None:
        """Lay out the view, from top to bottom.

        Args:
            question: what the view answers.
            controls: widgets that change its state.
            body: everything below them.
            pictures: those of the pictures in ``body`` that the static twin shows.
        """
        self._question = question
        self._pictures = tuple(pictures)
        self._alert = text_box()
        # JupyterLab hands the first messages of a view to the kernel's main thread and later ones to another thread (of
        # a subshell): two changes can be in work at once, and the older one must not draw last.
        self._turn = threading.RLock()
        self._failed: dict[str, tuple[BaseException, str]] = {}  # by topic: what was raised, and how it is shown
        row = ipywidgets.HBox(tuple(controls))
        row.add_class("npu-controls")
        super().__init__((text_box(paragraph(question, "question")), row, self._alert, *body))
        self.add_class("npu-view")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._state()})"

    def _state(self) -> str:
        """The state in a few words, for ``repr``."""
        raise NotImplementedError

    def _tie(self, name: str, control: Any) -> None:
        """Keep the trait ``name`` and the value of ``control`` equal, beginning with the trait's."""
        traitlets.link((self, name), (control, "value"))

    @contextmanager
    def _guarded(self, doing: str, topic: str = "") -> Iterator[None]:
        """Show what the block raises, instead of losing it in a log, until a block of the same topic goes well.

        One block of a view runs at a time: the one that runs last sees the newest state.

        Args:
            doing: what is about to be done: "Planning tile 16".
            topic: which part of the state it is about, for a view where one part can be wrong and another right.
        """
        with self._turn:
            failed = {name: told for name, told in self._failed.items() if name != topic}
            try:
                yield
            except (Exception, SystemExit) as error:
                # Whatever a callable of the notebook raises has to reach the reader; a sys.exit() would end the kernel.
                is_first = not any(view.svg for view in self._pictures)
                failed[topic] = (error, error_markup(doing, error, is_first=is_first))
            self._failed = failed
            self.error = next((error for error, _ in failed.values()), None)
            self._alert.value = "".join(markup for _, markup in failed.values())

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        data = super()._repr_mimebundle_(**kwargs)
        if data is None:
            return None
        pictures = [view.picture._repr_html_() for view in self._pictures if view.svg]
        return {**data, "text/html": "\n".join([paragraph(self._question), *pictures])}
