"""What is in which memory while one tile is computed, and what do a smaller tile or a smaller L1 change?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ipywidgets
import numpy as np
import traitlets

from npu_kit.graph.ir import Graph
from npu_kit.hw import NpuSpec, load_spec
from npu_kit.plan.geometry import tile_count
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.nest import instruction_count
from npu_kit.render import memory_map, tiles, timeline
from npu_kit.render.format import format_bytes, format_count
from npu_kit.render.names import node_names, step_titles
from npu_kit.trace.events import KINDS, Events
from npu_kit_widgets.controls import (
    L1_SIZES,
    check_callable,
    dropdown,
    require_one_of,
    slider,
    stepped_slider,
    text_box,
)
from npu_kit_widgets.markup import status
from npu_kit_widgets.svg_view import SvgView
from npu_kit_widgets.tile_moment import moment_of, tile_sentence
from npu_kit_widgets.view import View

FIRST_TILE = 16
MAX_INSTRUCTIONS = 10_000  # forecasting takes 20 microseconds each; more would make a slider lag
WINDOW = 60  # events of the timeline drawn at a time
PLAY_MILLISECONDS = 500


class TileExplorer(View):
    """The tiles of a planned graph: the current one with the operands it needs, the timeline, the memory map.

    The plan follows the tile and the capacity of L1 while their sliders move. Nothing runs: the events are a forecast.
    """

    tile = traitlets.Int(FIRST_TILE)  # rows and columns of the output tile
    l1_bytes = traitlets.Int()  # capacity of L1
    step = traitlets.Int(0)  # index of the step in the plan
    position = traitlets.Int(0)  # event of the step, or its tile where there are too many events
    plan = traitlets.Instance(Plan, allow_none=True)  # the last plan that was made

    def __init__(
        self,
        graph: Graph,
        spec: NpuSpec | str,
        plan: Callable[[Graph, NpuSpec], Plan],
        forecast: Callable[[Plan, tuple[int, ...]], Events],
    ) -> None:
        """Plan ``graph`` and show the tile in the middle of its first step that has several.

        Args:
            graph: a verified graph.
            spec: the machine; its tile and its L1 are what the sliders change.
            plan: plans a graph on a machine: ``npu_kit.plan.planner.make_plan``.
            forecast: gives the events of some steps of a plan: ``npu_kit.plan.forecast.forecast``.

        Raises:
            TypeError: an argument is of the wrong kind.
            SpecError: there is no such machine.
        """
        check_callable("plan", plan)
        check_callable("forecast", forecast)
        if not isinstance(graph, Graph):
            raise TypeError(f"graph must be a Graph, and is {type(graph).__name__}")
        self._graph, self._spec, self._make_plan, self._forecast = graph, load_spec(spec), plan, forecast
        self._events: Events | None = None  # of the step that is shown, None where they are too many
        self._is_moving_itself = False  # step and position are being adapted to a new plan
        self._largest = math.isqrt(self._spec.tier("L0").capacity_bytes // 4)  # L0 holds one float32 tile
        first = min(max(FIRST_TILE, self._spec.tile.minimum), self._largest)
        own = self._spec.tier("L1").capacity_bytes
        self._sizes = sorted({*L1_SIZES, own})
        self._tiles, self._timeline, self._memory = SvgView(part="tile"), SvgView(part="event"), SvgView(part="piece")
        self._status = text_box()
        self._controls = {
            "tile": slider("tile (rows = columns)", first, self._spec.tile.minimum, self._largest, "380px"),
            "l1_bytes": stepped_slider("L1", [(format_bytes(size), size) for size in self._sizes], own),
            "step": dropdown("step", [("0", 0)], 0),
            "position": slider("event", 0, 0, 0, "420px"),
        }
        self._play = ipywidgets.Play(0, 0, 0, interval=PLAY_MILLISECONDS, show_repeat=False)
        super().__init__(
            "What is in which memory while a tile is computed, and what do a smaller tile or a smaller L1 change?",
            [*self._controls.values(), self._play],
            [self._status, self._timeline, self._tiles, self._memory],
            [self._timeline, self._tiles, self._memory],
        )
        self.tile, self.l1_bytes = first, own
        for name, control in self._controls.items():
            self._tie(name, control)
        # In the browser, so that playing does not need a kernel that answers; set by hand it goes through the slider.
        ipywidgets.jslink((self._play, "value"), (self._controls["position"], "value"))
        self._tiles.on_pick(lambda number: self._go_to_tile(int(number)))
        self._timeline.on_pick(lambda number: self.set_trait("position", int(number)))
        self.observe(self._on_machine, ["tile", "l1_bytes"])
        self.observe(self._on_step, "step")
        self.observe(self._on_position, "position")
        self._on_machine(None)

    def _state(self) -> str:
        return f"tile={self.tile}, L1={format_bytes(self.l1_bytes)}, step={self.step}, position={self.position}"

    @property
    def spec(self) -> NpuSpec:
        """The machine that the sliders stand for; SpecError if it is none."""
        return self._spec.replace(tile=self.tile, capacity_bytes={"L1": self.l1_bytes})

    def _on_machine(self, _change: Any) -> None:
        plan = None
        with self._guarded(f"Planning tile {self.tile} with {format_bytes(self.l1_bytes)} of L1", "machine"):
            plan = self._make_plan(self._graph, self.spec)
        if plan is not None:
            with self._guarded("Showing the plan", "place"):
                wanted = self.step if self.plan else _first_with_tiles(plan)
                self._show_step(plan, min(wanted, len(plan.steps) - 1))

    def _on_step(self, _change: Any) -> None:
        if not self._is_moving_itself and self.plan:
            with self._guarded(f"Showing step {self.step}", "place"):
                self._show_step(self.plan, self.step)

    def _on_position(self, _change: Any) -> None:
        if not self._is_moving_itself and self.plan:
            with self._guarded(f"Showing position {self.position}", "place"):
                self._show_position(self.plan, self.plan.steps[self.step])

    def _show_step(self, plan: Plan, index: int) -> None:
        """Show ``plan``, at a tile in the middle of step ``index``."""
        step = plan.steps[index]
        is_short = instruction_count(plan, (index,)) <= MAX_INSTRUCTIONS
        events = in_time(self._forecast(plan, (index,))) if is_short else None
        memory = memory_map(plan, index)
        options = tuple((f"{i}: {title}", i) for i, title in enumerate(step_titles(plan, with_composite=True)))
        self._is_moving_itself = True
        try:
            self.plan, self._events = plan, events
            if self._controls["step"].options != options:
                self._controls["step"].options = options
            self.step = index
            last = (tile_count(step) if events is None else len(events)) - 1
            self._set_range(max(last, 0), "tile" if events is None else "event")
            self.position = _middle(step, events)
        finally:
            self._is_moving_itself = False
        self._memory.show(memory, choices=())
        self._show_position(plan, step)

    def _show_position(self, plan: Plan, step: Step) -> None:
        events = self._events
        if tile_count(step) == 0:
            self._status.value = status(f"Step {step.index} has no tile: its result has no elements.")
            self._tiles.svg = self._timeline.svg = ""
            return
        if events is None:
            picture = tiles(plan, step.index, self.position)
            where = tile_sentence(plan, step, self.position)
            most, count = format_count(MAX_INSTRUCTIONS), format_count(instruction_count(plan, (step.index,)))
            why = f"at most {most} instructions are forecast while a slider moves, and the step has {count}"
            self._status.value = status(f"{where} There is no timeline: {why}.")
            self._tiles.show(picture)
            self._timeline.svg = ""
            return
        moment = moment_of(plan, step, events, self.position)
        first = self.position - self.position % WINDOW
        picture = tiles(plan, step.index, moment.tile, moment.chunk)
        lanes = timeline(events, names=node_names(plan, step), first=first, count=WINDOW, cursor=self.position)
        self._status.value = status(moment.sentence)
        self._tiles.show(picture)
        self._timeline.show(lanes)

    def _go_to_tile(self, number: int) -> None:
        """Move to the first compute of an output tile."""
        if self._events is None:
            self.position = number
        else:
            self.position = _first_compute(self._events, number)

    def _set_range(self, last: int, what: str) -> None:
        """Let the slider and the player end at ``last``, wherever they stand."""
        self.position = 0
        self._controls["position"].max = self._play.max = last
        self._controls["position"].description = what

    @traitlets.validate("tile")
    def _check_tile(self, proposal: Any) -> int:
        return _require_within("tile", proposal["value"], self._spec.tile.minimum, self._largest)

    @traitlets.validate("l1_bytes")
    def _check_size(self, proposal: Any) -> int:
        return int(require_one_of("size of L1 in bytes", proposal["value"], self._sizes))

    @traitlets.validate("step")
    def _check_step(self, proposal: Any) -> int:
        return _require_within("step", proposal["value"], 0, len(self.plan.steps) - 1 if self.plan else 0)

    @traitlets.validate("position")
    def _check_position(self, proposal: Any) -> int:
        return _require_within("position", proposal["value"], 0, self._controls["position"].max)


def in_time(events: Events) -> Events:
    """The events in the order in which they start, so that the position is a walk through time."""
    return events[np.argsort(events["start"], kind="stable")]


def _first_with_tiles(plan: Plan) -> int:
    """The first step with more than one output tile, step 0 if none has."""
    return next((step.index for step in plan.steps if tile_count(step) > 1), 0)


def _middle(step: Step, events: Events | None) -> int:
    """A position in the middle of the step, so that some tiles are done and some are to come."""
    tile = tile_count(step) // 2
    return tile if events is None else _first_compute(events, tile)


def _first_compute(events: Events, tile: int) -> int:
    """Index of the first compute of an output tile, 0 if it has none."""
    computes = (events["tile"] == tile) & (events["kind"] == KINDS.index("compute"))
    return int(computes.argmax()) if len(events) else 0


def _require_within(what: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise traitlets.TraitError(f"no {what} {value}: it goes from {low} to {high}")
    return value
