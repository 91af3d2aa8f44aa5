# %% [markdown]
# # How does a region become something that runs?
#
# The partition left functions that TVM cannot compile: they belong to the NPU. Codegen turns each into two things: a
# *graph*, which says what to compute and nothing about how, and a *module*, which TVM can call, export and load.
#
# **You will be able to**
#
# - lower a composite to JSON nodes, by reading its body;
# - read TVM's JSON graph: nodes, arguments, heads, row pointers;
# - say what is inside the module, and what is not;
# - explain why two models of one shape must not share a name.
#
# **You need** lesson 02. **Time:** 35 minutes.

# %% [markdown]
# Everything that this lesson uses. From TVM there are three new words: `RunCodegen`, which calls a backend's codegen;
# `relax.build`, which compiles the rest; and the virtual machine that runs both.

# %%
import inspect
import json
import re
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

import npu_kit
from npu_kit import render
from npu_kit.byoc.codegen import lower as lowering
from npu_kit.exercises import check
from npu_kit.graph import ops, serialize
from npu_kit.zoo import build, random_arguments
from npu_kit_widgets import GraphExplorer

# %% [markdown]
# ## Where you are
#
# Two verbs are in the box: *lower*, from a function to a graph, and *build*, from graphs to a module. Planning comes
# later, at run time: the graph must not know about tiles.

# %%
render.flow("codegen")

# %% [markdown]
# ## A region, from inside
#
# This is what codegen is given, as text: the region is the outer function, the composite the inner one. (The printer
# adds `_1` where two variables have one name.) **Predict:** which nodes will the graph have? Count what comes in, and
# what is computed.

# %%
region = npu_kit.partition(build("conv_relu")).regions[0]
print(region.function.script(show_meta=False))

# %% [markdown]
# As objects: the region's block has two bindings. The first defines the composite, the second calls it. The composite's
# block has one binding per operation, and its parameters stand for the arguments of the call.

# %%
definition, use = region.function.body.blocks[0].bindings
print("region", region.function.params, "- composite", definition.value.params, "called with", use.value.args)
for binding in definition.value.body.blocks[0].bindings:
    print(binding.var.name, "=", binding.value.op.name, [operand.name for operand in binding.value.args])

# %% [markdown]
# **Build.** Lower a region that holds one composite. First a node for each parameter of the *region*; then one for each
# operation, whose inputs are `[node, output, 0]`. An input is a variable: remember for each variable which node it is.


# %%
def nodes_of(region):
    """[{"op": "input", "name": ...}, ..., {"op": "kernel", "name": "conv2d", "inputs": [[0, 0, 0], ...]}, ...]"""
    ### BEGIN SOLUTION
    definition, use = region.body.blocks[0].bindings
    nodes = [{"op": "input", "name": parameter.name} for parameter in region.params]
    of_region = {parameter: number for number, parameter in enumerate(region.params)}
    number = {inner: of_region[outer] for inner, outer in zip(definition.value.params, use.value.args, strict=True)}
    for binding in definition.value.body.blocks[0].bindings:
        inputs = [[number[operand], 0, 0] for operand in binding.value.args]
        number[binding.var] = len(nodes)
        nodes.append({"op": "kernel", "name": binding.value.op.name.split(".")[-1], "inputs": inputs})
    return nodes
    ### STUB definition, use = region.body.blocks[0].bindings
    ### STUB nodes = [{"op": "input", "name": parameter.name} for parameter in region.params]
    ### STUB number = {}  # variable of the composite: node
    ### STUB ...  # the rest, ending in return nodes
    ### END SOLUTION


check("codegen.nodes", nodes_of)

# %% [markdown]
# Nowhere did you look at the composite's name. Lesson 01 showed why: it can hold less, or return more, than it says.
#
# The kit's version does the same for any number of composites, for tuples and for constants, and takes the attributes
# along. It returns the graph, and the constants by name.

# %%
graph, constants = lowering.lower(region.function, region.symbol)
render.graph(graph)

# %% [markdown]
# This is the part of its source that makes one node. Your line with the inputs is there too. What does it do that a
# name cannot tell: where do the attributes come from, and what happens to an operation that it does not know?

# %%
print(inspect.getsource(lowering._Lowering.operation))

# %% [markdown] tags=["solution"]
# *Answer.* The attributes come from the call, completed by the table of operations; the result type is inferred again
# and compared. An unknown operation is refused, with the list of known ones.

# %% [markdown]
# ## The text
#
# The graph is written in the schema of TVM's JSON runtime: four keys besides the symbol. One node in full: the
# convolution. Everything that defines its result is here; nothing about memory is.

# %%
document = json.loads(serialize.to_json(graph))
node = document["nodes"][2]
print("keys:", list(document))
print(node["op"], node["name"], "reads", node["inputs"])
for key, value in node["attrs"].items():
    print(f"   {key}: {value}")

# %% [markdown]
# `arg_nodes` are the inputs in order, `heads` the entries that the region returns. A node can have several outputs;
# laid out in one row, the outputs of node *i* begin at `node_row_ptr[i]`, and the last number is their total.
#
# **Build.** Compute it. The number of outputs of a node is the length of `node["attrs"]["shape"]`.


# %%
def row_pointers(nodes):
    """Where each node's outputs begin, and the total."""
    ### BEGIN SOLUTION
    pointers = [0]
    for node in nodes:
        pointers.append(pointers[-1] + len(node["attrs"]["shape"]))
    return pointers
    ### END SOLUTION


print({key: document[key] for key in ("arg_nodes", "heads")})
check("codegen.row_pointers", row_pointers)

# %% [markdown]
# ## Three damaged graphs
#
# A graph is text, and text can be wrong: by a bug, or on purpose. `serialize.from_json` checks before anything is
# allocated. Each line below breaks one thing. Read the messages: node, rule, both numbers. The last line does what the
# codegen of upstream's example does to every node: the attributes are gone.


# %%
def damage(change):
    broken = json.loads(serialize.to_json(graph))
    change(broken)
    try:
        serialize.from_json(json.dumps(broken))
    except npu_kit.errors.GraphError as error:
        print(f"- {error}")


damage(lambda d: d["nodes"][2].update(inputs=[[3, 0, 0], [1, 0, 0]]))
damage(lambda d: d["nodes"][3]["attrs"].update(shape=[[1, 16, 30, 31]]))
damage(lambda d: d["nodes"][2]["attrs"].pop("strides"))

# %% [markdown]
# What a check let through too easily ends here as well. This pattern accepts any sine, and the chip has none.
# **Predict:** at which stage does it come out, partition, codegen or run?

# %%
too_much = [("example_npu.sin", is_op("relax.sin")(wildcard()))]
print(npu_kit.partition(build("sin_between"), patterns=too_much).report.summary)
try:
    npu_kit.compile(build("sin_between"), patterns=too_much)
except npu_kit.errors.UnsupportedError as error:
    print(error)

# %% [markdown] tags=["solution"]
# *Answer.* At codegen. The partition only asks the check, and there was none; before anything runs, the lowering finds
# that no operation of the chip fits.

# %% [markdown]
# ## From graph to module
#
# `import npu_kit` registered a function called `relax.ext.example_npu`. `RunCodegen` finds it by the region's attribute
# `Codegen`, hands over all regions, and puts calls of what comes back into `main`. Options go along: tile, power mode,
# mode, spec.

# %%
partition = npu_kit.partition(build("conv_relu"))
options = {"example_npu": {"tile": 16, "power_mode": "low_power", "mode": "step"}}
generated = relax.transform.RunCodegen(options)(partition.module)
print(generated["main"].script(show_meta=False))

# %% [markdown]
# The module is machine code, compiled by LLVM. **Predict:** does it contain the convolution? These are the functions of
# the kit that its code calls by name, and the beginning of a text that it carries.

# %%
(library,) = generated.attrs["external_mods"]
code = library.inspect_source()
print(sorted(set(re.findall(r"@\.tvm_func\.(npu_kit\.\w+)", code))))
print(re.search(r'c"(\{.{0,150})', code)[1].replace(r"\22", '"'), "...")

# %% [markdown]
# No convolution: the module carries the graph's text and a key, and calls `npu_kit.run` with them and the tensors. On a
# chip the text would be its instructions, and the callee its driver. Now TVM compiles the rest and runs it all. The
# trace shows that the options arrived.

# %%
executable = relax.build(generated, "llvm")
machine = relax.VirtualMachine(executable.mod, tvm.cpu())  # without .mod it would need a C compiler
x, w = random_arguments(build("conv_relu"))
with npu_kit.record() as trace:
    y = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
plan = trace.runs[0].plan
print(y.shape, "tile", plan.spec.tile.rows, plan.power_mode, trace.runs[0].mode, "mode")

# %% [markdown]
# ## One shape, two models
#
# TVM names a region after its structure. Two models of the same shape but with other weights have the same symbol, and
# a backend that keeps its weights under that name answers with the wrong model's. **Predict:** what does the kit do?
# The second model's weights are twice the first's.

# %%
ones = np.ones((4, 8), "float32")
models = [relax.transform.BindParams("main", {"w": weights})(build("matmul_relu")) for weights in (ones, 2 * ones)]
first, second = (npu_kit.compile(model, bind_constants=True) for model in models)
print("one symbol:", first.partition.regions[0].symbol == second.partition.regions[0].symbol)
print("constants:", [graph.nodes[1].name for compiled in (first, second) for graph in compiled.graphs])
row = np.ones((2, 4), "float32")
print("results:", first.run(row)[0, 0], second.run(row)[0, 0])

# %% [markdown]
# Constants are named after their content, and a region is found by a key over everything in it: graph, machine, options
# and the digest of its constants. Same content, same key; anything else, another.
#
# ## Out of this process
#
# A module can become a file. TVM links it with a C compiler; where there is none, the message says so, and nothing else
# of the kit is affected.

# %%
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    try:
        path = first.export(f"{folder}/model.so")
        print(sorted(file.name for file in path.parent.iterdir()))
        print(npu_kit.load(path, trust=True).run(row)[0, 0])
    except npu_kit.errors.ToolError as error:
        print(error)

# %% [markdown]
# `trust=True` is there because a shared library is a program. The second file is a manifest with its digest, which is
# checked before the library is loaded.
#
# ## Try more
#
# **Which node came from which call?** The graph of a larger region, that of the digits model, whose constants are its
# weights:

# %%
digits = npu_kit.partition(build("digits"), bind_constants=True)
render.graph(lowering.lower(digits.regions[0].function, digits.regions[0].symbol)[0], attributes=False)

# %% [markdown]
# The same, to click: choose a call of the model and see its nodes, or a node and see its JSON. For one of the nodes
# nothing will run: for which, and why?

# %%
GraphExplorer(digits, lowering.lower)

# %% [markdown] tags=["solution"]
# *Answer.* The reshape: the numbers stay where they are, and the matmul reads them as rows of another length.

# %% [markdown]
# ## Recap
#
# | | |
# |---|---|
# | **in** | a region: a Relax function with composites inside |
# | **out** | a JSON graph, its constants, and a module that TVM can call and export |
# | **decision** | how a computation is written down: which attributes define it, and under which key it is found |
#
# Lower from the body. Check the text before you believe it. Name things after their content.

# %% [markdown]
# ## In the real thing
#
# - **Simplified here.** The module calls back into Python. A real codegen emits the chip's command stream, and its
#   runtime hands that to a driver.
# - **In TVM**, in apache/tvm: `src/relax/backend/contrib/codegen_json/codegen_json.h` writes this schema, and
#   `src/runtime/extra/contrib/json/json_runtime.h` reads it. `src/relax/backend/contrib/dnnl/codegen.cc` with
#   `src/runtime/extra/contrib/dnnl/dnnl_json_runtime.cc` is a pair in use. The example NPU's is
#   `src/relax/backend/contrib/example_npu/codegen.cc`.
# - **At a vendor.** Arm's Vela ends in `ethosu/vela/register_command_stream_generator.py`: the same step, with the
#   chip's registers in place of JSON.

# %% [markdown]
# ## Exercises
#
# **Read.** The digits model's graph: how many of its nodes are constants, and why so many? Count in
# the picture, or look into the `digits` partition with the functions above.

# %%
### BEGIN SOLUTION
constant_nodes = 12
### STUB constant_nodes = ...
### END SOLUTION
check("codegen.constant_nodes", constant_nodes)

# %% [markdown] tags=["solution"]
# *Answer.* Two convolutions have a weight each. Each of the two batch norms has four: scale, shift, mean and variance,
# one number per channel. The matmul has a weight and the add its bias, all others have none: 2 * (1 + 4) + 1 + 1.

# %% [markdown]
# **Change.** Options are checked as well. The one below is misspelled: read what comes back and mend it. Then ask for a
# tile of 64. Which of the two faults is found by codegen itself, and which by the machine's rules?

# %%
try:
    relax.transform.RunCodegen({"example_npu": {"tyle": 16}})(partition.module)
except RuntimeError as error:
    print(str(error).strip().splitlines()[-1])

# %% [markdown] tags=["solution"]
# *Answer.* Codegen has a table of options and refuses the misspelled name. The tile of 64 is a valid option; the
# machine refuses it, because its accumulators do not fit L0.

# %% [markdown]
# **Build.** How much work is in a graph? Sum up the multiply-accumulates of its kernels. `ops.OPS[node.name]` has
# `macs(input_types, attrs, output)`; `graph.type_of(entry)` gives the type of each of `node.inputs`.


# %%
def macs_of(graph):
    """Multiply-accumulates of all kernels."""
    ### BEGIN SOLUTION
    kernels = [graph.nodes[number] for number in graph.kernels]
    types = {id(node): [graph.type_of(entry) for entry in node.inputs] for node in kernels}
    return sum(ops.OPS[node.name].macs(types[id(node)], node.attrs, node.outputs[0]) for node in kernels)
    ### END SOLUTION


check("codegen.macs_of", macs_of)
