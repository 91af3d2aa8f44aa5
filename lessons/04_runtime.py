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
from itertools import product

import numpy as np

import npu_kit
from npu_kit import render
from npu_kit.byoc.run.host import build_for_host
from npu_kit.exercises import check
from npu_kit.plan import forecast, planner, traffic
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
# before. Read the two columns of numbers: how many values of 4 bytes fit into each, and how much slower is the next?

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
# *Answer.* Yours has the same tiles, the same order of sums and so the same bits. `np.matmul` adds in an order of its
# own, so its last digits can differ. That is rounding, not a bug, and why the kit keeps one order in both modes.
#
# The packaged loop is a program: folded, then one tile of it, then compared with tiles of 16 by 16. **Predict:** how
# many tiles is that, and is more moved from L2 to L1?

# %%
print(render.program(plan), "\n")
print(render.program(plan).filter(tile=1), "\n")
render.program(plan).diff(planner.make_plan(plan.graph, spec, tile=16))

# %% [markdown]
# *Answer.* 35 in place of 12, and more: `a` passes once for each column of tiles. `w` stays for a column, with all its
# chunks side by side (a *panel*).
#
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
# *Answer.* No: NaN times zero is NaN, and one NaN in a sum makes it NaN. So slots are cleared, and tests run with
# poison.
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
# Your loop (`None` until it is written), the plan with the same tiles, and the least possible, each tensor once. In the
# table the matmul is called `dense`, because its second operand is a matrix of weights. *Order*: sums stay in the array
# (output stationary), weights wait in L1 while the rest passes; what is only a little better by an estimate does not
# win. *Buffering*: is the next piece loaded meanwhile? *Resident*: what is copied to L2.

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
# Not one bit changed: depths of sums follow the layer, never the memory. The traffic did, a little: the tensor between
# no longer fits L2 whole, so it goes in two stripes. The weights are fetched for each, and so are the rows of the image
# where the stripes meet.
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
# **Where does the conv engine wait, and for what?** Find the hatched stalls in the timeline; point at one, and it names
# the event that it waits for. Which tile has none, and which L1 brings many? A new plan is made at once, and nothing
# runs. The last slider walks through the events: go to the end too, the timeline shows 60 at a time.

# %%
TileExplorer(conv_plan.graph, spec, plan=planner.make_plan, forecast=forecast.forecast)

# %% [markdown] tags=["solution"]
# *Answer.* At the beginning the lane is empty: image and weights have to arrive. (Hatched are only waits between two
# computes.) Then all goes well, since each operand has two slots: while a tile is computed, the next piece arrives.
#
# With tiles of 16, each stall is a wait for a load of `x`, and that load stands in the queue of the one dma engine. In
# the first and second stall it is behind the weights of the next channels. After that only 8 channels are left: a tile
# takes 94 cycles now, and a load has to wait for the store of a result, 132 cycles.
#
# With tiles of 28 there is no stall at all: a compute takes longer than what is moved meanwhile. With 16 KB of L1 and
# tiles of 16 there is no room for second slots, and there is a stall before nearly every tile.

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

# %% [markdown] tags=["solution"]
# *Answer.* More than a third, 0.36. There are 4 times 3 tiles of 32 by 32 where 100 by 80 are needed, and two chunks of
# 152 where 300 are: 128 * 96 * 304 products for 100 * 80 * 300.

# %% [markdown]
# **Change.** L0 holds 1,024 numbers, square or not. Compare tiles of 32 by 32 with 16 by 64 and 8 by 128. Which
# boundaries does the shape matter for? Then take a result of few rows and many columns, `matmul_of(40, 300, 2048)`, and
# one of eight rows, `matmul_of(8, 300, 80)`: does the flattest tile win? (The cycles are counted event by event; those
# in a plan's reasons are an estimate.)

# %%
shapes = {f"{rows} by {columns}": (rows, columns) for rows, columns in ((32, 32), (16, 64), (8, 128))}
(graph,) = npu_kit.compile(probes.matmul_of(100, 300, 80)).graphs
plans = {name: planner.make_plan(graph, spec, tile=shape) for name, shape in shapes.items()}
print({name: f"{forecast.total_cycles(forecast.forecast(one)):,} cycles" for name, one in plans.items()})
render.traffic({name: total(traffic.plan_counters(one)).nbytes for name, one in plans.items()}, with_registers=True)

# %% [markdown] tags=["solution"]
# *Answer.* All but L1 to L3: the result leaves the chip once. `a` passes once for each column of tiles: three of 32,
# two of 64, one of 128. For three it is copied to L2 first, and DRAM sends each tensor once. For two the planner leaves
# the copy out: `a` comes twice from DRAM, 368,000 bytes in place of 248,000, in fewer cycles, as no tile has to wait
# for the copy. With one, `b` passes, from L2, once for each of 13 rows of tiles.
#
# For 40 by 2,048 the flattest tile moves least from L2 to L1, a quarter. It takes the most cycles all the same: 8 rows
# use half of the array, and L1 to L0 moves more. For 8 by 80 both operands are read once whatever the tile, and nothing
# comes from L2. So there is no best shape; there is a count, and the planner makes it.

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
