"""What goes to the NPU, what stays on the host, and why?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from npu_kit.hw import NpuSpec, load_spec
from npu_kit.render import Diagram, Picture, bundle_constants, draw
from npu_kit.render.format import format_bytes, number_of
from npu_kit_widgets.controls import (
    L1_SIZES,
    check_callable,
    check_mapping,
    checkbox,
    column,
    dropdown,
    require_one_of,
    side_by_side,
    stepped_slider,
    text_box,
)
from npu_kit_widgets.markup import call_markup, call_title, paragraph, status
from npu_kit_widgets.svg_view import SvgView
from npu_kit_widgets.view import View

if TYPE_CHECKING:
    from npu_kit.byoc.report import CallReport, Partition

FIRST_L1 = 16 * 1024  # too small for a tile of a convolution with many channels, so something is refused


class PartitionExplorer(View):
    """The regions of a model under a few options; each call tells why it is where it is.

    ``run`` gets the module and the keyword arguments of ``npu_kit.partition``: ``spec`` (a machine whose L1 has the
    chosen size), ``merge`` ("safe" or "never") and ``bind_constants``.
    """

    model = traitlets.Unicode()  # a key of ``models``
    merge = traitlets.Bool(True)  # adjacent composites share a region
    bind_constants = traitlets.Bool(True)  # weights are inside the regions
    l1_bytes = traitlets.Int(FIRST_L1)  # capacity of L1
    selected = traitlets.Unicode()  # span of the call whose story is told
    partition = traitlets.Any(None, allow_none=True)  # the last Partition that ``run`` gave

    def __init__(
        self,
        models: Mapping[str, Any],
        run: Callable[[Any, dict[str, Any]], Partition],
        *,
        spec: NpuSpec | str = "example",
        describe: Callable[[Partition], Diagram] | None = None,
    ) -> None:
        """Partition the first model and show the result.

        Args:
            models: IRModules by name.
            run: partitions a module under such options: ``lambda mod, options: npu_kit.partition(mod, **options)``.
            spec: the machine to begin with.
            describe: extracts what the picture shows; None for ``npu_kit.byoc.describe``, which needs TVM.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or there is nothing to choose from.
            SpecError: there is no such machine.
        """
        check_callable("run", run)
        self._models, self._run, self._spec = check_mapping("models", models), run, load_spec(spec)
        self._describe = describe or _describe_with_tvm
        self._sizes = sorted({*L1_SIZES, self._spec.tier("L1").capacity_bytes})
        self._status, self._story = text_box(), text_box()
        self._picture = SvgView(height="560px")
        first = next(iter(self._models))
        self._call = dropdown("call", [("none", "")], "")
        controls = {
            "model": dropdown("model", list(self._models), first),
            "merge": checkbox("merge composites into regions", self.merge),
            "bind_constants": checkbox("weights inside the regions", self.bind_constants),
            "l1_bytes": stepped_slider("L1", [(format_bytes(size), size) for size in self._sizes], self.l1_bytes),
        }
        super().__init__(
            "What goes to the NPU, what stays on the host, and why?",
            [*controls.values()],
            [self._status, side_by_side(self._picture, column(self._call, self._story))],
            [self._picture],
        )
        self.model = first
        for name, control in controls.items():
            self._tie(name, control)
        self._tie("selected", self._call)
        self._picture.on_pick(lambda span: self.set_trait("selected", span))
        self.observe(self._on_choice, list(controls))
        self.observe(lambda _: self._tell(), "selected")
        self._on_choice(None)

    def _state(self) -> str:
        return (
            f"{self.model}, merge={self.merge}, bind_constants={self.bind_constants}, L1={format_bytes(self.l1_bytes)}"
        )

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of ``npu_kit.partition`` that the controls stand for."""
        return {
            "spec": self._spec.replace(capacity_bytes={"L1": self.l1_bytes}),
            "merge": "safe" if self.merge else "never",
            "bind_constants": self.bind_constants,
        }

    def _on_choice(self, _change: Any) -> None:
        with self._guarded(f"Partitioning {self.model}"):
            partition: Partition = self._run(self._models[self.model], self.options)
            diagram = bundle_constants(self._describe(partition))
            picture = draw(diagram)
            self._show(partition, picture)

    def _show(self, partition: Partition, picture: Picture) -> None:
        calls = tuple(partition.report)
        kept = self.selected
        self.partition = partition
        self._status.value = status(_summary(partition))
        self._picture.show(picture, choices=[call.span for call in calls])
        self._call.options = (("none", ""), *((call_title(call), call.span) for call in calls))
        spans = [call.span for call in calls]
        self.selected = kept if kept in spans else _first_refused(calls)
        self._tell()

    def _tell(self) -> None:
        """Frame the selected call and say where it went and why."""
        calls = {call.span: call for call in self.partition.report} if self.partition else {}
        call = calls.get(self.selected)
        self._picture.selected = self.selected if call else ""
        hint = paragraph("Click an operation, or choose a call above, to read why it is where it is.", "quiet")
        self._story.value = call_markup(call) if call else hint

    @traitlets.validate("model")
    def _check_model(self, proposal: Any) -> str:
        return str(require_one_of("model", proposal["value"], list(self._models)))

    @traitlets.validate("l1_bytes")
    def _check_size(self, proposal: Any) -> int:
        return int(require_one_of("size of L1 in bytes", proposal["value"], self._sizes))

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> str:
        spans = [call.span for call in self.partition.report] if self.partition else []
        return str(require_one_of("call", proposal["value"], ["", *spans]))


def _summary(partition: Partition) -> str:
    refused = sum(bool(call.refusals) for call in partition.report.on_host)
    because = f" Of those, {number_of(refused, 'call')} matched a pattern whose check refused." if refused else ""
    return f"{partition.report.summary}{because} {partition.merge_reason}"


def _first_refused(calls: tuple[CallReport, ...]) -> str:
    """The span of a call that was refused and stays on the host, else of one on the host, else of the first."""
    ranked = sorted(calls, key=lambda call: (call.is_on_npu, not call.refusals))
    return ranked[0].span if ranked else ""


def _describe_with_tvm(partition: Partition) -> Diagram:
    # A Partition holds Relax modules, so its picture needs TVM; the package must be importable without.
    from npu_kit.byoc.describe import describe_partition

    return describe_partition(partition)
