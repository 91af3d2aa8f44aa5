# %% [markdown]
# # Where is the model cut, and what does a cut cost?
#
# A table says what the chip can do. Now a model arrives, and someone has to draw the border: this part to the NPU, that
# part to the host. Each crossing costs memory traffic, so where the border runs matters as much as what is computed.
#
# **You will be able to**
#
# - cut a model into regions with two passes of TVM;
# - trace where each call of the model went, and say why;
# - predict how many DRAM bytes a merge saves, and measure it;
# - recognise a model that cannot be cut as asked, and why.
#
# **You need** lesson 01. **Time:** 35 minutes.

# %% [markdown]
# Everything that this lesson uses. `FuseOpsByPattern` and `MergeCompositeFunctions` are TVM's; the rest is the kit's
# way of preparing a model and of looking at the result.

# %%
import inspect

import tvm
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FuseOpsByPattern, LegalizeOps, MergeCompositeFunctions

import npu_kit
from npu_kit import render
from npu_kit.byoc import describe, partition, patterns
from npu_kit.byoc.model import normalize
from npu_kit.byoc.model.calls import relax_name, span_label
from npu_kit.byoc.model.walk import composites_of, region_functions, walk_calls
from npu_kit.exercises import check
from npu_kit.plan.traffic import plan_counters
from npu_kit.trace.counters import total
from npu_kit.zoo import build, probes, random_arguments
from npu_kit_widgets import PartitionExplorer

# %% [markdown]
# ## Where you are
#
# The pattern table is there. Partition takes it and a model, and gives regions: functions that the codegen will get
# whole. Inside the box are two verbs, *fuse* and *merge*, and this lesson does one after the other.

# %%
render.flow("partition")

# %% [markdown]
# ## Before the first match
#
# `prepare` puts a model into the form in which patterns match: dead code goes, helpers are inlined. And it gives every
# call a *span*, its place in the model, which survives all that follows. The model here is a convolution, a relu and a
# pool.

# %%
model = build("conv_relu_pool", channels=16, size=32, filters=32)
prepared = normalize.prepare(model)
for call, _ in walk_calls(prepared["main"]):
    print(span_label(call), relax_name(call))

# %% [markdown]
# ## Fuse
#
# `FuseOpsByPattern` turns each match into a *composite*: a function of its own, with the pattern's name as the
# attribute `Composite`. **Predict:** how many composites will there be, and which calls share one?

# %%
table = patterns.pattern_table(npu_kit.load_spec())
fused = FuseOpsByPattern(table, bind_constants=True, annotate_codegen=False)(prepared)
for name, function in fused.functions.items():
    composite = function.attrs.get("Composite")
    print(composite or f"{name.name_hint} calls", *(relax_name(call) for call, _ in walk_calls(function)), sep="\n   ")

# %% [markdown]
# ## Merge
#
# Two composites are still two calls of the NPU, and what passes between them goes out to DRAM and back in.
# `MergeCompositeFunctions` puts neighbours of one backend into one *region*. The prefix of the names, `example_npu`, is
# how it knows whose they are.

# %%
merged = MergeCompositeFunctions()(fused)
for symbol, region in region_functions(merged):
    print(symbol)
    print(*(f"   {label}" for label, _ in composites_of(region)), sep="\n")

# %% [markdown]
# **Build.** Write the cut as one function: prepare, fuse, merge. The check compares its regions, composite by
# composite, with those of `npu_kit.partition` on four models, a residual block and the digits among them.


# %%
def cut(model):
    """The module with one function per region."""
    ### BEGIN SOLUTION
    fuse = FuseOpsByPattern(table, bind_constants=True, annotate_codegen=False)
    return MergeCompositeFunctions()(fuse(normalize.prepare(model)))
    ### END SOLUTION


check("partition.cut", cut)

# %% [markdown]
# One word makes the difference. With `annotate_codegen=True` each composite becomes a region at once, and a merge after
# that finds nothing to do. Upstream's tutorial combines the two and speaks of one call. Count the regions, and read the
# end of their names.

# %%
annotated = FuseOpsByPattern(table, bind_constants=True, annotate_codegen=True)(prepared)
for symbol, _ in region_functions(MergeCompositeFunctions()(annotated)):
    print(symbol)

# %% [markdown]
# ## Where did each call go?
#
# A pass that moves code should be able to say where it put it. Names do not help, functions were renamed and nested;
# the span is still on each call.
#
# **Build.** Go through the regions, their composites and the calls in them, as in the cells above.


# %%
def places(module):
    """{span label of a call: label of the composite that holds it}."""
    ### BEGIN SOLUTION
    return {
        span_label(call): label
        for _, region in region_functions(module)
        for label, composite in composites_of(region)
        for call, _ in walk_calls(composite)
    }
    ### END SOLUTION


check("partition.places", places)

# %% [markdown]
# The report of the kit is made in this way: your dictionary, and for each call that is not in it a reason. Here a
# sine stands between two matmuls. The last column says why it stays; how often does data cross the border?

# %%
npu_kit.partition(build("sin_between"))

# %% [markdown] tags=["solution"]
# *Answer.* Twice between the regions: the first product out to the host, its sine in again. Input and result
# cross it as well, as in any model.

# %% [markdown]
# This is the packaged version of your cut. Two things were added: a way out where TVM cannot merge (a model with
# branches, for one), and words for what goes wrong in a check. Where are your passes?

# %%
for function in (partition._cut, partition._fuse, partition._merge):
    print(inspect.getsource(function))

# %% [markdown]
# ## What does a cut cost?
#
# Now with numbers. The picture shows the merged model; the tensor between the two composites is 32 channels of 32 by
# 32, in float32.
#
# With one region per composite it goes to DRAM and comes back. With one region it may stay on the chip.

# %%
whole = npu_kit.partition(model, bind_constants=True)
render.draw(render.hide_constants(describe.describe_partition(whole)))

# %% [markdown]
# **Predict.** How many bytes of DRAM traffic does the merge save? The tensor is written once and read once. Write the
# number or the arithmetic; everything else about the two runs is the same.

# %%
### BEGIN SOLUTION
saved_bytes = 2 * 32 * 32 * 32 * 4
### STUB saved_bytes = ...
### END SOLUTION
check("partition.saved_bytes", saved_bytes)

# %% [markdown]
# And the measurement. Both models run, on the same input, and the copies are counted. The results have to be equal bit
# by bit: a merge moves data less, it computes nothing else. Which boundary carries the tensor instead?

# %%
arrays, outputs, traffic = random_arguments(model), [], {}
for name, merge in {"one region": "safe", "one per composite": "never"}.items():
    with npu_kit.record() as trace:
        outputs.append(npu_kit.compile(model, merge=merge, bind_constants=True).run(*arrays))
    traffic[name] = trace.counters.nbytes
assert (outputs[0] == outputs[1]).all()
render.traffic(traffic)

# %% [markdown] tags=["solution"]
# *Answer.* L1 to L2 and L2 to L1. The tensor still moves, but inside the chip, where a byte costs a fraction.

# %% [markdown]
# A merge is a permission, not a memory. The same layers on a photograph, 224 by 224 and 64 filters: the tensor between
# is 64 * 224 * 224 * 4 bytes. **Predict:** can a merge still save anything? Compare with the capacity of L2. Nothing
# has to run for this, a plan's traffic is arithmetic.


# %%
def planned_bytes(model, merge):
    """DRAM bytes of a run, from the plans alone."""
    plans = npu_kit.compile(model, merge=merge, bind_constants=True).plans
    return total(counters for plan in plans for counters in plan_counters(plan)).dram_bytes


large = build("conv_relu_pool", channels=3, size=224, filters=64)
print(f"between: {64 * 224 * 224 * 4:,} bytes; L2 holds {whole.spec.tier('L2').capacity_bytes:,}")
print(f"one region: {planned_bytes(large, 'safe'):,}; one per composite: {planned_bytes(large, 'never'):,}")
(plan,) = npu_kit.compile(large, bind_constants=True).plans
print(*(reason for reason in plan.reasons if reason.decision == "chain"), sep="\n")

# %% [markdown]
# Far too large for the chip, and still most of the traffic is gone: a few rows of the pool's result at a time go
# through both steps. Such a strip is a *stripe*. So a merge can keep a tensor whole, or in stripes; a cut closes both.
#
# ## Two that fail
#
# First: a pass too early. `LegalizeOps` turns operators into loops, and patterns name operators. Read the note.

# %%
print(npu_kit.partition(LegalizeOps()(model)).report)

# %% [markdown]
# Second: a circle. A convolution is added to its own sine. The chip has no sine, so the host computes it, from
# the convolution's result. Fused, the composite would need a value that needs the composite. TVM only notices that when
# it is too late:

# %%
circle = probes.host_loop()
conv_add = ("example_npu.conv_add", is_op("relax.add")(is_op("relax.nn.conv2d")(wildcard(), wildcard()), wildcard()))
try:
    FuseOpsByPattern([conv_add])(circle)
except tvm.error.InternalError as error:
    print(error)

# %% [markdown]
# The kit asks first: for each match it follows the values outside, and refuses where one would come back. The other
# patterns then get their turn, so the rest still goes to the NPU. Read the refusal under the add.

# %%
for call in npu_kit.partition(circle, patterns=[conv_add, *table]).report:
    print(call.op, "on the", call.where, *(f"\n   {name}: {refusal}" for name, refusal in call.refusals[:1]))

# %% [markdown]
# ## Try more
#
# **Which of these models gains nothing from merging, and what does a small L1 refuse?** Switch merging on and off and
# count the blue frames. The view begins with a smaller L1 than the machine's, 16 KB; click a call on the host to read
# why it is there.

# %%
models = {name: build(name) for name in ("digits", "residual_block", "sin_between", "mlp")}
PartitionExplorer(models, run=lambda module, options: npu_kit.partition(module, **options))

# %% [markdown] tags=["solution"]
# *Answer.* `sin_between` gains nothing: its two composites are not neighbours, the host stands between. With 16 KB of
# L1, two calls of the digits do not fit, the second convolution and the matmul: the weights of one tile fill most of
# it, and the patches (or rows) and the result have to be there too. The residual block loses both convolutions.

# %% [markdown]
# ## Recap
#
# | | |
# |---|---|
# | **in** | a Relax model, and a pattern table |
# | **out** | a module with one function per region, and a report: one row per call |
# | **decision** | where the border runs: what is fused, what is merged, what stays on the host |
#
# Fusing keeps a value inside a tile. Merging lets a tensor stay on the chip, if there is room. Every cut is a trip to
# DRAM and back.

# %% [markdown]
# ## In the real thing
#
# - **Simplified here.** The table decides greedily. A real partitioner also asks whether a region is worth its call:
#   one small operation between two host operations is slower on the NPU.
# - **In TVM**, in apache/tvm: `src/relax/transform/fuse_ops.cc` (at the end, `FuseOpsByPattern`) and
#   `src/relax/transform/merge_composite_functions.cc`. The tests
#   `tests/python/relax/test_transform_merge_composite_functions.py` show modules before and after.
# - **Tiled together.** Arm's Vela calls it cascading: `ethosu/vela/cascade_builder.py` chooses chains of operators
#   whose pieces fit the SRAM.

# %% [markdown]
# ## Exercises
#
# **Read.** The tensor between stays on the chip whole while it fits L2. With 32 filters and float32: what is the
# largest `size`, in pixels along one side, that still fits? A cell above printed what L2 holds.

# %%
### BEGIN SOLUTION
largest_size = 64
### STUB largest_size = ...
### END SOLUTION
check("partition.largest_size", largest_size)

# %% [markdown] tags=["solution"]
# *Answer.* 64: 32 * 64 * 64 * 4 is all of L2, to the byte. The room is then missing elsewhere: the image cannot wait in
# L2, and its tiles, with their rims, are fetched from DRAM. So a merge saves less than twice the tensor there, 841,472
# bytes instead of 1,048,576. One pixel more, and the tensor goes in stripes.

# %% [markdown]
# **Change.** The digits model with and without merging, one image. Before you run: do you expect more than a third of
# the traffic to go? Then change `batch` to 64: the tensors grow and the weights do not, so a merge should save a larger
# share. Does it? And can it go on like this? Think of L2.

# %%
digits = build("digits", batch=1)
print(f"merged: {planned_bytes(digits, 'safe'):,} bytes; not merged: {planned_bytes(digits, 'never'):,}")

# %% [markdown] tags=["solution"]
# *Answer.* Two fifths for one image, 41 %: 33,280 of 56,784 bytes are left, and 32,984 of these are weights, which no
# merge saves. For 64 images it is 84 %: the tensors are 64 times as large, and they are what a merge keeps on
# the chip. Not all of them fit L2 whole any more, so some go through two steps in stripes. (`compile(...).plans` has
# the reasons.)

# %% [markdown]
# **Build.** What can merging save at most? Sum up the tensors that pass from one composite to another inside a graph,
# each written and read once. Useful: `graph.kernels` (ids), `graph.nodes[i].composite`, `graph.consumers(entry)` (ids),
# `graph.type_of(entry).nbytes`, and `Entry(i)` from `npu_kit.graph.ir`.


# %%
def bytes_kept(graph):
    """DRAM bytes that one region per composite would move, and one region need not."""
    ### BEGIN SOLUTION
    entries = {i: npu_kit.graph.ir.Entry(i) for i in graph.kernels}
    return sum(
        2 * graph.type_of(entry).nbytes
        for i, entry in entries.items()
        if any(graph.nodes[user].composite != graph.nodes[i].composite for user in graph.consumers(entry))
    )
    ### END SOLUTION


check("partition.bytes_kept", bytes_kept)
