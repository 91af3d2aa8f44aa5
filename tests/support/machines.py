"""Machines for tests: hypothesis draws them around the example, from tiny to roomy, fast and slow."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from npu_kit.hw import NpuSpec, load_spec

EXAMPLE = load_spec("example")


@st.composite
def machines(draw: st.DrawFn) -> NpuSpec:
    """Tile, array, lanes, capacities, latencies and bandwidths; enough L1 for most operations, not for all."""
    side = st.sampled_from([8, 12, 16, 32, 40])
    rows, columns = draw(side), draw(side)
    capacities = {
        "L0": rows * columns * 4 + 64 * draw(st.integers(0, 3)),
        "L1": draw(st.sampled_from([12_000, 30_000, 100_000, 262_144])),
        "L2": draw(st.sampled_from([64, 6_000, 40_000, 524_288])),
    }
    latencies = sorted(draw(st.lists(st.integers(0, 300), min_size=4, max_size=4)))
    tiers = tuple(
        dataclasses.replace(
            tier,
            capacity_bytes=capacities.get(tier.name, tier.capacity_bytes),
            access_cycles=latency,
            bytes_per_cycle=draw(st.sampled_from([1, 7, 16, 64, 256])),
        )
        for tier, latency in zip(EXAMPLE.tiers, latencies, strict=True)
    )
    lanes = st.sampled_from([1, 3, 8, 16, 40])
    engines = tuple(
        dataclasses.replace(engine, rows=draw(lanes) if engine.rows > 1 else 1, columns=draw(lanes))
        for engine in EXAMPLE.engines
    )
    return EXAMPLE.replace(tile=(rows, columns), tiers=tiers, engines=engines)
