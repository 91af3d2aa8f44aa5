"""The roofline: lines and points where the numbers put them, labels that do not cover each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from pictures import HOSTILE_NAMES, SVG, check, tooltips, words

from npu_kit.errors import RenderError
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.ir import Plan
from npu_kit.plan.metrics import Metrics, plan_metrics, total_metrics
from npu_kit.render import metrics_table, roofline
from npu_kit.render.roofline_picture import MAX_POINTS, log_ticks, points_of


@pytest.fixture(scope="module")
def metrics(conv_plan: Plan) -> Metrics:
    return total_metrics(conv_plan)


def spread(metrics: Metrics, count: int, factor: float = 3.0) -> dict[str, Metrics]:
    """Points with falling intensity and speed, on both sides of the ridge."""
    return {
        f"model {i}": replace(metrics, dram_bytes=int(metrics.dram_bytes * factor**i), cycles=metrics.cycles * 2**i)
        for i in range(count)
    }


def paths(svg: str) -> list[list[tuple[float, float]]]:
    found = []
    for path in check(svg).iter(f"{SVG}path"):
        found.append([tuple(map(float, part.split())) for part in path.get("d", "").replace("M", "").split("L")])
    return found  # type: ignore[return-value]


def test_every_point_is_named_with_what_it_achieved_and_could(metrics: Metrics) -> None:
    shown = words(check(roofline(spread(metrics, 5))))
    for number, (name, one) in enumerate(spread(metrics, 5).items(), 1):
        assert f"{number}. {name}" in shown
        (line,) = [word for word in shown if word.startswith(f"{number}. {name}: ")]
        assert f"{one.bound}-bound" in line
        achieved, attainable = (float(word.replace(",", "")) for word in (line.split()[3], line.split()[5]))
        assert achieved == pytest.approx(one.macs / one.cycles, rel=0.01)
        assert attainable == pytest.approx(one.attainable_macs_per_cycle, rel=0.01)


def test_the_lines_and_the_ridge_are_labelled(metrics: Metrics) -> None:
    shown = words(check(roofline({"run": metrics})))
    for start in ("peak ", "DRAM ", "ridge point "):
        assert sum(word.startswith(start) for word in shown) == 1
    assert f"ridge point {metrics.ridge_macs_per_byte:.3g} MACs per byte" in shown


def test_points_stand_under_the_roof_at_their_intensity(metrics: Metrics) -> None:
    """In pixels: each dashed line goes up from its point to the roof, which is straight on logarithmic axes."""
    drawn = paths(roofline(spread(metrics, 6)))
    (roof,) = [path for path in drawn if len(path) == 3 and path[1][1] == path[2][1] and path[0][1] > path[1][1]]
    (x0, y0), (x1, y1), _ = roof
    dots = [path for path in drawn if len(path) == 5]
    assert len(dots) == 6
    for dot in dots:
        x, y = dot[1][0], dot[0][1]
        on_roof = y1 + max(0.0, (x1 - x) / (x1 - x0)) * (y0 - y1)
        assert y > on_roof
        assert any(abs(a - x) < 0.1 and abs(c - x) < 0.1 and abs(d - on_roof) < 0.2
                   for path in drawn if len(path) == 2 for (a, _), (c, d) in [path])  # fmt: skip
    steps = [b[1][0] - a[1][0] for a, b in itertools.pairwise(dots)]
    assert max(steps) - min(steps) < 0.2  # equal factors are equal distances


def test_what_has_no_place_is_said(conv_plan: Plan, metrics: Metrics) -> None:
    measured = {one.name: one for one in plan_metrics(conv_plan)}
    points, left_out = points_of(measured | {"inside": replace(metrics, dram_bytes=0)})
    assert [point.number for point in points] == [1]
    assert len(left_out) == 2
    assert "multiplies nothing" in left_out[0]
    assert left_out[1].startswith("inside moves nothing over the border")
    root = check(roofline(measured))
    assert [line for line in words(root) if line.endswith("multiplies nothing: it has no point.")]
    check(roofline({"pool": plan_metrics(conv_plan)[1]}))


def test_equal_points_share_a_label(metrics: Metrics) -> None:
    assert "1, 2, 3" in words(check(roofline({name: metrics for name in "abc"})))


def test_many_points_close_together_do_not_cover_each_other(metrics: Metrics) -> None:
    check(roofline(spread(metrics, MAX_POINTS, 1.02)))
    check(roofline({f"{'long name ' * 9}{i}": replace(metrics, cycles=metrics.cycles + 400 * i) for i in range(20)}))


def test_each_machine_has_its_roof(metrics: Metrics) -> None:
    slower = replace(metrics, peak_macs_per_cycle=metrics.peak_macs_per_cycle // 4)
    shown = words(check(roofline({"all lanes": metrics, "a quarter": slower})))
    assert sum(word.startswith("peak ") for word in shown) == 2


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_only_text(metrics: Metrics, name: str) -> None:
    root = check(roofline({name: metrics, "other": metrics}, title=name or "untitled"))
    assert any("attainable" in tip for tip in tooltips(root))


def test_the_number_of_points_is_limited(metrics: Metrics) -> None:
    with pytest.raises(RenderError, match="cannot draw 0 points"):
        roofline({})
    with pytest.raises(RenderError, match=f"cannot draw 25 points: the picture has room for 1 to {MAX_POINTS}"):
        roofline({str(i): metrics for i in range(25)})


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.2, 1.7), (-7.5, 4.2)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert len(ticks) >= 3
    assert all(low <= math.log10(tick) <= high and f"{tick:e}"[0] in "125" for tick in ticks)


def test_the_table_has_a_row_for_each_and_no_rate_without_macs(conv_plan: Plan, spec: NpuSpec) -> None:
    found = [*plan_metrics(conv_plan), total_metrics(conv_plan)]
    table = metrics_table(found)
    assert [row[0] for row in table.rows] == [one.name for one in found]
    for row, one in zip(table.rows, found, strict=True):
        assert len(row) == len(table.headings)
        assert row[1:3] == (f"{one.cycles:,}", f"{one.macs:,}")
        assert ("-" in row) == (one.macs == 0)
        assert row[-1].endswith(" uJ")
        assert float(row[-1][:-3].replace(",", "")) == pytest.approx(one.total_energy_pj / 1e6, rel=0.01)
    assert table.rows[1][3:6] == ("-", "-", "-")
