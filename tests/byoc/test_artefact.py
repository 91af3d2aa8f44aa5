"""A compiled model as a file: exported, loaded in a fresh process, refused where it is not what it was."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

import npu_kit
from npu_kit.byoc.run import artefact
from npu_kit.errors import ToolError, UnsupportedError

RUN = """
import sys, numpy as np
{before}
import tvm
from tvm import relax
module = tvm.runtime.load_module(sys.argv[1])
vm = relax.VirtualMachine(module, tvm.cpu())
print(vm["main"](tvm.runtime.tensor(np.load(sys.argv[2]))).numpy().tolist())
"""

LOAD = """
import sys, numpy as np, npu_kit
model = npu_kit.load(sys.argv[1], trust=True)
print([str(parameter) for parameter in model.parameters])
print(model.run(np.load(sys.argv[2])).tolist())
"""


def two_layers(seed):
    """main(x) with two regions' worth of constants: a host operation stands between the layers."""
    rng = np.random.default_rng(seed)
    first, second = (rng.standard_normal((4, 4)).astype("float32") for _ in range(2))
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.sin(builder.emit(relax.op.matmul(x, relax.const(first)))))
            y = builder.emit_output(relax.op.matmul(y, relax.const(second)))
        builder.emit_func_output(y)
    return builder.get(), lambda value: np.sin(value @ first) @ second


def python(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module", params=[False, True], ids=["constants-in-main", "constants-in-regions"])
def exported(request, tmp_path_factory):
    """(library, file of an input, expected output)"""
    folder = tmp_path_factory.mktemp("model")
    mod, reference = two_layers(1)
    compiled = npu_kit.compile(mod, bind_constants=request.param)
    assert len(compiled.graphs) == 2
    x = np.random.default_rng(2).standard_normal((2, 4)).astype("float32")
    np.save(folder / "x.npy", x)
    return compiled.export(folder / "model.so"), folder / "x.npy", reference(x)


def test_a_fresh_process_loads_it_with_the_kit(exported):
    library, x, expected = exported
    done = python(LOAD, library, x)
    assert done.returncode == 0, done.stderr
    parameters, values = done.stdout.splitlines()
    assert parameters == "['x (2x4 float32)']"
    np.testing.assert_allclose(json.loads(values), expected, atol=1e-5)


def test_a_plain_machine_runs_it_where_the_kit_is_imported(exported):
    library, x, expected = exported
    done = python(RUN.format(before="import npu_kit"), library, x)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-5)


def test_without_the_kit_the_message_says_what_to_import(exported):
    library, x, _ = exported
    done = python(RUN.format(before=""), library, x)
    assert done.returncode == 1
    assert "npu_kit." in done.stderr.strip().splitlines()[-1]


def test_a_loaded_model_says_what_it_takes(exported):
    assert repr(npu_kit.load(exported[0], trust=True)).startswith("RunnableModel(main of x (")


def test_loading_needs_trust(exported):
    with pytest.raises(ToolError, match="a shared library is a program"):
        npu_kit.load(exported[0])


def test_a_model_exported_again_to_the_same_path_is_the_new_one(tmp_path):
    x = np.ones((2, 4), "float32")
    for seed in (1, 2, 3):
        module, reference = two_layers(seed)
        library = npu_kit.compile(module).export(tmp_path / "model.so")
        np.testing.assert_allclose(npu_kit.load(library, trust=True).run(x), reference(x), atol=1e-5)


@pytest.fixture
def copied(exported, tmp_path):
    """A copy of the library and its manifest, to damage."""
    library = tmp_path / "model.so"
    library.write_bytes(exported[0].read_bytes())
    manifest = tmp_path / "model.so.json"
    manifest.write_bytes(exported[0].with_name("model.so.json").read_bytes())
    return library, manifest


def test_a_library_cut_short_is_refused_before_it_is_mapped(copied):
    library, _ = copied
    library.write_bytes(library.read_bytes()[:-4096])
    with pytest.raises(ToolError, match=r"its sha256 is .* and its manifest says"):
        npu_kit.load(library, trust=True)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": "npu_kit.model", "format_version": 99}', '{"format": 3}', "{}" + " " * 1_000_001],
)
def test_a_manifest_of_another_form_is_refused(copied, text):
    library, manifest = copied
    manifest.write_text(text)
    with pytest.raises(ToolError, match="cannot read the manifest"):
        npu_kit.load(library, trust=True)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("format", "other", "format: it is 'other' and must be 'npu_kit.model'"),
        ("format_version", 2, "format_version: it is 2 and this kit reads 1"),
        ("format_version", True, "format: "),
        ("sha256", "0" * 63, "sha256: it is '0+', which is no sha256"),
        ("sha256", None, "sha256: it is None"),
        ("entry", "", "entry: it is '' and must be the name of a function"),
        ("entry", "a\0b", "entry: "),
        ("entry", ["main"], "entry: "),
        ("parameters", {}, "parameters: it must be an array"),
        ("parameters", [["x", [1]]], r"parameters\[0\]: it must be an array of name, shape and dtype"),
        ("parameters", [[3, [1], "float32"]], r"parameters\[0\]: its name is 3"),
        ("parameters", [["x", [-1], "float32"]], r"parameters\[0\]: its shape is \[-1\]"),
        ("parameters", [["x", [True], "float32"]], "its shape is"),
        ("parameters", [["x", [2**63], "float32"]], "its shape is"),
        ("parameters", [["x", [1] * 33, "float32"]], "its shape is"),
        ("parameters", [["x", [1], "float31"]], "its dtype is 'float31'"),
        ("parameters", [["x", [1], "object"]], "its dtype is 'object'"),
        ("parameters", [["x", [1], "f4,f4"]], "its dtype is"),
    ],
)
def test_a_manifest_with_a_value_that_makes_no_sense_is_refused(copied, key, value, told):
    library, manifest = copied
    content = json.loads(manifest.read_text())
    content[key] = value
    manifest.write_text(json.dumps(content))
    with pytest.raises(ToolError, match=f"cannot read the manifest .*{told}"):
        npu_kit.load(library, trust=True)


def test_an_entry_that_the_library_does_not_have_is_refused(copied):
    library, manifest = copied
    manifest.write_text(manifest.read_text().replace('"main"', '"other"'))
    with pytest.raises(ToolError, match=r"cannot load .*: it has no function 'other'"):
        npu_kit.load(library, trust=True)


@pytest.mark.parametrize("bind_constants", [False, True])
def test_a_constant_that_tvm_could_not_load_again_is_not_exported(tmp_path, make_model, bind_constants):
    def compiled(empty):
        model = make_model(lambda builder, x: relax.op.matmul(x, empty), x=((2, 3), "float32"))
        return npu_kit.compile(model, bind_constants=bind_constants)

    with pytest.raises(UnsupportedError, match=r"exporting a constant of 3x0: it has no elements"):
        compiled(relax.const(np.zeros((3, 0), "float32"))).export(tmp_path / "model.so")
    library = compiled(relax.op.zeros((3, 0), "float32")).export(tmp_path / "model.so")
    assert npu_kit.load(library, trust=True).run(np.ones((2, 3), "float32")).shape == (2, 0)


def test_an_export_writes_where_it_was_told_to_or_nowhere(tmp_path):
    compiled = npu_kit.compile(two_layers(3)[0])
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "a.so.json").symlink_to(elsewhere)
    (tmp_path / "b.so").symlink_to(elsewhere)
    for name, told in (
        *(("a.so", "it is a link to .*elsewhere"), ("b.so", "it is a link to .*elsewhere")),
        *(("no/folder/c.so", "there is no folder .*folder"), ("d\0.so", "null byte"), (".", ".")),
    ):
        with pytest.raises(ToolError, match=f"cannot export .*{told}"):
            compiled.export(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.so.json", "b.so"]


def test_what_is_no_ordinary_file_is_neither_read_nor_written(copied):
    """A pipe would be waited for, and /dev/zero copied until the disk is full."""
    library, manifest = copied
    compiled = npu_kit.compile(two_layers(3)[0])
    for place in (manifest, library):
        place.unlink()
        os.mkfifo(place)
        with pytest.raises(ToolError, match=r"cannot export .*it is not an ordinary file"):
            compiled.export(library)
        with pytest.raises(ToolError, match="it is not an ordinary file"):
            npu_kit.load(library, trust=True)
        place.unlink()
        compiled.export(library)
    library.unlink()
    library.symlink_to("/dev/zero")
    with pytest.raises(ToolError, match=r"cannot load .*it is not an ordinary file"):
        npu_kit.load(library, trust=True)
    for place in ("/", ".", library.parent):
        with pytest.raises(ToolError, match=r"cannot export .*it is a folder"):
            compiled.export(place)
        with pytest.raises(ToolError, match="cannot read the manifest"):
            npu_kit.load(place, trust=True)


def test_a_library_that_is_far_too_large_is_not_copied(copied):
    library, _ = copied
    os.truncate(library, artefact.MAX_LIBRARY_BYTES + 1)
    with pytest.raises(ToolError, match=r"cannot load .*it is larger than 4,294,967,296 bytes, the limit"):
        npu_kit.load(library, trust=True)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x7fELF\x01"], ids=["empty", "text", "cut short"])
def test_a_file_that_the_system_cannot_load_is_refused(copied, content):
    library, manifest = copied
    described = json.loads(manifest.read_text()) | {"sha256": hashlib.sha256(content).hexdigest()}
    library.write_bytes(content)
    manifest.write_text(json.dumps(described))
    with pytest.raises(ToolError, match=r"cannot load .*model\.so: the system does not take it as a library: "):
        npu_kit.load(library, trust=True)


@pytest.mark.parametrize(
    "name",
    [
        "model",
        ".so",
        "model.o",
        "model.tar",
        "model.json",
        "model.so.1",
        "@model.so",
        "-o.so",
        "[1] ü.so",
        "x\u202e\n.so",
    ],
)
def test_any_name_is_one_for_a_library(tmp_path, monkeypatch, name):
    """TVM chooses what to write and how to read it by the suffix; a compiler takes @name for a file of options."""
    monkeypatch.chdir(tmp_path)
    x, (module, reference) = np.ones((2, 4), "float32"), two_layers(4)
    library = npu_kit.compile(module).export(name)
    assert sorted(os.listdir()) == sorted([name, f"{name}.json"])
    np.testing.assert_allclose(npu_kit.load(library, trust=True).run(x), reference(x), atol=1e-5)


def test_a_model_is_loaded_though_the_folder_of_copies_is_gone(exported, tmp_path):
    """A forked process removes it when it ends, and so does who tidies the folder of temporary files."""
    library, x, expected = exported
    npu_kit.load(library, trust=True)
    shutil.rmtree(artefact._copies())
    np.testing.assert_allclose(npu_kit.load(library, trust=True).run(np.load(x)), expected, atol=1e-5)


def test_models_of_one_process_do_not_override_each_other(tmp_path):
    """TVM registered the symbols of each exported model for the whole process, and warned at the second one."""
    code = "import sys, npu_kit\nfor path in sys.argv[1:]: npu_kit.load(path, trust=True)\n"
    libraries = [npu_kit.compile(two_layers(seed)[0]).export(tmp_path / f"{seed}.so") for seed in (6, 7)]
    done = python(code, *libraries)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_missing_files_are_named(copied):
    library, manifest = copied
    library.unlink()
    with pytest.raises(ToolError, match=r"cannot load .*model\.so: .*No such file"):
        npu_kit.load(library, trust=True)
    manifest.unlink()
    with pytest.raises(ToolError, match=r"cannot read the manifest .*model\.so\.json"):
        npu_kit.load(library, trust=True)


def test_running_needs_no_compiler_and_exporting_says_so(tmp_path):
    code = (
        "import numpy as np, tvm, npu_kit\n"
        "from tvm import relax\n"
        "builder, x = relax.BlockBuilder(), relax.Var('x', relax.TensorType((2,), 'float32'))\n"
        "with builder.function('main', [x]):\n"
        "    with builder.dataflow():\n"
        "        y = builder.emit_output(relax.op.nn.relu(x))\n"
        "    builder.emit_func_output(y)\n"
        "compiled = npu_kit.compile(builder.get())\n"
        "print(compiled.run(np.array([-1, 2], 'float32')).tolist())\n"
        "try:\n"
        f"    compiled.export({str(tmp_path / 'model.so')!r})\n"
        "except npu_kit.errors.ToolError as error:\n"
        "    print(error)\n"
    )
    done = python(code, PATH=str(tmp_path), CC="", CXX="")
    assert done.returncode == 0, done.stderr
    values, message = done.stdout.splitlines()
    assert values == "[0.0, 2.0]"
    assert "TVM links a shared library with a C compiler, and none was found" in message


def test_a_second_load_in_one_process_shares_nothing_wrong(exported, tmp_path):
    """The same library twice, and another model of the same shape beside it."""
    library, x, expected = exported
    mod, reference = two_layers(5)
    other = npu_kit.load(npu_kit.compile(mod, bind_constants=True).export(tmp_path / "other.so"), trust=True)
    value = np.load(x)
    for _ in range(2):
        np.testing.assert_allclose(npu_kit.load(library, trust=True).run(value), expected, atol=1e-5)
        np.testing.assert_allclose(other.run(value), reference(value), atol=1e-5)


def test_the_library_holds_each_constant_once(tmp_path):
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((512, 512)).astype("float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 512), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.matmul(x, relax.const(weight)))
        builder.emit_func_output(y)
    library = npu_kit.compile(builder.get(), bind_constants=True).export(tmp_path / "model.so")
    assert weight.nbytes <= library.stat().st_size < 1.5 * weight.nbytes
    assert tvm.runtime.load_module(str(library)) is not None
