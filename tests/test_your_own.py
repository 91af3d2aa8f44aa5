"""The page on what to do after the lessons: every line of it runs and gives what it says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from tvm.support import cc

PAGE = Path(__file__).resolve().parent.parent / "docs" / "your-own.md"


@pytest.mark.skipif(cc.get_cc() is None, reason="the page exports a library, which needs a C compiler")
def test_every_line_of_the_page_runs():
    pytest.importorskip("onnx")
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 30 and failed == 0
