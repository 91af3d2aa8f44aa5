"""The digits data, the stored weights, the script that trained them, and the Relax module: one network in all four."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from npu_kit.data import load_digits_data, load_digits_parameters
from npu_kit.data.digits import EPSILON, IMAGES_FILE, WEIGHTS_FILE

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {
    "conv1_weight": (3, 3, 1, 12),
    **dict.fromkeys(("conv1_gamma", "conv1_beta", "conv1_mean", "conv1_var"), (12,)),
    "conv2_weight": (3, 3, 12, 40),
    **dict.fromkeys(("conv2_gamma", "conv2_beta", "conv2_mean", "conv2_var"), (40,)),
    "dense_weight": (360, 10),
    "dense_bias": (10,),
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location("train_digits", ROOT / "scripts" / "train_digits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_on_host(module: Any, *arrays: np.ndarray) -> np.ndarray:
    """What TVM's own LLVM build computes."""
    tvm = pytest.importorskip("tvm")
    machine = tvm.relax.VirtualMachine(tvm.relax.build(module, "llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in arrays))
    return np.array(result.numpy())


def plain_forward(p: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """The network in float64, written from its description and not from the script: loops over filter positions."""

    def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        rows, columns = x.shape[1] - 2, x.shape[2] - 2
        return sum(
            np.einsum("nhwc,co->nhwo", x[:, i : i + rows, j : j + columns], w[i, j]) for i in range(3) for j in range(3)
        )

    def norm_relu(x: np.ndarray, name: str) -> np.ndarray:
        factor = p[f"{name}_gamma"] / np.sqrt(p[f"{name}_var"] + EPSILON)
        return np.maximum(x * factor + (p[f"{name}_beta"] - p[f"{name}_mean"] * factor), 0)

    p = {name: array.astype(np.float64) for name, array in p.items()}
    x = np.pad(images.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    x = norm_relu(conv(x, p["conv1_weight"]), "conv1")
    x = norm_relu(conv(x, p["conv2_weight"]), "conv2")
    x = np.max([x[:, i::2, j::2] for i in range(2) for j in range(2)], axis=0)
    logits = x.reshape(len(x), -1) @ p["dense_weight"] + p["dense_bias"]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


# Data


def test_the_images_are_scikit_learns() -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    data = load_digits_data()
    np.testing.assert_array_equal(data.images[..., 0] * 16, digits.images)
    np.testing.assert_array_equal(data.labels, digits.target)


def test_the_shapes_ranges_and_split() -> None:
    data = load_digits_data()
    assert (data.images.shape, data.images.dtype) == ((1797, 8, 8, 1), np.float32)
    assert (data.labels.shape, data.labels.dtype) == ((1797,), np.int64)
    assert (data.images.min(), data.images.max()) == (0, 1)
    assert set(data.labels) == set(range(10))
    assert data.is_test.sum() == 360
    assert len(data.test_images) == len(data.test_labels) == 360
    assert len(data.train_images) == len(data.train_labels) == 1437
    assert np.bincount(data.test_labels).min() >= 25  # every digit is tested


def test_no_held_out_image_is_also_trained_on() -> None:
    data = load_digits_data()
    trained = {image.tobytes() for image in data.train_images}
    assert not [i for i, image in enumerate(data.test_images) if image.tobytes() in trained]


def test_each_load_gives_arrays_of_its_own() -> None:
    first, second = load_digits_data(), load_digits_data()
    first.images[:] = 7
    first.labels[:] = 7
    assert second.images.max() == 1
    assert set(load_digits_data().labels) == set(range(10))


def test_the_parameters_have_the_shapes_of_the_network() -> None:
    parameters = load_digits_parameters()
    assert {name: array.shape for name, array in parameters.items()} == SHAPES
    assert list(parameters) == list(SHAPES)
    for array in parameters.values():
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
    assert min(parameters["conv1_var"].min(), parameters["conv2_var"].min()) > 0


def test_the_files_are_small() -> None:
    assert IMAGES_FILE.stat().st_size + WEIGHTS_FILE.stat().st_size < 100_000


def test_the_data_loads_where_tvm_does_not() -> None:
    code = (
        "import sys; sys.modules['tvm'] = None\n"
        "from npu_kit.data import load_digits_data, load_digits_parameters\n"
        "print(load_digits_data(), len(load_digits_parameters()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "DigitsData(1797 images of 8x8, 360 held out) 12", done.stderr


# The network, four times


def test_the_stored_weights_reach_the_accuracy_that_the_readme_states() -> None:
    data = load_digits_data()
    probabilities = plain_forward(load_digits_parameters(), data.test_images)
    correct = int((probabilities.argmax(1) == data.test_labels).sum())
    assert (correct, len(data.test_labels)) == (357, 360)
    readme = (IMAGES_FILE.parent / "README.md").read_text(encoding="utf-8")
    assert f"**{correct / 360:.1%}**".replace("%", " %") in readme
    assert f"{correct} of 360" in readme


def test_the_scripts_network_is_the_described_one(script: ModuleType) -> None:
    images = load_digits_data().test_images
    parameters = load_digits_parameters()
    np.testing.assert_allclose(script.predict(parameters, images), plain_forward(parameters, images), atol=2e-6)


@pytest.mark.parametrize("bind", [True, False])
def test_tvm_computes_the_same_network(bind: bool) -> None:
    zoo = pytest.importorskip("npu_kit.zoo")
    data, parameters = load_digits_data(), load_digits_parameters()
    module = zoo.digits_model(batch=360, bind=bind)
    extra = () if bind else tuple(parameters.values())
    probabilities = run_on_host(module, data.test_images, *extra)
    assert (probabilities.shape, probabilities.dtype) == ((360, 10), np.float32)
    np.testing.assert_allclose(probabilities, plain_forward(parameters, data.test_images), atol=2e-6)
    assert (probabilities.argmax(1) == data.test_labels).mean() >= 0.97


def test_a_batch_gives_what_its_images_give_alone() -> None:
    zoo = pytest.importorskip("npu_kit.zoo")
    images = load_digits_data().test_images[:3]
    together = run_on_host(zoo.digits_model(batch=3), images)
    one = zoo.digits_model()
    alone = np.concatenate([run_on_host(one, images[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_unbound_parameters_follow_the_image_in_order() -> None:
    zoo = pytest.importorskip("npu_kit.zoo")
    main = zoo.digits_model(bind=False)["main"]
    assert [variable.name for variable in main.params] == ["image", *SHAPES]
    assert int(main.attrs["num_input"]) == 1
    assert [variable.name for variable in zoo.digits_model(bind=True)["main"].params] == ["image"]


def test_batch_norm_is_inference(script: ModuleType) -> None:
    """With ``training=True``, Relax's default, a batch of one image would be normalized by itself."""
    zoo = pytest.importorskip("npu_kit.zoo")
    parameters = load_digits_parameters()
    image = load_digits_data().test_images[:1]
    for name in ("conv1_mean", "conv2_var"):
        parameters[name] = parameters[name] + 1
        changed = run_on_host(zoo.digits_model(bind=False), image, *parameters.values())
        np.testing.assert_allclose(changed, script.predict(parameters, image), atol=2e-6)


# Training


def test_the_stored_split_is_the_scripts(script: ModuleType) -> None:
    data = load_digits_data()
    np.testing.assert_array_equal(np.flatnonzero(data.is_test), script.split(data.labels.astype(np.uint8)))


@pytest.mark.parametrize("name", [n for n in SHAPES if not n.endswith(("_mean", "_var"))])
def test_each_gradient_is_the_slope_of_the_loss(script: ModuleType, name: str) -> None:
    data = load_digits_data()
    images, labels = data.train_images[:16].astype(np.float64), data.train_labels[:16]
    parameters = {key: value.astype(np.float64) for key, value in script.initial_parameters().items()}
    direction = np.random.RandomState(1).standard_normal(SHAPES[name])
    direction /= np.linalg.norm(direction)
    step = 1e-5

    def loss(offset: float) -> float:
        return float(script.gradients({**parameters, name: parameters[name] + offset * direction}, images, labels)[0])

    slope = (loss(step) - loss(-step)) / (2 * step)
    _, gradients, _ = script.gradients(parameters, images, labels)
    assert slope != 0
    assert np.sum(gradients[name] * direction) == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_training_is_deterministic_and_learns(script: ModuleType) -> None:
    data = load_digits_data()
    images, labels = data.train_images[:480], data.train_labels[:480].astype(np.uint8)
    first, second = (script.train(images, labels, epochs=5, verbose=False) for _ in range(2))
    assert list(first) == list(SHAPES)
    for name, array in first.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, second[name])
    untrained = script.accuracy(script.initial_parameters(), data.test_images, data.test_labels)
    assert untrained < 0.3
    assert script.accuracy(first, data.test_images, data.test_labels) > 0.8


def test_check_accepts_the_stored_weights_and_refuses_worse_ones(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    data, stored = load_digits_data(), load_digits_parameters()
    images, labels = data.test_images, data.test_labels
    assert script.check(stored, 357 / 360, images, labels)
    assert "bit for bit" in capsys.readouterr().out
    other = {**stored, "dense_bias": stored["dense_bias"] + np.float32(1)}
    assert script.check(other, 355 / 360, images, labels)
    assert not script.check(other, 353 / 360, images, labels)
    assert "test accuracy 0.9806, stored 0.9917" in capsys.readouterr().out
