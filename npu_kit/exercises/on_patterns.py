"""Exercises of lesson 01: patterns, and checks that give their reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npu_kit.byoc.model.calls import shape_of
from npu_kit.byoc.partition import partition
from npu_kit.byoc.patterns import Match, accept, pattern_infos
from npu_kit.byoc.patterns.checks import check_bias
from npu_kit.byoc.report import Refusal
from npu_kit.exercises.compare import describe
from npu_kit.exercises.exercise import Exercise, NotDone, is_stub, refuse_stub, value_exercise
from npu_kit.hw.presets import load_spec
from npu_kit.zoo import build, probes

Reasons = Callable[[Match], Sequence[Refusal]]

_NAME = "example_npu.answer"
_BIAS_SHAPES = ((1, 24, 1, 1), (24, 1, 1), (1, 24, 16, 16), (1, 1, 1, 16), (16, 16))
_ROW = (1, 1, 1, 24)  # as many values as there are channels, but along a row of a result that is 24 wide
_KERNELS = ((1, 1), (3, 3), (1, 3), (3, 1))
_LABELS = ("anchor", "bias", "root")


def _builder(name: str) -> Callable[[], Any]:
    """The kit's own builder of a pattern and its labels."""
    return next(info.builds[0] for info in pattern_infos() if info.name == f"example_npu.{name}")


def _judge_pattern(build_pattern: Any) -> str:
    built = build_pattern()
    if is_stub(built):
        refuse_stub(build_pattern, built, "conv_bias_relu()")
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[1], dict):
        return f"it returns {describe(built)}, expected a pair of a pattern and a dictionary of labels"
    pattern, labels = built
    if is_stub(pattern) or any(map(is_stub, labels.values())):
        raise NotDone
    if missing := set(_LABELS) - set(labels):
        return f"the label {min(missing)!r} is missing"
    seen: list[tuple[str, str]] = []
    astray: list[str] = []

    def look(context: Any) -> bool:
        match = Match(context, load_spec())
        astray.extend(label for label in _LABELS if match.labelled(label) is None)
        if astray:
            return False
        anchor, root = match.labelled("anchor"), match.labelled("root")
        seen.append((str(anchor.op.name), str(root.op.name)))
        return str(getattr(match.labelled("bias"), "name", "")) == "b"

    table = [(_NAME, pattern, labels, look)]
    for what, model, wanted in (
        ("conv2d, add and relu", probes.conv_add_relu(), 3),
        ("conv2d and relu", build("conv_relu"), 0),
        ("matmul and relu", build("matmul_relu"), 0),
    ):
        count = len(partition(model, patterns=table).report.on_npu)
        if astray:
            return (
                f"what is labelled {astray[0]!r} is not part of the pattern that is returned: a part written out a "
                f"second time is another part; use the variable"
            )
        if seen and seen[-1] != ("relax.nn.conv2d", "relax.nn.relu"):
            return f"the label 'anchor' is at {seen[-1][0]} and 'root' at {seen[-1][1]}"
        if count != wanted:
            again = " with the label 'bias' at what is added" if seen else ""
            return f"of a model of {what} it takes {count} calls{again}, expected {wanted}"
    return ""


def _judge_reasons(
    reference: Reasons, pattern: str, rule: str, models: Sequence[tuple[str, Any]]
) -> Callable[[Any], str]:
    """A judge of a check: it has to accept and refuse what ``reference`` does, with one refusal of the given rule."""

    def judge(reasons: Any) -> str:
        for what, model in models:
            found, expected = (_ask(one, pattern, model) for one in (reasons, reference))
            if is_stub(found):
                refuse_stub(reasons, found, f"for {what}")
            if not isinstance(found, list | tuple) or not all(isinstance(one, Refusal) for one in found):
                return f"for {what} it returns {describe(found)}, expected a list of Refusal"
            if bool(found) != bool(expected):
                return f"{what} is {'refused' if found else 'taken'}, expected the opposite"
            if len(found) > 1:
                return f"for {what} it gives {len(found)} refusals, expected one"
            if found and (fault := _fault_of(found[0], rule)):
                return f"for {what} {fault}"
        return ""

    return judge


def _fault_of(refusal: Refusal, rule: str) -> str:
    """What is wrong with a refusal that has to be of this rule and to say what was needed and found."""
    if refusal.rule != rule:
        return f"the rule is {describe(refusal.rule)}, expected {rule!r}"
    for part in ("needed", "found", "hint"):
        text = getattr(refusal, part)
        if not isinstance(text, str):
            return f"{part} is {describe(text)}, expected a text"
        if not text and part != "hint":
            return f"{part} is empty, expected a text that says it"
    return ""


def _ask(reasons: Any, pattern: str, model: Any) -> Any:
    """What ``reasons`` returns for the one match of ``pattern`` in ``model``."""
    answers: list[Any] = []

    def ask(context: Any) -> bool:
        answers.append(reasons(Match(context, load_spec())))
        return accept([])

    partition(model, patterns=[(_NAME, *_builder(pattern)(), ask)])
    return answers[0]


def _pointwise(match: Match) -> list[Refusal]:
    kernel = (shape_of(match.labelled("anchor").args[1]) or ())[2:]
    return [] if kernel == (1, 1) else [Refusal("attribute", "a 1x1 kernel", str(kernel), "the pattern conv2d")]


def _bias_models() -> list[tuple[str, Any]]:
    models = [(f"a bias of shape {shape}", probes.conv_add_relu(shape)) for shape in _BIAS_SHAPES]
    return [*models, (f"what is added to 24 channels of 24 by 24, of shape {_ROW},", probes.conv_add_relu(_ROW, 24))]


def _first_wins() -> int:
    table = [(f"example_npu.{name}", *_builder(name)()) for name in ("relu", "conv2d_bias_activation_fused")]
    return len(partition(probes.conv_add_relu(), patterns=table).report.on_npu)


def _lazy(judge: Callable[[], Callable[[Any], str]]) -> Callable[[Any], str]:
    """A judge whose models are built when it is first needed, not at import."""
    return lambda answer: judge()(answer)


EXERCISES = (
    Exercise("patterns.conv_bias_relu", _judge_pattern, hint="from the end: a relu of an add of a conv2d and anything"),
    Exercise(
        "patterns.bias_reasons",
        _lazy(
            lambda: _judge_reasons(
                check_bias,
                "conv2d_bias_activation_fused",
                "operand",
                _bias_models(),
            )
        ),
        hint="put ones in front of the shape, then compare it with 1 everywhere but on the channel axis",
    ),
    value_exercise("patterns.first_wins", _first_wins, hint="the relu is taken first, and then it is gone"),
    value_exercise(
        "patterns.taken_by",
        lambda: "example_npu.depthwise_conv2d_activation_fused",
        hint="a clip is an activation",
    ),
    Exercise(
        "patterns.pointwise_reasons",
        _lazy(
            lambda: _judge_reasons(
                _pointwise,
                "conv2d",
                "attribute",
                [(f"a {rows}x{columns} kernel", probes.conv_of((rows, columns))) for rows, columns in _KERNELS],
            )
        ),
        hint="the last two sizes of an OIHW weight are the kernel",
    ),
)
