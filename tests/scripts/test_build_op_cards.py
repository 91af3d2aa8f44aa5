"""The page of operation cards: current, complete, and nothing on it is both there and missing."""

from __future__ import annotations

import re
import subprocess
import sys

from npu_kit.graph.ops import OPS
from npu_kit.render.op_cards import FAMILIES, card, card_rows


def test_the_stored_page_is_what_the_table_gives(repository):
    command = [sys.executable, repository / "scripts" / "build_op_cards.py", "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "docs/operations.md is current\n"), found.stderr


def test_every_operation_has_a_card_and_no_other(repository):
    page = (repository / "docs" / "operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == list(OPS)
    _, _, missing = page.partition("## Not on the NPU")
    names = set(re.findall(r"`(relax[.\w]+)`", missing))
    assert len(names) > 80 and not names & {op.relax_name for op in OPS.values()}
    assert {"relax.sin", "relax.argmax", "relax.nn.conv3d"} <= names


def test_a_card_says_what_the_table_says():
    for op in OPS.values():
        rows = dict(card_rows(op))
        assert rows["engine"] == op.engine and rows["family"].startswith(op.family)
        assert all(key in rows["attributes"] for key in op.attributes)
        assert all(
            name in rows["inputs"] and dtype in rows["inputs"] for name in op.inputs for dtype in op.inputs[name]
        )
        assert (op.differs != "") == ("unlike TVM" in rows)
    assert set(FAMILIES) == {op.family for op in OPS.values()}
    assert "epsilon = 1e-05" in card(OPS["layer_norm"]) and "strides = 1" in card(OPS["conv2d"])
