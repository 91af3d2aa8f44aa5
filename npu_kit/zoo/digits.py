"""The digits classifier as a Relax module: a real, trained network that is small enough to follow tile by tile."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op

from npu_kit.data.digits import EPSILON, DigitsData, load_digits_data, load_digits_parameters
from npu_kit.zoo.main_function import Emit, build_main, tensor

__all__ = ["DigitsData", "digits_model", "load_digits_data", "load_digits_parameters"]

CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def digits_model(batch: int = 1, bind: bool = True) -> Any:
    """Images (N, 8, 8, 1) to probabilities (N, 10): two convolutions, one dense layer.

    Args:
        batch: N, images per call.
        bind: True puts the trained weights into the module as constants; False leaves them as parameters of ``main``,
            after ``image``, in the order of ``load_digits_parameters()``.

    Returns:
        a ``tvm.ir.IRModule``. The reshape between the convolutions and the dense layer moves nothing: to the planner it
        is another way to read the same memory.
    """
    weights = load_digits_parameters()
    image = tensor("image", (batch, 8, 8, 1))
    p = {name: tensor(name, array.shape) for name, array in weights.items()}

    def norm_relu(emit: Emit, x: Any, conv: str, number: int) -> Any:
        statistics = (p[f"{conv}_{part}"] for part in ("gamma", "beta", "mean", "var"))
        normed = emit(op.nn.batch_norm(x, *statistics, axis=3, epsilon=EPSILON, training=False), f"bn{number}")
        return emit(op.nn.relu(emit(relax.TupleGetItem(normed, 0), f"bn{number}_y")), f"relu{number}")

    def body(emit: Emit) -> Any:
        conv1 = emit(op.nn.conv2d(image, p["conv1_weight"], padding=1, **CHANNELS_LAST), "conv1")  # N x 8 x 8 x 12
        relu1 = norm_relu(emit, conv1, "conv1", 1)
        conv2 = emit(op.nn.conv2d(relu1, p["conv2_weight"], **CHANNELS_LAST), "conv2")  # N x 6 x 6 x 40
        relu2 = norm_relu(emit, conv2, "conv2", 2)
        pooled = emit(op.nn.max_pool2d(relu2, (2, 2), (2, 2), layout="NHWC"), "pool")  # N x 3 x 3 x 40
        flat = emit(op.reshape(pooled, (batch, 360)), "flat")
        product = emit(op.matmul(flat, p["dense_weight"]), "dense")
        logits = emit(op.add(product, p["dense_bias"]), "logits")
        return op.nn.softmax(logits)

    module = build_main([image], body, parameters=p)
    return relax.transform.BindParams("main", weights)(module) if bind else module
