"""Makes a sample model that fails smaller: fewer results, fewer steps, leaves in place of what computes operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sample_model import Leaf, Model, Value


def reduce_model(model: Model, fails: Callable[[Model], bool]) -> Model:
    """The smallest model found on the way down from ``model``, each of which ``fails``."""
    while smaller := next(filter(fails, _smaller(model)), None):
        model = smaller
    return model


def _smaller(model: Model) -> Iterator[Model]:
    """Models with one thing less."""
    if len(model.results) > 1:
        yield from (_without_unused(replace(model, results=(result,))) for result in model.results)
        return
    (result,) = model.results
    if result >= 0:
        inner = [arg for arg in model.steps[result].args if arg >= 0]
        yield from (_without_unused(replace(model, results=(arg,))) for arg in inner)
    yield from (_without_unused(_with_leaf_for(model, step)) for step in range(len(model.steps)) if step != result)


def _with_leaf_for(model: Model, step: int) -> Model:
    """The model in which a parameter takes the place of a step."""
    shape, dtype = model.type_of(step)
    number = 1 + max((leaf.number or 0 for leaf in model.leaves), default=0)
    leaves = (*model.leaves, Leaf(shape, dtype, number=number))
    place = ~(len(leaves) - 1)
    steps = tuple(replace(s, args=tuple(place if arg == step else arg for arg in s.args)) for s in model.steps)
    return replace(model, leaves=leaves, steps=steps)


def _without_unused(model: Model) -> Model:
    """Only the steps and leaves that the results need. A leaf keeps its number, so its values."""
    needed: set[Value] = set()
    waiting = list(model.results)
    while waiting:
        value = waiting.pop()
        if value not in needed:
            needed.add(value)
            waiting += model.steps[value].args if value >= 0 else ()
    steps = [i for i in range(len(model.steps)) if i in needed]
    leaves = [i for i in range(len(model.leaves)) if ~i in needed]
    places = {old: new for new, old in enumerate(steps)} | {~old: ~new for new, old in enumerate(leaves)}
    kept = [(i, model.leaves[i]) for i in leaves]
    return replace(
        model,
        leaves=tuple(replace(leaf, number=i if leaf.number is None else leaf.number) for i, leaf in kept),
        steps=tuple(replace(model.steps[i], args=tuple(places[arg] for arg in model.steps[i].args)) for i in steps),
        results=tuple(places[result] for result in model.results),
    )
