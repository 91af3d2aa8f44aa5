# %% [markdown]
# # Can a laptop without an NPU run a model on one?
#
# An NPU is a chip that computes neural networks and little else. You may not own one, and the one in this course does
# not exist. Still, in the next minutes a trained model goes through a compiler backend for it, and each value is
# computed in memory of exactly that chip's size.
#
# **You will be able to**
#
# - name the four stages between a model and a result, and what each hands to the next;
# - read a partition report, and say why an operation stayed on the host;
# - check the NPU's values against TVM's own build of the same model;
# - say how many bytes a run moved, and between which memories.
#
# **You need** Python, NumPy, and an idea of what a convolution does. TVM is introduced as it comes up. **Time:** 25
# minutes. All is offline; nothing here changes your machine.

# %% [markdown]
# Everything that this lesson uses is imported here. Run the cell with Shift+Enter. Should it fail, run the next cell
# all the same: it looks at your installation and says what to mend.

# %%
import npu_kit
from npu_kit import doctor, render
from npu_kit.byoc.describe import describe_partition
from npu_kit.byoc.model.walk import operators_in
from npu_kit.byoc.run.host import build_for_host
from npu_kit.data import load_digits_data
from npu_kit.exercises import check
from npu_kit.zoo import build

# %% [markdown]
# ## Is everything there?
#
# The kit needs TVM (the compiler it plugs into), a pair of TVM packages that fit each other, and Graphviz for drawings.
# A C compiler is optional. Look for a line that does not begin with *ok*.

# %%
print(doctor.describe(doctor.diagnose()))

# %% [markdown]
# What still works when something is missing:
#
# | missing | what you lose | what goes on |
# |---|---|---|
# | C compiler | `export` to a file | everything else: compiling and running need none |
# | Graphviz | drawn graphs; they become indented text | all other pictures, they are the kit's own |
# | TVM, or a TVM ffi that fits it | models, partition, codegen | planner, runtime and views, on stored graphs |

# %% [markdown]
# ## The flow
#
# A model enters on the left, arrays leave on the right. Each box is a stage and one lesson; the words between boxes are
# what one stage hands to the next. Lesson 00 walks through all of them once.

# %%
render.flow()

# %% [markdown]
# ## Real scans
#
# The model reads handwritten digits: 8 by 8 pixels, scanned decades ago, and these four were not used for training.
# Decide what you would read in each of them before you look at the label under it.

# %%
data = load_digits_data()
images, labels = data.test_images[:4], data.test_labels[:4]
render.images(images, [f"label {label}" for label in labels], title="Four scans")

# %% [markdown]
# First the ordinary way: TVM compiles the whole model for your processor, the *host*. The result has a row per image
# and a column per digit; the largest probability in a row is the answer. Compare it with the labels.

# %%
model = build("digits", batch=len(images))
host = build_for_host(model).run(images)
host.argmax(axis=1), labels

# %% [markdown]
# If one digit came out wrong: that is the model's mistake, not the compiler's. A backend has to reproduce the model,
# its mistakes included.
#
# **Predict.** Now the NPU. One of the model's operators computes nothing: it only shows the same numbers in another
# shape, and on the chip no byte moves for it. Run the cell to see them all, put the name where the `...` is, run again.

# %%
print(*sorted(operators_in(model)), sep="\n")
### BEGIN SOLUTION
free_operator = "relax.reshape"
### STUB free_operator = ...  # one of these, as text: "relax.add"
### END SOLUTION
check("start.free_operator", free_operator)

# %% [markdown]
# ## Stages 1 and 2: patterns and partition
#
# A table of *patterns* says what the NPU can compute. `partition` looks for them in the model and cuts it into regions
# for the NPU and a rest for the host. There is one row per call; read the last column.

# %%
partition = npu_kit.partition(model, bind_constants=True)
partition

# %% [markdown]
# The same as a picture. A blue frame is a *region*: one call of the NPU. A dashed frame is a *composite*: what one
# pattern took. Colours are engines, and each has its name beside it. How often does data cross the rim of a blue
# frame?

# %%
render.draw(render.hide_constants(describe_partition(partition)))

# %% [markdown] tags=["solution"]
# *Answer.* Twice: the images go in and the probabilities come out. (The weights are constants of the region and left
# out of the picture.) Were one call in the middle left to the host, it would be four times.

# %% [markdown]
# ## Stage 3: codegen
#
# `compile` does the partition again and goes on: it writes each region down as a graph in JSON, and builds a module
# around it. `mode="step"` asks for the slow way of running, tile by tile. This is the graph of the region; the
# constants are the trained weights, named after their content.

# %%
compiled = npu_kit.compile(model, bind_constants=True, mode="step")
render.graph(compiled.graphs[-1])

# %% [markdown]
# ## Stage 4: plan and run
#
# The chip's memory is small, so each operation is cut into *tiles*. The plan says how, before anything runs. Names in
# plans are short:
#
# | name | means |
# |---|---|
# | `n` | output channels of a convolution, columns of a matmul's result |
# | `batch`, `y`, `x` | images, rows and columns of the result; in a matmul, `x` are its rows |
# | `c`, `kh`, `kw` | what is summed up: input channels, rows and columns of the kernel. A tile's share is a *chunk* |
# | `inner`, `k` | in a softmax: the rows, and the axis that is normalised |
# | operand `x`, `w`, `out` | what comes in, the weights, the result |
# | operand `epilogue0.1` | what the first operation after the main one (number 0) reads as its operand number 1 |

# %% [markdown]
# One row is one step. `n 32/40` in the second row reads: this axis is 40 long and a tile takes 32 of it, so the second
# tile has 8. In the first row, `n 32/12`, the axis is shorter than a tile: there is one, and it is padded. Where does
# each step put its result (*out*)?

# %%
render.steps_table(compiled.plans[0])

# %% [markdown]
# One tile of the second step. On the left is the output, cut up; on the right are the pieces of its operands that this
# tile needs. Change the last number and run again: which pieces move, and which stay?

# %%
render.tiles(compiled.plans[0], 1, 2)

# %% [markdown] tags=["solution"]
# *Answer.* The box of the input moves from tile to tile. The filters stay in L1 until the loop comes to the next
# channels. The numbers of the batch norm are fetched for each tile, from L2.

# %% [markdown]
# Now it runs. Each tier of on-chip memory is a byte buffer of that tier's size, and a kernel sees nothing but views
# into it. **Predict:** will the probabilities equal the host's bit for bit, or only nearly? The last line says by how
# much they differ.

# %%
with npu_kit.record() as trace:
    npu = compiled.run(images)
assert (npu.argmax(axis=1) == host.argmax(axis=1)).all()
print(f"largest difference {abs(npu - host).max():.1e}")

# %% [markdown]
# The same four digits, the mistake included. The last bits differ: a sum of many float32 products depends on the order
# in which they are added, and a tile adds in another order than TVM's loop. Neither order is the right one.
#
# **Predict.** All four images enter the chip. How many bytes are they, in float32?

# %%
### BEGIN SOLUTION
image_bytes = 4 * 8 * 8 * 4
### STUB image_bytes = ...  # images x pixels x bytes of a float32
### END SOLUTION
check("start.image_bytes", image_bytes)

# %% [markdown]
# ## What moved?
#
# While `record()` was open, every copy was counted. L3 is the DRAM outside of the chip, L2 and L1 are inside. Compare
# the bytes that cross the chip's border with your prediction: what else has to come in?

# %%
render.traffic({"four digits": trace.counters.nbytes})

# %% [markdown]
# Weights, mostly, and one image would need all of them too. MACs per byte of DRAM traffic is the number to watch: it is
# what so much of an NPU compiler is about.

# %%
print(f"{trace.counters.macs:,} multiply-accumulates, {trace.counters.dram_bytes:,} bytes to and from DRAM")
print(f"{trace.counters.macs / trace.counters.dram_bytes:.1f} MACs for each of these bytes")

# %% [markdown]
# Are more images always better? With 32 it is 125.1, as one set of weights serves them all. With 360 it is 7.3: what a
# step leaves for the next no longer fits the chip, so it goes to DRAM and back.
#
# ## Something that fails
#
# An NPU is planned ahead, for one shape. Here the model gets two images where it was compiled for four. Read the
# message: what was wanted, what was found, and where?

# %%
try:
    compiled.run(images[:2])
except npu_kit.errors.InputError as error:
    print(error)

# %% [markdown]
# Errors of the kit are built like this: *what* it is about, *why* it does not go, with both numbers, and what to try
# where there is something. They are one family, `NpuKitError`.
#
# So let us compile for all held-out scans at once, in fast mode. Same tiles, same bits, computed in batches. How many
# are read right?

# %%
everything = npu_kit.compile(build("digits", batch=len(data.test_images)), bind_constants=True)
read = everything.run(data.test_images).argmax(axis=1)
print(f"{(read == data.test_labels).sum()} of {len(read)} scans read right")

# %% [markdown]
# ## Recap
#
# | stage | takes | gives | decides |
# |---|---|---|---|
# | patterns | what the chip can do | a pattern table | which operators may go, and on which conditions |
# | partition | model, table | regions, and a reason per call | where the model is cut |
# | codegen | a region | a JSON graph and a module | how it is written down |
# | runtime | graph, machine, arrays | a plan; arrays and a trace | tiles, memories, engines, order |
#
# `compile` is all of it in one call, and `record` shows what a run moved.

# %% [markdown]
# ## In the real thing
#
# - **Simplified here.** The chip is a description; its sizes are those of TVM's example backend, and what TVM does not
#   give is marked *illustrative* in `npu_kit/hw/presets/example.json`. Kernels are NumPy, and cycles are formulas.
# - **In TVM** the same flow is called BYOC, bring your own codegen: `docs/how_to/tutorials/bring_your_own_codegen.py`
#   in apache/tvm. Its example NPU has to be built from source, and its runtime
#   (`src/runtime/extra/contrib/example_npu/example_npu_runtime.cc`) logs its decisions and computes nothing.
# - **At a vendor.** Arm's Vela does it for the Ethos-U: `ethosu/vela/tflite_supported_operators.py` holds the checks,
#   and operators that fail them run on the CPU, as here.

# %% [markdown]
# ## Exercises
#
# **Read.** Look at the partition report again. How many *composites* did the patterns make out of the calls that went
# to the NPU? The sentence above the table has the answer, the dashed frames of the picture too.

# %%
### BEGIN SOLUTION
composites = 6
### STUB composites = ...
### END SOLUTION
check("start.composites", composites)

# %% [markdown]
# **Change.** Tiles of 8 by 8 in place of 32 by 32. First say whether the answers change: `True` or `False`. Then run.
# The same data arrives in more and smaller pieces; which boundary pays for it, and which does not?

# %%
### BEGIN SOLUTION
digits_change = False
### STUB digits_change = ...
### END SOLUTION
small_tiles = npu_kit.compile(model, bind_constants=True, tile=8)
with npu_kit.record() as small_trace:
    small = small_tiles.run(images)
print(small.argmax(axis=1), check("start.digits_change", digits_change))
render.traffic({"tiles of 32": trace.counters.nbytes, "tiles of 8": small_trace.counters.nbytes})

# %% [markdown] tags=["solution"]
# *Answer.* The digits stay the same. L2 to L1 pays: each small tile fetches its pieces, with their rims, on its own.
# DRAM does not notice: what is read often is copied to L2 first, once.

# %% [markdown]
# **Build.** Write a function that takes a report and returns a dictionary: for each call that stayed on the host, the
# name of its variable and the reason. A report is a sequence of calls with the attributes `name`, `where` (`"npu"` or
# `"host"`) and `reason`.


# %%
def host_reasons(report):
    """{variable: reason} of each call on the host."""
    ### BEGIN SOLUTION
    return {call.name: call.reason for call in report if call.where == "host"}
    ### END SOLUTION


check("start.host_reasons", host_reasons)
