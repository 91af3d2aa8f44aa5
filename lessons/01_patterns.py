# %% [markdown]
# # Which operations does the NPU take, and which does it refuse?
#
# A chip computes some operations, on some types, of some sizes. A *pattern* says which, and a *check* says on which
# conditions. In this lesson you write both, and you see why a backend's answer should never be a bare no.
#
# **You will be able to**
#
# - write a pattern for an operator, and for several that are fused;
# - write a check that gives its reasons, and read a refusal;
# - say which of two patterns wins, in a list and in TVM's registry;
# - spot a composite whose name does not say what it holds.
#
# **You need** lesson 00. **Time:** 35 minutes.

# %% [markdown]
# Everything that this lesson uses. `dpl` is TVM's language for dataflow patterns; `is_op` and `wildcard` are two words
# of it, and almost all that is needed.

# %%
import inspect

import tvm.relax.backend.contrib.example_npu.patterns as upstream
from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

import npu_kit
from npu_kit import render
from npu_kit.byoc.checks import Match, accept, check_bias
from npu_kit.byoc.patterns import pattern_infos, pattern_table
from npu_kit.byoc.report import Refusal
from npu_kit.exercises import check
from npu_kit.zoo import build
from npu_kit.zoo.on_host import conv_bias_relu

# %% [markdown]
# ## Where you are
#
# Patterns come first: nothing can be cut out of a model before someone has said what the chip can do. They are a table,
# written once per chip, long before any model arrives.

# %%
render.flow("patterns")
