# %% [markdown]
# # Which operations does the NPU take, and which does it refuse?
#
# A chip computes some operations, on some types, of some sizes. A *pattern* says which, and a *check* says on which
# conditions. In this lesson you write both, and you see why a backend's answer should never be a bare no.
#
# **You will be able to**
#
# - write a pattern for one operator, and for several that are fused;
# - write a check that gives its reasons, and read a refusal;
# - say which of two patterns wins, in a list and in TVM's registry;
# - spot a composite whose name does not say what it holds.
#
# **You need** lesson 00. **Time:** 35 minutes.

# %% [markdown]
# Everything that this lesson uses. `is_op` and `wildcard` come from TVM's language for dataflow patterns, and they are
# almost all of it that you need. `I` and `R` are for writing a model down.

# %%
import inspect

import tvm.relax.backend.contrib.example_npu.patterns as upstream
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

import npu_kit
from npu_kit import render
from npu_kit.byoc import describe, patterns
from npu_kit.byoc.model import calls, walk
from npu_kit.byoc.patterns import Match, accept, checks
from npu_kit.byoc.report import Refusal
from npu_kit.exercises import check
from npu_kit.zoo import build, probes
from npu_kit_widgets import PatternExplorer

# %% [markdown]
# ## Where you are
#
# Patterns come first: nothing can be cut out of a model before someone has said what the chip can do. They are a table,
# written once per chip, long before any model arrives.

# %%
render.flow("patterns")

# %% [markdown]
# ## A model to match
#
# Relax is TVM's language for models. This one is three calls: a convolution, a bias for each of its 24 channels, a
# relu. Inside the dataflow block each call is bound to a variable; that is where TVM looks for patterns.


# %%
@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor((1, 8, 16, 16), "float32"),
        w: R.Tensor((24, 8, 3, 3), "float32"),
        b: R.Tensor((1, 24, 1, 1), "float32"),
    ):
        with R.dataflow():
            conv = R.nn.conv2d(x, w, padding=1)
            total = R.add(conv, b)
            out = R.nn.relu(total)
            R.output(out)
        return out


# %% [markdown]
# ## A pattern
#
# `is_op(name)(operands)` matches a call; `wildcard()` matches anything; a pattern may stand where an operand stands.
# **Predict:** how many of the three calls does each of these two patterns take? Look at what stands between the
# convolution and the relu.

# %%
relu = is_op("relax.nn.relu")(wildcard())
conv_relu = is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), wildcard()))
for name, pattern in {"relu": relu, "conv_relu": conv_relu}.items():
    print(name, "-", npu_kit.partition(Model, patterns=[(f"example_npu.{name}", pattern)]).report.summary)

# %% [markdown]
# The second one takes nothing: the relu reads an add, not a convolution. A pattern is exact.
#
# **Build.** Write the pattern that takes all three. Return it with a dictionary of labelled parts: `"anchor"` is the
# convolution, `"bias"` what is added, `"root"` the whole. Labels are how a check finds its way.


# %%
def conv_bias_relu():
    """The pattern relu(add(conv2d(x, w), bias)), and its labelled parts."""
    ### BEGIN SOLUTION
    anchor, bias = is_op("relax.nn.conv2d")(wildcard(), wildcard()), wildcard()
    root = is_op("relax.nn.relu")(is_op("relax.add")(anchor, bias))
    return root, {"anchor": anchor, "bias": bias, "root": root}
    ### STUB anchor, bias = is_op("relax.nn.conv2d")(wildcard(), wildcard()), wildcard()
    ### STUB root = ...  # relu of add of the two
    ### STUB return root, {"anchor": anchor, "bias": bias, "root": root}
    ### END SOLUTION


is_pattern_right = check("patterns.conv_bias_relu", conv_bias_relu)
is_pattern_right

# %% [markdown]
# From here on your pattern is used once it is right, and the kit's own until then. The part of a name before the dot is
# the backend: TVM asks `example_npu` to compile what this pattern takes. Now all three calls are one composite.

# %%
kit = {info.name: info for info in patterns.pattern_infos()}
build_pattern = conv_bias_relu if is_pattern_right else kit["example_npu.conv2d_bias_activation_fused"].builds[0]
npu_kit.partition(Model, patterns=[("example_npu.mine", *build_pattern())])

# %% [markdown]
# ## Too willing
#
# Now the same three calls, but a whole image is added instead of one number per channel: a *residual*. The chip can
# fuse that too, and the kit's table has a pattern of its own for it, `conv2d_residual_activation_fused`. Yours is to
# mean a bias only. **Predict:** does it take the residual? Nothing in the pattern speaks of shapes.

# %%
residual = probes.conv_add_relu(other=(1, 24, 16, 16))
print(npu_kit.partition(residual, patterns=[("example_npu.mine", *build_pattern())]).report.summary)

# %% [markdown]
# It does. So a pattern needs a *check*: a function that TVM calls with each match and that answers yes or no. `Match`
# is the kit's way to look at one. The check below only looks, and says yes.

# %%
spec = npu_kit.load_spec()


def look(context):
    match = Match(context, spec)
    print([call.op.name for call in match.calls], "bias:", calls.shape_of(match.labelled("bias")))
    return True


_ = npu_kit.partition(residual, patterns=[("example_npu.mine", *build_pattern(), look)])

# %% [markdown]
# **Build.** Write the reasons against a match: an empty list for a bias of one value per channel, else one
# `Refusal(rule, needed, found, hint)` with the rule `"operand"`. `checks.channel_axis(anchor)` says which axis counts
# channels. A shape may be shorter than the result's: missing axes in front count as 1.


# %%
def bias_reasons(match):
    """Why what is labelled "bias" is no bias; [] if it is one."""
    ### BEGIN SOLUTION
    anchor = match.labelled("anchor")
    bias, result = calls.shape_of(match.labelled("bias")), calls.shape_of(anchor)
    wanted = tuple(n if axis == checks.channel_axis(anchor) else 1 for axis, n in enumerate(result))
    if (1,) * (len(result) - len(bias)) + bias == wanted:
        return []
    return [Refusal("operand", f"a bias of shape {wanted}", f"one of shape {bias}", "a separate add")]
    ### END SOLUTION


is_check_right = check("patterns.bias_reasons", bias_reasons)
is_check_right

# %% [markdown]
# TVM wants a bool, and would forget the reasons. `accept` gives it `not reasons` and keeps them for the report. This is
# the refusal to read in this lesson: which rule, what was needed, what was found?

# %%
reasons = bias_reasons if is_check_right else checks.check_bias
careful = ("example_npu.mine", *build_pattern(), lambda context: accept(reasons(Match(context, spec))))
for call in npu_kit.partition(residual, patterns=[careful]).report:
    print(call.op, "-", call.reason)

# %% [markdown]
# This is the kit's own version of what you wrote, as it stands in the package. Compare: what does it do where a shape
# is not known before the model runs?

# %%
print(inspect.getsource(checks.check_bias))

# %% [markdown] tags=["solution"]
# *Answer.* It gives no reason. A shape that is not known is refused by another check, which holds for every pattern of
# the kit; each check answers for one thing.

# %% [markdown]
# ## Who is asked first?
#
# Several patterns can match one call. In a list the *first* match wins, and what it took is gone for the others.
# **Predict:** how many calls of `Model` go to the NPU with `[relu, mine]`, in this order?

# %%
### BEGIN SOLUTION
on_npu = 1
### STUB on_npu = ...
### END SOLUTION
table = [("example_npu.relu", relu), careful]
print(check("patterns.first_wins", on_npu))
print("relu first -", npu_kit.partition(Model, patterns=table).report.summary)
print("mine first -", npu_kit.partition(Model, patterns=table[::-1]).report.summary)

# %% [markdown]
# So the most specific pattern comes first. TVM also has a registry, for backends that are found by name. It turns the
# order around: the pattern that was registered *later* wins. And it only grows: run this cell twice and count. So the
# kit hands its table over as a list; `patterns.register()` would put it into the registry.

# %%
register_patterns([("lesson.first", relu), ("lesson.second", relu)])
[str(pattern.name) for pattern in get_patterns_with_prefix("lesson.")]

# %% [markdown]
# ## Two tables for one chip
#
# TVM ships a table for this chip; importing its module registered it. The kit's table has all its names and many more
# fusions. But the real difference is the checks. This is one of upstream's, whole:

# %%
theirs = get_patterns_with_prefix("example_npu")
print(len({str(p.name) for p in theirs}), "names upstream,", len(kit), "in the kit")
print(inspect.getsource(upstream._check_npu_quantization))

# %% [markdown]
# It says itself that it is a placeholder, and accepts everything. Here are three models that a chip has to look at
# twice. Read the kit's refusals: the type, the attribute, the scale. Which of them is no loss, because another pattern
# takes the call?

# %%
suspects = [build("float64_matmul"), probes.conv_of(kernel=3, groups=3), probes.quantize_by(scale=0.0)]
for model in suspects:
    for call in npu_kit.partition(model).report:
        print(f"\n{call.op} is on the {call.where}")
        for pattern, refusal in call.refusals[-1:]:
            print(f"  {pattern} refused it: {refusal}")

# %% [markdown]
# The grouped convolution: it is not depthwise, so that pattern refused, and the next one took it. A refusal is a
# pattern's answer, not the table's.
#
# ## A name that lies
#
# Here a convolution feeds a relu *and* a sigmoid. **Predict:** what does a composite called `conv2d_relu` return? The
# second line is what the kit's own check says of such a match.

# %%
shared = build("shared_conv")
lying = npu_kit.partition(shared, patterns=[("example_npu.conv2d_relu", conv_relu)])
((label, composite),) = walk.composites_of(lying.regions[0].function)
print(label, "returns a", calls.describe_type(composite.ret_ty))
relu_row = npu_kit.partition(shared).report[1]
print(next(refusal for _, refusal in relu_row.refusals if refusal.rule == "leak"))

# %% [markdown]
# Two tensors: the convolution had to come out too, so nothing was saved. A codegen that trusts the name writes one of
# them and leaves the other as it was: garbage, without an error. So the kit refuses the leak, and its codegen reads
# bodies, never names.
#
# ## Try more
#
# That model under the kit's own table. Which fusion did it do without?

# %%
render.draw(describe.describe_partition(npu_kit.partition(shared)))

# %% [markdown] tags=["solution"]
# *Answer.* Convolution and relu are not fused, because the sigmoid reads the convolution too. So its result is written
# to memory as a whole, and read twice.

# %% [markdown]
# **Which model loses most when the table has no fused patterns?** Choose a model and a table, or leave one pattern out;
# click a call to read why it is where it is. Upstream's table takes things that the kit's refuses: which?

# %%
everything = patterns.pattern_table(spec)
tables = {"kit": everything, "no fusing": [p for p in everything if "fused" not in p.name], "upstream": theirs}
models = {name: build(name) for name in ("shared_conv", "residual_block", "attention", "float64_matmul")}
PatternExplorer(models, tables, run=lambda model, table: npu_kit.partition(model, patterns=table))

# %% [markdown] tags=["solution"]
# *Answer.* The residual block: two composites become seven, one per call, and each result between them leaves its tile.
# Upstream takes the float64 model, which its chip cannot compute.

# %% [markdown]
# ## Recap
#
# | | |
# |---|---|
# | **in** | what a chip can do |
# | **out** | a table: names, patterns, labels, checks; most specific first |
# | **decision** | which calls may go to the NPU, together with which, and on which conditions |
#
# A match is a question; a check answers with reasons; TVM hears only `not reasons`. What a composite holds is in its
# body.

# %% [markdown]
# ## In the real thing
#
# - **Simplified here.** One chip, one table. Real tables differ by chip generation and by driver version, and checks
#   also ask whether offloading is worth it.
# - **In TVM**, in apache/tvm: `python/tvm/relax/backend/cuda/cublas.py` is a short table in use, with checks that look
#   at dtypes and shapes; `python/tvm/relax/backend/adreno/clml.py` is a long one. The registry is
#   `src/relax/backend/pattern_registry.cc`, the matching `src/relax/transform/fuse_ops.cc`.
# - **Leaks.** `python/tvm/relax/backend/utils.py` has `has_leaking_intermediate_variables`, which the kit's check asks.
# - **At a vendor.** Arm's Vela writes its checks as functions with a sentence each, and prints them as the list of
#   supported operators: `ethosu/vela/tflite_supported_operators.py`.

# %% [markdown]
# ## Exercises
#
# **Read.** `relax.clip` from 0 to 6 follows a depthwise convolution. Read the names of the kit's table, and write the
# full name of the pattern that takes both. The names say what follows the anchor, in order.

# %%
print(*(name for name in kit if "depthwise" in name and "quantized" not in name), sep="\n")
### BEGIN SOLUTION
taken_by = "example_npu.depthwise_conv2d_activation_fused"
### STUB taken_by = ...
### END SOLUTION
check("patterns.taken_by", taken_by)

# %% [markdown]
# **Build.** Some chips have a fast path for convolutions with a 1x1 kernel. Write its check: no reason for a 1x1
# kernel, else one refusal with the rule `"attribute"`. The weight is the second operand of the anchor; its layout is
# OIHW.


# %%
def pointwise_reasons(match):
    """Why the convolution labelled "anchor" is not 1x1; [] if it is."""
    ### BEGIN SOLUTION
    kernel = calls.shape_of(match.labelled("anchor").args[1])[2:]
    return [] if kernel == (1, 1) else [Refusal("attribute", "a 1x1 kernel", f"{kernel}", "the pattern conv2d")]
    ### END SOLUTION


check("patterns.pointwise_reasons", pointwise_reasons)

# %% [markdown]
# **Change.** Give the NPU a table of two patterns, yours and a matmul, and look at what is left of the digits model.
# Then swap in others of `kit`, each as a row with a name, such as
# `("example_npu.other", *kit["example_npu.conv2d_bn_activation_fused"].builds[0]())`. What is the smallest number of
# patterns that puts half of the calls on the NPU?

# %%
matmul = is_op("relax.matmul")(wildcard(), wildcard())
few = [careful, ("example_npu.matmul", matmul)]
print(npu_kit.partition(build("digits"), patterns=few, bind_constants=True).report.summary)

# %% [markdown] tags=["solution"]
# *Answer.* One: the convolution with batch norm and activation matches twice, and takes six of the eleven calls.
