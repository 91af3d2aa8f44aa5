"""Train the digits classifier of npu_kit.data, in NumPy, and write its images and weights.

    python scripts/train_digits.py            # writes npu_kit/data/digits_images.npz and digits_weights.npz
    python scripts/train_digits.py --check    # trains again and compares with the files that are there

The network, with N images, H x W pixels and C channels (NHWC):

    image   N x 8 x 8 x 1
    stage 1 conv 3x3, padded, 12 filters, batch norm, relu                      -> N x 8 x 8 x 12
    stage 2 conv 3x3, unpadded, 40 filters, batch norm, relu, max pool 2x2      -> N x 3 x 3 x 40
    head    flatten, dense to 10 with bias, softmax                             -> N x 10

None of 6 x 6 = 36 pixels, 40 filters, 3 * 3 * 12 = 108 products and 360 features is a multiple of 32, so that the tiles
of the example machine are ragged on every axis.

Training is deterministic: legacy RandomState streams (frozen by NumPy's policy) and one BLAS thread. On one machine
with one NumPy the same bits come out (tried on Linux x86_64, NumPy 2.4, OpenBLAS). Another BLAS kernel adds in another
order, and training amplifies that: there only the accuracy is the same, within one percent, as --check accepts.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from npu_kit.data.digits import EPSILON, IMAGES_FILE, WEIGHTS_FILE, load_digits_parameters

Array = NDArray[np.float32]
Parameters = dict[str, Array]

SEED = 2024
TEST_IMAGES = 360
CLASSES = 10
EPOCHS = 40
BATCH = 48
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-3
STATISTICS_MOMENTUM = 0.9
ACCURACY_TOLERANCE = 0.01


def split(labels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Indices of the held-out images, sorted: one permutation, its first TEST_IMAGES."""
    return np.sort(np.random.RandomState(SEED).permutation(len(labels))[:TEST_IMAGES]).astype(np.uint16)


def initial_parameters() -> Parameters:
    """He-normal weights; batch norm and bias start as the identity."""
    random = np.random.RandomState(SEED)

    def weight(*shape: int) -> Array:
        return np.asarray(random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:-1])), np.float32)

    parameters: Parameters = {}
    for name, shape in (("conv1", (3, 3, 1, 12)), ("conv2", (3, 3, 12, 40))):
        parameters[f"{name}_weight"] = weight(*shape)
        for part, value in (("gamma", 1), ("beta", 0), ("mean", 0), ("var", 1)):
            parameters[f"{name}_{part}"] = np.full(shape[-1], value, np.float32)
    parameters["dense_weight"] = weight(3 * 3 * 40, CLASSES)
    parameters["dense_bias"] = np.zeros(CLASSES, np.float32)
    return parameters


# Layers: forward returns the output and what backward needs; backward returns the gradients of its inputs.


def patches(x: Array, padding: int) -> Array:
    """Every 3x3 window of ``x`` (N, H, W, C) as a row of 9 * C values: (N, H', W', 9 * C)."""
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = padded.shape[1] - 2, padded.shape[2] - 2
    windows = [padded[:, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return np.concatenate(windows, axis=-1)


def conv_forward(x: Array, weight: Array, padding: int) -> tuple[Array, Array]:
    columns = patches(x, padding)
    return columns @ weight.reshape(-1, weight.shape[-1]), columns


def conv_backward(grad: Array, columns: Array, weight: Array, padding: int) -> tuple[Array, Array]:
    """Gradients of ``x`` and of ``weight``."""
    count, rows, width, filters = grad.shape
    flat = grad.reshape(-1, filters)
    grad_weight = (columns.reshape(len(flat), -1).T @ flat).reshape(weight.shape)
    grad_columns = (flat @ weight.reshape(-1, filters).T).reshape(count, rows, width, 3, 3, -1)
    padded = np.zeros((count, rows + 2, width + 2, weight.shape[2]), np.float32)
    for i in range(3):
        for j in range(3):
            padded[:, i : i + rows, j : j + width] += grad_columns[:, :, :, i, j]
    return padded[:, padding : padded.shape[1] - padding, padding : padded.shape[2] - padding], grad_weight


def norm_forward(x: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array, Array]:
    """Output, normalized x, mean and variance over N, H and W."""
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    normal = (x - mean) / np.sqrt(var + np.float32(EPSILON))
    return normal * gamma + beta, normal, mean, var


def norm_backward(grad: Array, normal: Array, var: Array, gamma: Array) -> tuple[Array, Array, Array]:
    """Gradients of x, gamma and beta."""
    axes = (0, 1, 2)
    grad_gamma, grad_beta = (grad * normal).sum(axes), grad.sum(axes)
    count = np.float32(normal.size / normal.shape[-1])
    centred = grad - (grad_beta + normal * grad_gamma) / count
    return centred * gamma / np.sqrt(var + np.float32(EPSILON)), grad_gamma, grad_beta


def pool_forward(x: Array) -> tuple[Array, Array]:
    """Maximum of each 2x2 window, and for each window a one-hot over its four values that says which one it was."""
    count, rows, columns, channels = x.shape
    windows = x.reshape(count, rows // 2, 2, columns // 2, 2, channels).transpose(0, 1, 3, 5, 2, 4)
    flat = windows.reshape(*windows.shape[:4], 4)
    chosen = flat.argmax(-1)[..., None] == np.arange(4)
    return flat.max(-1), chosen.astype(np.float32)


def pool_backward(grad: Array, chosen: Array) -> Array:
    windows = (grad[..., None] * chosen).reshape(*grad.shape, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    count, rows, _, columns, _, channels = windows.shape
    image: Array = windows.reshape(count, rows * 2, columns * 2, channels)
    return image


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Array = powers / powers.sum(-1, keepdims=True)
    return probabilities


# The network


def predict(parameters: Parameters, images: Array) -> Array:
    """Probabilities (N, 10) of images (N, 8, 8, 1), with the running statistics: what the NPU has to compute."""
    p, x = parameters, images
    for name, padding in (("conv1", 1), ("conv2", 0)):
        x, _ = conv_forward(x, p[f"{name}_weight"], padding)
        x = (x - p[f"{name}_mean"]) / np.sqrt(p[f"{name}_var"] + np.float32(EPSILON))
        x = np.maximum(x * p[f"{name}_gamma"] + p[f"{name}_beta"], 0)
    x, _ = pool_forward(x)
    return softmax(x.reshape(len(x), -1) @ p["dense_weight"] + p["dense_bias"])


def accuracy(parameters: Parameters, images: Array, labels: NDArray[np.uint8]) -> float:
    return float((predict(parameters, images).argmax(-1) == labels).mean())


def gradients(p: Parameters, images: Array, labels: NDArray[np.uint8]) -> tuple[float, Parameters, Parameters]:
    """Loss, its gradients, and the batch's statistics under the names of the running ones."""
    c1, columns1 = conv_forward(images, p["conv1_weight"], 1)
    b1, normal1, mean1, var1 = norm_forward(c1, p["conv1_gamma"], p["conv1_beta"])
    r1 = np.maximum(b1, 0)
    c2, columns2 = conv_forward(r1, p["conv2_weight"], 0)
    b2, normal2, mean2, var2 = norm_forward(c2, p["conv2_gamma"], p["conv2_beta"])
    r2 = np.maximum(b2, 0)
    pooled, chosen = pool_forward(r2)
    features = pooled.reshape(len(images), -1)
    probabilities = softmax(features @ p["dense_weight"] + p["dense_bias"])
    loss = float(-np.log(probabilities[np.arange(len(labels)), labels]).mean())

    g: Parameters = {}
    grad: Array = (probabilities - np.eye(CLASSES, dtype=np.float32)[labels]) / np.float32(len(labels))
    g["dense_weight"], g["dense_bias"] = features.T @ grad, grad.sum(0)
    grad = pool_backward((grad @ p["dense_weight"].T).reshape(pooled.shape), chosen) * (b2 > 0)
    grad, g["conv2_gamma"], g["conv2_beta"] = norm_backward(grad, normal2, var2, p["conv2_gamma"])
    grad, g["conv2_weight"] = conv_backward(grad, columns2, p["conv2_weight"], 0)
    grad, g["conv1_gamma"], g["conv1_beta"] = norm_backward(grad * (b1 > 0), normal1, var1, p["conv1_gamma"])
    _, g["conv1_weight"] = conv_backward(grad, columns1, p["conv1_weight"], 1)
    return loss, g, {"conv1_mean": mean1, "conv1_var": var1, "conv2_mean": mean2, "conv2_var": var2}


def train(images: Array, labels: NDArray[np.uint8], epochs: int = EPOCHS, verbose: bool = True) -> Parameters:
    """Adam (Kingma and Ba, 2015), decoupled weight decay, a cosine learning rate; no choice looks at the test set."""
    random = np.random.RandomState(SEED)
    p = initial_parameters()
    first = {name: np.zeros_like(value) for name, value in p.items()}
    second = {name: np.zeros_like(value) for name, value in p.items()}
    steps = epochs * (len(images) // BATCH)
    step = 0
    for epoch in range(epochs):
        order = random.permutation(len(images))
        losses = []
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            loss, g, statistics = gradients(p, images[chosen], labels[chosen])
            losses.append(loss)
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, grad in g.items():
                first[name] += np.float32(0.1) * (grad - first[name])
                second[name] += np.float32(0.001) * (grad * grad - second[name])
                update = first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8)
                decay = WEIGHT_DECAY * p[name] if name.endswith("weight") else 0.0
                p[name] = (p[name] - rate * (update + decay)).astype(np.float32)
            for name, value in statistics.items():
                p[name] += np.float32(1 - STATISTICS_MOMENTUM) * (value - p[name])
        if verbose and (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1:3}: loss {np.mean(losses):.4f}")
    return p


def check(parameters: Parameters, reached: float, images: Array, labels: NDArray[np.uint8]) -> bool:
    """Compare with the files that are there: the same bits, or the same accuracy within the tolerance."""
    there = load_digits_parameters()
    if there.keys() == parameters.keys() and all(np.array_equal(there[n], parameters[n]) for n in there):
        print("the same weights, bit for bit")
        return True
    stored_accuracy = accuracy(there, images, labels)
    print(f"other bits (another BLAS or NumPy?); test accuracy {reached:.4f}, stored {stored_accuracy:.4f}")
    return abs(reached - stored_accuracy) <= ACCURACY_TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description="Train the digits classifier and write its images and weights.")
    parser.add_argument("--check", action="store_true", help="write nothing; compare with the files that are there")
    arguments = parser.parse_args()

    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    held_out = split(labels)
    is_test = np.zeros(len(labels), bool)
    is_test[held_out] = True
    images = pixels[..., None].astype(np.float32) / 16

    with threadpool_limits(1):  # with more threads BLAS may add in another order
        parameters = train(images[~is_test], labels[~is_test])
    reached = accuracy(parameters, images[is_test], labels[is_test])
    print(
        f"accuracy: {accuracy(parameters, images[~is_test], labels[~is_test]):.4f} on {(~is_test).sum()} for training"
    )
    print(f"          {reached:.4f} on {is_test.sum()} held out")
    if arguments.check:
        return 0 if check(parameters, reached, images[is_test], labels[is_test]) else 1
    np.savez_compressed(IMAGES_FILE, images=pixels, labels=labels, test_indices=held_out)
    contents: dict[str, Any] = dict(parameters)
    np.savez_compressed(WEIGHTS_FILE, **contents)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
