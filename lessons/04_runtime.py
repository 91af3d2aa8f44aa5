# %% [markdown]
# # How does a small machine compute a large layer?
#
# Piece by piece. The chip's memory next to its multipliers holds 32 by 32 numbers; a layer has millions. So a layer is
# cut into tiles, and most of the time goes into bringing pieces in and taking results out.
#
# **You will be able to**
#
# - write a matrix product that computes only inside memory of a given size;
# - count the bytes that it moves, before it runs;
# - read a plan's reasons: what stays near, what is fetched again;
# - tell which differences between two runs are bugs, and which are rounding.
#
# **You need** lesson 00; lesson 03 helps. **Time:** 40 minutes.

# %% [markdown]
# Everything that this lesson uses. Planner and runtime need no TVM; only the models come from there.

# %%
import inspect
from itertools import product

import numpy as np

import npu_kit
from npu_kit import render
from npu_kit.byoc.run.host import build_for_host
from npu_kit.exercises import check
from npu_kit.plan import forecast, planner, program, traffic
from npu_kit.runtime.execute import execute
from npu_kit.runtime.memory import OnChipMemory
from npu_kit.trace.counters import total
from npu_kit.zoo import build, probes, random_arguments
from npu_kit_widgets import TileExplorer

# %% [markdown]
# ## Where you are
#
# The last stage has two verbs. *Plan* decides everything: tiles, memories, engines, order. *Execute* does exactly that,
# and nothing that was not planned.

# %%
render.flow("runtime")

# %% [markdown]
# ## The machine
#
# Four memories. L0 sits at the multipliers, L3 is the DRAM outside of the chip. Each is larger and slower than the one
# before. Compare the first and the last column: how many numbers of 4 bytes fit into each?

# %%
spec = npu_kit.load_spec()
for tier in spec.tiers:
    print(f"{tier!s:12}{tier.capacity_bytes:>14,} bytes {tier.bytes_per_cycle:>5} bytes a cycle")

# %% [markdown]
# Here a tier is a row of bytes of exactly that capacity. A *view* shows some of them as an array; nothing is copied,
# and nothing protects the bytes from another view. Only the end of the tier is guarded. Read the message: which byte is
# too far?

# %%
memory = OnChipMemory(spec)
memory["L0"].view(0, (32, 32), "float32")[...] = 1.5
print("the same bytes in another shape:", memory["L0"].view(8, (3,), "float32"))
try:
    memory["L0"].view(64, (32, 32), "float32")
except npu_kit.errors.ExecutionError as error:
    print(error)

# %% [markdown]
# ## One product, cut up
#
# Multiply `a` (100 by 300) with `b` (300 by 80). The result is computed in tiles of 32 by 32, because that is what L0
# holds. **Predict:** how many tiles are there? The last ones in each direction are *ragged*: there is less of them.

# %%
### BEGIN SOLUTION
tile_count = 4 * 3
### STUB tile_count = ...
### END SOLUTION
check("runtime.tile_count", tile_count)

# %% [markdown]
# The engine always computes a full tile. A ragged piece is padded with zeros, which change no sum.
#
# **Build.** Copy `piece` into the upper left corner of `tile`, zeros everywhere else, and return `tile`. It is a view
# of memory that held something else before: write *into* it.

# %%
def load(tile, piece):
    """Fill the view ``tile`` with ``piece`` and zeros."""
    ### BEGIN SOLUTION
    tile[...] = 0
    tile[: piece.shape[0], : piece.shape[1]] = piece
    return tile
    ### END SOLUTION


check("runtime.load", load)

# %% [markdown]
# **Build.** Now the product. For each output tile: clear the accumulator in L0; go along the depth in chunks, load a
# piece of `a` and one of `b` into L1, multiply, add; then copy the real part of the accumulator to its place in `out`.

# %%
def tiled_matmul(a, b, memory, tile=32, chunk=128):
    """a (M, K) times b (K, N), float32, computed on views of L1 and L0 only."""
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    near_a = memory["L1"].view(0, (tile, chunk), "float32")
    near_b = memory["L1"].view(near_a.nbytes, (chunk, tile), "float32")
    accumulator = memory["L0"].view(0, (tile, tile), "float32")
    for i, j in product(range(0, a.shape[0], tile), range(0, b.shape[1], tile)):
        here = out[i : i + tile, j : j + tile]
        ### BEGIN SOLUTION
        accumulator[...] = 0
        for c in range(0, a.shape[1], chunk):
            accumulator += load(near_a, a[i : i + tile, c : c + chunk]) @ load(near_b, b[c : c + chunk, j : j + tile])
        here[...] = accumulator[: here.shape[0], : here.shape[1]]
        ### STUB return ...  # clear, loop over chunks, copy to here; then delete this line
        ### END SOLUTION
    return out


is_loop_right = check("runtime.tiled_matmul", tiled_matmul)
is_loop_right

# %% [markdown]
# The packaged runtime has two ways to run a plan. *Step mode* does what you wrote, one instruction at a time; *fast
# mode* computes many tiles in one NumPy call. The `assert` says that both give the same bits. **Predict:** what about
# `np.matmul`, and what about yours, with the plan's chunk?

# %%
(plan,) = npu_kit.compile(probes.matmul_of(100, 300, 80)).plans
a, b = random_arguments(probes.matmul_of(100, 300, 80))
(step,) = execute(plan, [a, b], mode="step")
(fast,) = execute(plan, [a, b], mode="fast")
assert (fast == step).all()
print("np.matmul and step, bit by bit:", (a @ b == step).all())
if is_loop_right:
    mine = tiled_matmul(a, b, OnChipMemory(spec), chunk=plan.steps[0].axis("c").tile)
    print("yours and step, bit by bit:", (mine == step).all())

# %% [markdown]
# Same tiles, same order of sums, same bits. `np.matmul` adds in an order of its own, so its last digits can differ.
# That is rounding, not a bug; and it is why the kit keeps one order in both modes.
#
# This is the packaged loop around one output tile: it makes instructions, and only the runtime obeys them. Find your
# clear and your chunks. Which loads does it leave out, and when?

# %%
print(inspect.getsource(program._Contraction._output_tile))

# %% [markdown] tags=["solution"]
# *Answer.* It leaves out the loads of the operand that is kept: all its chunks were loaded before the first tile that
# needs them, as `first`, and stay while the other operand passes.

# %% [markdown]
# ## What is left in memory
#
# A tile's view still holds the tile before. Here the leftovers are NaN, and a load forgets to clear what it does not
# fill. Those columns meet only zeros. **Predict:** does that save the result? The packaged runtime is tried in the same
# way, in the last line.

# %%
memory["L1"].poison(0, 32 * 32 * 4)
dirty = memory["L1"].view(0, (32, 32), "float32")
dirty[:, :20] = 1
weights = np.zeros((32, 1), "float32")
weights[:20] = 1
print("20 ones, summed:", (dirty @ weights)[0, 0])
print("packaged, poisoned:", (execute(plan, [a, b], mode="step", poison=True)[0] == step).all())

# %% [markdown]
# NaN times zero is NaN. So slots are cleared, and tests run with poison.
#
# ## Count before you run
#
# Your loop loads a piece of `a` and one of `b` for every output tile. **Build.** How many bytes does it move between
# DRAM and chip? Padding is not moved. How often is all of `a` read, and how often all of `b`?

# %%
def loop_bytes(m, k, n, tile):
    """DRAM bytes of tiled_matmul, float32: loads of a, loads of b, the result."""
    ### BEGIN SOLUTION
    row_tiles, column_tiles = -(-m // tile), -(-n // tile)
    return 4 * (m * k * column_tiles + k * n * row_tiles + m * n)
    ### END SOLUTION


check("runtime.loop_bytes", loop_bytes)

# %% [markdown]
# Now what the plan does with the same tiles. Three numbers: your loop (`None` until it is written), the plan, and the
# least possible, each tensor once. The table has the planner's decisions: *order* says what waits in L1 while the rest
# passes, *buffering* whether the next piece is loaded meanwhile, *resident* what is copied to L2.

# %%
print("plain loop:", loop_bytes(100, 300, 80, 32))
print("plan:      ", total(traffic.plan_counters(plan)).dram_bytes)
print("least:     ", a.nbytes + b.nbytes + step.nbytes)
render.reasons_table(plan)

# %% [markdown] tags=["solution"]
# *Answer.* The plan reads each tensor from DRAM once. One operand waits in L1; the other is copied to L2, and its tiles
# come from there.

# %% [markdown]
# ## Convolutions too
#
# A convolution is a matrix product over patches: the pixels under the kernel are a row, a filter is a column.
#
# **Build.** From an image (H, W, C) make the matrix of patches: one row per output position, in reading order; in a row
# kernel rows, then kernel columns, then channels. No padding, stride 1.

# %%
def patches(image, kernel):
    """(H, W, C) to (Y * X, kernel * kernel * C), Y = H - kernel + 1."""
    ### BEGIN SOLUTION
    y, x = image.shape[0] - kernel + 1, image.shape[1] - kernel + 1
    rows = [image[i : i + kernel, j : j + kernel].ravel() for i in range(y) for j in range(x)]
    return np.array(rows)
    ### END SOLUTION


is_patches_right = check("runtime.patches", patches)
is_patches_right

# %% [markdown]
# With it, your matrix product is a convolution. On the chip the patches never exist as a matrix, it would be nine times
# the image: the engine gathers them from a small box. In the picture, the hatched rim of that box is the *halo*, which
# neighbouring tiles read again.

# %%
(conv_plan,) = npu_kit.compile(probes.conv_nhwc()).plans
image, filters = random_arguments(probes.conv_nhwc())
(conv,) = execute(conv_plan, [image, filters], mode="step")
if is_loop_right and is_patches_right:
    mine = tiled_matmul(patches(image[0], 3), filters.reshape(-1, filters.shape[-1]), OnChipMemory(spec))
    print(f"largest difference {abs(mine.reshape(conv.shape) - conv).max():.1e}")
render.tiles(conv_plan, 0, 3)

# %% [markdown]
# ## A third of the memory
#
# Same layers, but L1 and L2 are a third as large. **Predict:** do the values change? Does the traffic? The model is a
# convolution, a relu and a pool; between them is a tensor of 32 channels of 40 by 40.

# %%
third = {name: spec.tier(name).capacity_bytes // 3 // 64 * 64 for name in ("L1", "L2")}
model = build("conv_relu_pool", channels=16, size=40, filters=32)
outputs, moved = [], {}
for name, machine in {"example": spec, "a third": spec.replace(capacity_bytes=third)}.items():
    with npu_kit.record() as trace:
        outputs.append(npu_kit.compile(model, machine, bind_constants=True).run(*random_arguments(model)))
    moved[name] = trace.counters.nbytes
print("same bits:", (outputs[0] == outputs[1]).all())
render.traffic(moved)

# %% [markdown]
# Not one bit changed: depths of sums follow the layer, never the memory. The traffic did, because the tensor between no
# longer fits L2.
#
# ## Two that do not fit
#
# A larger tile would be read less often. **Predict:** which of these does the machine refuse, and where is the limit?

# %%
for attempt in ({"tile": 64}, {"capacity_bytes": {"L1": 16 * 1024}}):
    try:
        planner.make_plan(plan.graph, spec.replace(**attempt))
    except npu_kit.errors.NpuKitError as error:
        print(f"{type(error).__name__}: {error}\n")

# %% [markdown]
# ## Differences that are meant
#
# The kit and TVM's own build do not agree on everything. The host adds float16 numbers in float16, and 2,048 + 1 is
# 2,048 there; the kit accumulates in float32, as accelerators mostly do. And a relu of NaN is 0 on the host; the kit
# keeps the NaN, so that nobody loses an error.

# %%
dot, relu = probes.matmul_of(1, 4608, 1, "float16"), build("matmul_relu", m=1, k=1, n=1)
ones, nan = (np.ones((1, 4608), "float16"), np.ones((4608, 1), "float16")), (np.full((1, 1), np.nan, "float32"),) * 2
for what, model, arrays in (("4,608 ones, summed", dot, ones), ("relu of NaN", relu, nan)):
    print(f"{what}: host {build_for_host(model).run(*arrays)[0, 0]}, NPU {npu_kit.compile(model).run(*arrays)[0, 0]}")

# %% [markdown]
# ## Try more
#
# **Where does the conv engine wait, and for what?** Find the stalls in the timeline. Then change the tile and L1 and
# look whether they go: the plan is made anew at once, and nothing runs. The last slider walks through the events. The
# picture further up shows one tile of the same convolution.

# %%
TileExplorer(conv_plan.graph, spec, plan=planner.make_plan, forecast=forecast.forecast)

# %% [markdown] tags=["solution"]
# *Answer.* At the beginning for image and weights, and again when the loop comes to the next channels and new weights
# have to arrive. With a tile that takes more channels at once there are fewer such moments.

# %% [markdown]
# ## Recap
#
# | | |
# |---|---|
# | **in** | a graph, a machine; then arrays |
# | **out** | a plan with a reason for each decision; then arrays, and a trace of what was moved |
# | **decision** | tiles, what stays near, in which order, on which engine |
#
# The plan decides, the runtime obeys, and both count the same bytes. Memory changes what is moved, never what is
# computed.

# %% [markdown]
# ## In the real thing
#
# - **Simplified here.** One core, and cycles from formulas. Kernels are NumPy: which bytes move is real, how long it
#   takes is a model.
# - **In TVM**, in apache/tvm: `src/runtime/extra/contrib/example_npu/example_npu_runtime.cc` names these memories and
#   engines, and computes nothing. `src/runtime/extra/contrib/clml/clml_memory_planner.cc` plans the on-chip memory of a
#   real GPU.
# - **At a vendor.** Arm's Vela: `ethosu/vela/scheduler.py` chooses tile shapes and what stays in SRAM,
#   `ethosu/vela/hillclimb_allocation.py` gives tensors their addresses, `ethosu/vela/npu_performance.py` counts cycles
#   and bytes.

# %% [markdown]
# ## Exercises
#
# **Read.** Zeros cost time as well. Of all multiply-accumulates that the engine does for the 100 x 300 x 80 product, in
# full tiles of 32 by 32 and full chunks, which share is padding? The plan's chunk is printed; two digits are enough.

# %%
print("chunk:", plan.steps[0].axis("c").tile)
### BEGIN SOLUTION
chunks = -(-300 // plan.steps[0].axis("c").tile)
padded_share = 1 - 100 * 300 * 80 / (4 * 32 * chunks * plan.steps[0].axis("c").tile * 3 * 32)
### STUB padded_share = ...  # between 0 and 1
### END SOLUTION
check("runtime.padded_share", padded_share)

# %% [markdown]
# **Change.** L0 holds 1,024 numbers, square or not. Compare tiles of 32 by 32 with 16 by 64 and 8 by 128, for the
# product above. Which boundary does the shape matter for, and for which shape of result would a flat tile win?

# %%
shapes = {f"{rows} by {columns}": (rows, columns) for rows, columns in ((32, 32), (16, 64), (8, 128))}
plans = {name: planner.make_plan(plan.graph, spec, tile=shape) for name, shape in shapes.items()}
render.traffic({name: total(traffic.plan_counters(one)).nbytes for name, one in plans.items()})

# %% [markdown] tags=["solution"]
# *Answer.* L2 to L1. More columns in a tile, and `a` is fetched less often; fewer rows, and `b` is fetched more often.
# Flat wins for results with few rows and many columns.

# %% [markdown]
# **Build.** Fuse a relu. It is applied to the tile while that is still in L0, before it is taken out, so it costs no
# traffic at all. Start from your `tiled_matmul`.

# %%
def tiled_matmul_relu(a, b, memory, tile=32, chunk=128):
    """relu(a @ b), computed on views of L1 and L0 only."""
    ### BEGIN SOLUTION
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    near_a = memory["L1"].view(0, (tile, chunk), "float32")
    near_b = memory["L1"].view(near_a.nbytes, (chunk, tile), "float32")
    accumulator = memory["L0"].view(0, (tile, tile), "float32")
    for i, j in product(range(0, a.shape[0], tile), range(0, b.shape[1], tile)):
        accumulator[...] = 0
        for c in range(0, a.shape[1], chunk):
            accumulator += load(near_a, a[i : i + tile, c : c + chunk]) @ load(near_b, b[c : c + chunk, j : j + tile])
        np.maximum(accumulator, 0, out=accumulator)
        here = out[i : i + tile, j : j + tile]
        here[...] = accumulator[: here.shape[0], : here.shape[1]]
    return out
    ### END SOLUTION


check("runtime.tiled_matmul_relu", tiled_matmul_relu)
