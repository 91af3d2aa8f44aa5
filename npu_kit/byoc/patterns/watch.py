"""Watches TVM match patterns: keeps every refusal with its call, and every error with its traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.dpl import DFPattern
from tvm.relax.transform import FusionPattern

from npu_kit.byoc.model.calls import span_label
from npu_kit.byoc.patterns.checks import check_cycle
from npu_kit.byoc.patterns.refusals import collect_refusals
from npu_kit.byoc.report import Refusal
from npu_kit.errors import PartitionError, kind_of

# The attribute of a composite that names its root call. It also keeps two equal composites apart: TVM would let them
# share one function, and to a learner one of two equal layers would vanish.
ROOT_ATTRIBUTE = "npu_kit_root"

MAX_PATTERNS = 10_000  # a generator may go on for ever

SAID_NO = Refusal("check", "a check that says yes", "its check said no", "accept(refusals) in the check, to see why")


@dataclass
class Recorder:
    """What happened while patterns were matched."""

    refusals: dict[str, dict[tuple[str, Refusal], None]] = field(default_factory=dict)  # span label -> in order, once
    refused_with: dict[str, dict[str, None]] = field(default_factory=dict)  # span label -> patterns, in order, once
    error: BaseException | None = None  # raised by a check of the pattern list

    def of(self, span: str) -> tuple[tuple[str, Refusal], ...]:
        """(pattern, refusal) of each match whose root is the call at ``span``, in order of matching."""
        return tuple(self.refusals.get(span, ()))

    def around(self, span: str) -> tuple[str, ...]:
        """The patterns that refused a match with the call at ``span`` in it, not as its root, in order of matching."""
        return tuple(self.refused_with.get(span, ()))


def watch(patterns: Sequence[Any], recorder: Recorder) -> list[FusionPattern]:
    """The same patterns, with checks that report to ``recorder`` and refuse what would make fusion itself fail.

    Args:
        patterns: whatever FuseOpsByPattern accepts: FusionPattern objects, or tuples of a name, a pattern and maybe
            annotations, a check and an attribute getter.

    Raises:
        PartitionError: an item is neither, ``patterns`` is no list, or it has more than ``MAX_PATTERNS``.
    """
    if isinstance(patterns, str | FusionPattern) or not isinstance(patterns, Iterable):
        raise PartitionError(f"patterns is {type(patterns).__name__}", "a list is needed", "[...] around it.")
    watched = [_watch(item, index, recorder) for index, item in enumerate(islice(patterns, MAX_PATTERNS + 1))]
    if len(watched) > MAX_PATTERNS:
        raise PartitionError("patterns has no end", f"at most {MAX_PATTERNS:,} patterns are taken", "a list.")
    return watched


def _watch(item: Any, index: int, recorder: Recorder) -> FusionPattern:
    name, pattern, labels, check, getter = _parts(item, index)
    accepted: list[str] = []  # the root of the match that was accepted last: TVM asks for its attributes at once

    def watched_check(context: Any) -> bool:
        span = span_label(context.matched_expr)
        try:
            refusals = check_cycle(context)
            if not refusals:
                with collect_refusals() as refusals:
                    if check is None or _answer(name, check(context)):
                        accepted[:] = [span]
                        return True
        except BaseException as error:
            # TVM turns whatever a check raises into a bare RuntimeError; partition() raises the original. TVM itself
            # gets plain words: it ends the process where the text of an exception cannot be had.
            recorder.error = error
            raise RuntimeError(f"the check of {name} raised an error") from error
        for refusal in refusals or [SAID_NO]:
            recorder.refusals.setdefault(span, {})[name, refusal] = None
        for value in context.matched_bindings.values():
            if isinstance(value, relax.Call) and (inner := span_label(value)) != span:
                recorder.refused_with.setdefault(inner, {})[name] = None
        return False

    def watched_getter(annotated: Any) -> dict[str, Any]:
        try:
            given = dict(getter(annotated)) if getter is not None else {}
        except BaseException as error:
            recorder.error = error
            raise RuntimeError(f"the attribute getter of {name} raised an error") from error
        return {**given, ROOT_ATTRIBUTE: accepted[0]}

    return FusionPattern(name, pattern, labels, watched_check, watched_getter)


def _answer(name: str, answer: object) -> bool:
    """What a check said. A list of reasons is true where it refuses, so nothing but a truth value is believed."""
    if isinstance(answer, bool | int | np.bool_):
        return bool(answer)
    hint = "return at its end." if answer is None else "accept(reasons), of a list of Refusal."
    raise PartitionError(
        f"the check of {name:.80}", f"it returned {type(answer).__name__}, and True or False is needed", hint
    )


def _parts(item: Any, index: int) -> tuple[str, Any, Any, Callable[[Any], bool] | None, Any]:
    if isinstance(item, FusionPattern):
        return str(item.name), item.pattern, item.annotation_patterns, item.check, item.attrs_getter
    if isinstance(item, tuple) and 2 <= len(item) <= 5:
        name, pattern, labels, check, getter = item + (None,) * (5 - len(item))
        if misfit := _misfit(name, pattern, labels, check, getter):
            hint = 'a row such as ("example_npu.mine", pattern, {"root": pattern}, check).'
            raise PartitionError(f"patterns[{index}] is no row of a pattern table", misfit, hint)
        try:
            whole = FusionPattern(name, pattern, labels, check, getter)
        except (TypeError, ValueError) as error:
            raise PartitionError(f"patterns[{index}] is no pattern", str(error).strip().splitlines()[-1]) from error
        return str(whole.name), whole.pattern, whole.annotation_patterns, check, getter
    raise PartitionError(
        f"patterns[{index}] is {type(item).__name__}",
        "a FusionPattern or a tuple (name, pattern, annotations, check) is needed",
        "None for the kit's own table, or a list as FuseOpsByPattern takes it.",
    )


def _misfit(name: Any, pattern: Any, labels: Any, check: Any, getter: Any) -> str:
    """Which part of a row is of a wrong kind, "" if none is. TVM's own words for it are the C++ signature."""
    if not isinstance(name, str):
        return f"what stands first is {kind_of(name)}, and it has to be its name, a text"
    if not isinstance(pattern, DFPattern):
        return f"behind its name stands {kind_of(pattern)}, and it has to be a pattern, as is_op makes one"
    named = isinstance(labels, Mapping) and all(isinstance(part, DFPattern) for part in labels.values())
    if labels is not None and not named:
        return f"its annotations are {kind_of(labels)}, and have to be a dictionary of labels and parts of the pattern"
    for what, function in (("check", check), ("attribute getter", getter)):
        if function is not None and not callable(function):
            return f"its {what} is {kind_of(function)}, and has to be a function"
    return ""
