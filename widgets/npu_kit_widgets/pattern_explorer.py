"""Which operations match, and does the order of the patterns matter?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import traitlets

from npu_kit.render.call_list_picture import CallRow, call_list
from npu_kit.render.format import number_of
from npu_kit_widgets.controls import (
    check_callable,
    check_mapping,
    dropdown,
    require_one_of,
    side_by_side,
    text_box,
)
from npu_kit_widgets.markup import call_markup, ordered, paragraph, short_name, status
from npu_kit_widgets.svg_view import SvgView
from npu_kit_widgets.view import View

if TYPE_CHECKING:
    from npu_kit.byoc.report import CallReport, Partition

_LISTED = 12  # patterns of a table that are listed in full; of a longer one only those that took something


class PatternExplorer(View):
    """The calls of a model in order, each with the composite it becomes part of.

    Choose a model and a table of patterns, or leave one pattern out; click a call to read why it is where it is.
    """

    model = traitlets.Unicode()  # a key of ``models``
    table = traitlets.Unicode()  # a key of ``tables``
    without = traitlets.Unicode()  # name of a pattern that is left out, "" for none
    selected = traitlets.Unicode()  # span of the call whose story is told
    partition = traitlets.Any(None, allow_none=True)  # the last Partition that ``run`` gave

    def __init__(
        self,
        models: Mapping[str, Any],
        tables: Mapping[str, Sequence[Any]],
        run: Callable[[Any, Sequence[Any]], Partition],
    ) -> None:
        """Match the first model with the first table and show the result.

        Args:
            models: IRModules by name.
            tables: pattern tables by name, each a list as ``FuseOpsByPattern`` takes it; the first match wins.
            run: partitions a module with a table.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or there is nothing to choose from.
        """
        check_callable("run", run)
        self._models, self._tables = check_mapping("models", models), check_mapping("tables", tables)
        self._run = run
        self._is_updating = False  # the list of patterns to leave out is being replaced
        self._usual: tuple[str, ...] = ()  # names of the patterns that take something when none is left out
        self._last_summary = ""
        self._picture, self._status, self._story = SvgView(), text_box(), text_box()
        self._order = text_box()
        first_model, first_table = next(iter(self._models)), next(iter(self._tables))
        self._leave_out = dropdown("leave out", [("nothing", "")], "")
        controls = [
            dropdown("model", list(self._models), first_model),
            dropdown("patterns", list(self._tables), first_table),
        ]
        super().__init__(
            "Which operations match, and does the order of the patterns matter?",
            [*controls, self._leave_out],
            [self._status, side_by_side(self._picture, self._story), self._order],
            [self._picture],
        )
        self.model, self.table = first_model, first_table
        for name, control in zip(("model", "table", "without"), (*controls, self._leave_out), strict=True):
            self._tie(name, control)
        self._picture.on_pick(lambda span: self.set_trait("selected", span))
        self.observe(self._on_choice, ["model", "table"])
        self.observe(self._on_without, "without")
        self.observe(lambda _: self._tell(), "selected")
        self._on_choice(None)

    def _state(self) -> str:
        return f"{self.model}, {self.table}{f' without {short_name(self.without)}' if self.without else ''}"

    def _on_choice(self, _change: Any) -> None:
        """Another model or table: nothing is left out at first, and what can be left out is what took something."""
        with self._guarded(f"Matching {self.model} with {self.table}"):
            partition = self._match("")
            names = pattern_names(self._tables[self.table])
            used = {call.pattern for call in partition.report}
            self._is_updating = True
            try:
                self._usual = tuple(name for name in names if name in used)
                self._leave_out.options = (("nothing", ""), *((short_name(name), name) for name in self._usual))
                self.without = ""
            finally:
                self._is_updating = False
            self._show(partition)

    def _on_without(self, _change: Any) -> None:
        if not self._is_updating:
            with self._guarded(f"Matching {self.model} without {short_name(self.without)}"):
                self._show(self._match(self.without))

    def _match(self, without: str) -> Partition:
        patterns = [pattern for pattern in self._tables[self.table] if pattern_name(pattern) != without]
        partition: Partition = self._run(self._models[self.model], patterns)
        return partition

    def _show(self, partition: Partition) -> None:
        names = [name for name in pattern_names(self._tables[self.table]) if name != self.without]
        calls = tuple(partition.report)
        title = f"{self.model}, {self.table}" + (f", without {short_name(self.without)}" if self.without else "")
        picture = call_list([call_row(call, names) for call in calls], title)
        summary = _summary(calls, names)
        before = f" Before this change: {self._last_summary}" if self._last_summary not in ("", summary) else ""
        self.partition = partition
        self._last_summary = summary
        self._status.value = status(summary + before)
        self._order.value = _order_markup(calls, names)
        self._picture.show(picture, choices=[call.span for call in calls])
        self.selected = _first_refused_or_fused(calls)
        self._tell()

    def _tell(self) -> None:
        """Frame the selected call and say where it went and why."""
        calls = {call.span: call for call in self.partition.report} if self.partition else {}
        call = calls.get(self.selected)
        self._picture.selected = self.selected if call else ""
        self._story.value = call_markup(call) if call else ""

    @traitlets.validate("model")
    def _check_model(self, proposal: Any) -> str:
        return str(require_one_of("model", proposal["value"], list(self._models)))

    @traitlets.validate("table")
    def _check_table(self, proposal: Any) -> str:
        return str(require_one_of("table", proposal["value"], list(self._tables)))

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> str:
        spans = [call.span for call in self.partition.report] if self.partition else []
        return str(require_one_of("call", proposal["value"], ["", *spans]))

    @traitlets.validate("without")
    def _check_without(self, proposal: Any) -> str:
        return str(require_one_of("pattern to leave out", proposal["value"], ["", *self._usual]))


def pattern_name(pattern: Any) -> str:
    """The name of an entry of a table: a FusionPattern, or a tuple that begins with the name."""
    return str(pattern[0] if isinstance(pattern, tuple) else pattern.name)


def pattern_names(table: Sequence[Any]) -> list[str]:
    """The different names in a table, by priority; a row with two operand orders is two patterns of one name."""
    return list(dict.fromkeys(map(pattern_name, table)))


def call_row(call: CallReport, names: Sequence[str]) -> CallRow:
    """One line of the picture; the note is the pattern's place in the table."""
    return CallRow(
        key=call.span,
        number=call.index,
        op=call.op.removeprefix("relax."),
        name=call.name,
        type=call.type,
        composite=f"{call.region} {call.composite}" if call.is_on_npu else "",
        label=short_name(call.composite) if call.is_on_npu else "host",
        note=f"pattern {names.index(call.pattern) + 1} of {len(names)}" if call.pattern in names else "",
        tooltip=f"{call.index}: {call.op} {call.name}, {call.type}. {call.reason}",
    )


def _composites(calls: Sequence[CallReport]) -> dict[tuple[str, str], str]:
    """(region, composite) -> pattern."""
    return {(call.region, call.composite): call.pattern for call in calls if call.is_on_npu}


def _summary(calls: Sequence[CallReport], names: Sequence[str]) -> str:
    composites = _composites(calls)
    used = len(set(composites.values()))
    taken = sum(call.is_on_npu for call in calls)
    return (
        f"{taken} of {number_of(len(calls), 'call')} matched, in {number_of(len(composites), 'composite')} "
        f"from {used} of {number_of(len(names), 'pattern')}."
    )


def _order_markup(calls: Sequence[CallReport], names: Sequence[str]) -> str:
    """The table in order, with the number of composites that each pattern gave."""
    counts = Counter(_composites(calls).values())
    if len(names) <= _LISTED:
        items = [f"{short_name(name)}: {number_of(counts[name], 'composite')}" for name in names]
        return paragraph("The patterns, in the order in which they are tried:", "quiet") + ordered(items)
    items = [f"{names.index(name) + 1} {short_name(name)} ({counts[name]})" for name in names if counts[name]]
    return paragraph(f"Of {len(names)} patterns, in this order, these took something: {', '.join(items)}.", "quiet")


def _first_refused_or_fused(calls: Sequence[CallReport]) -> str:
    """The span of a call that was refused, else of one that nothing took, else of one in the largest composite."""
    sizes = Counter((call.region, call.composite) for call in calls)
    ranked = sorted(calls, key=lambda c: (not c.refusals or c.is_on_npu, c.is_on_npu, -sizes[c.region, c.composite]))
    return ranked[0].span if ranked else ""
