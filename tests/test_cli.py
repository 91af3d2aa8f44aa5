"""The command npu-kit: what it prints, its exit codes, and that the right part of it works without TVM."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

import npu_kit
from npu_kit import cli, lessons
from npu_kit.errors import NpuKitError
from npu_kit.hw import load_spec, preset_names, spec_from_json, spec_to_json


@pytest.fixture
def run(capsys):
    """Run a command line; gives exit code, standard output and standard error."""

    def call(*arguments):
        try:
            code = cli.main(arguments)
        except SystemExit as exit:  # argparse: --help, --version and wrong usage
            code = exit.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def without_tvm(*arguments):
    """Run a command line in a process in which ``import tvm`` fails."""
    program = f"import sys; sys.modules['tvm'] = None; from npu_kit.cli import main; sys.exit(main({arguments!r}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_version_is_the_one_installed(run):
    assert run("--version") == (0, f"npu-kit {npu_kit.__version__}\n", "")


def test_help_names_each_command(run):
    code, out, _ = run("--help")
    assert code == 0
    for name in ("doctor", "tour", "plan", "spec", "lessons"):
        assert f"    {name} " in out


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("spec", "a", "b"), ("tour", "extra")])
def test_wrong_usage_is_exit_code_2_with_the_usage(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: npu-kit")


def test_spec_shows_each_tier_engine_and_mode(run):
    code, out, _ = run("spec")
    machine = load_spec("example")
    assert code == 0
    for part in (*machine.tiers, *machine.engines, *machine.power_modes):
        assert part.name in out
    assert "256 KB" in out


def test_spec_as_json_is_a_file_to_start_from(run, tmp_path):
    _, out, _ = run("spec", "--json")
    assert spec_from_json(out) == load_spec("example")
    changed = {**json.loads(out), "name": "mine"}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(changed))
    assert run("spec", str(path))[1].startswith("mine: ")


def test_spec_list(run):
    named = [line.partition(": ")[0] for line in run("spec", "--list")[1].splitlines()]
    assert named == list(preset_names())


def test_a_wrong_spec_is_one_sentence_and_exit_code_1(run, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**json.loads(run("spec", "--json")[1]), "colour": "red"}))
    for arguments, word in ((("spec", "no_such"), "no_such"), (("spec", str(path)), "colour")):
        code, out, err = run(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("npu-kit: ")
        assert word in err
        assert err.count("\n") == 1


def test_plan_shows_program_costs_and_reasons(run):
    code, out, err = run("plan", "conv_relu", "--why")
    assert (code, err) == (0, "")
    for part in (
        "for y in 0..5 (5 each), x in 0..4 (6 each):",
        "store out",
        "in power mode low_power",
        "Why",
        "wait of",
    ):
        assert part in out


def test_a_plan_is_saved_loaded_and_compared(run, tmp_path):
    path = tmp_path / "plan.json"
    _, first, _ = run("plan", "matmul_relu", "--json", str(path))
    assert first.endswith(f"Saved as {path}\n")
    again = without_tvm("plan", str(path))
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == first.partition("\nSaved")[0]
    assert run("plan", str(path), "--diff", str(path))[1] == "The plans are equal in everything that is executed.\n"
    code, out, _ = run("plan", "matmul_relu", "--tile", "8x16", "--diff", str(path))
    assert code == 0 and "tile.rows" in out
    assert run("plan", "matmul_relu", "--json", str(path))[2].startswith(f"npu-kit: cannot write {path}: it exists")


def test_a_plan_is_read_again_whatever_it_is_called(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run("plan", "matmul_relu", "--json", "mine")[1]
    for name in ("./mine", str(tmp_path / "mine")):
        assert run("plan", name) == (0, first.partition("\nSaved")[0], "")
    assert run("plan", "mine")[::2] == (
        1,
        "npu-kit: no sample model 'mine': a file of that name is there. Try: ./mine, for the file.\n",
    )


def test_a_step_is_shown_folded_and_unfolded(run):
    code, out, _ = run("plan", "mlp", "--step", "1", "--dataflow", "output_stationary", "--power-mode", "low_power")
    assert code == 0 and "step 1:" in out and "step 0:" not in out and "low_power" in out
    code, out, _ = run("plan", "mlp", "--step", "1", "--unfold")
    assert code == 0 and "for " not in out and out.splitlines()[0].split()[:3] == ["step", "tile", "instruction"]


def test_regions_are_shown_one_by_one(run, tmp_path):
    code, out, _ = run("plan", "sin_between")
    regions = out.count("Region ")
    assert code == 0 and regions > 1
    assert "Region" in run("plan", "sin_between", "--region", "1")[1]
    code, out, err = run("plan", "sin_between", "--json", str(tmp_path / "a.json"))
    assert (code, out) == (1, "") and "--region 0" in err
    assert "no region 9" in run("plan", "sin_between", "--region", "9")[2]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nothing",), "no sample model 'nothing'"),
        (("matmul_relu", "--step", "5"), "no step 5"),
        (("matmul_relu", "--machine", "none"), "no preset 'none'"),
        (("matmul_relu", "--power-mode", "turbo"), "no power mode 'turbo'"),
        (
            ("float64_matmul",),
            "nothing of it goes to the NPU of example, to begin with relax.matmul: example_npu.matmul",
        ),
        (("mlp", "--machine", "tpu_v1_like"), "NPU of tpu_v1_like, to begin with relax.matmul: example_npu.matmul ref"),
        (("none.json",), "cannot read none.json"),
        (("none.json", "--tile", "8"), "it has its machine, tile"),
    ],
)
def test_a_plan_that_cannot_be_shown_is_one_sentence(run, arguments, word):
    code, out, err = run("plan", *arguments)
    assert (code, out) == (1, "")
    assert word in err and err.count("\n") == 1


def test_what_is_no_tile_is_wrong_usage(run):
    for text in ("wide", "8x8x8"):
        code, _, err = run("plan", "matmul_relu", "--tile", text)
        assert code == 2 and "is no tile" in err


def test_lessons_are_copied_and_work_that_is_there_stays(run, tmp_path):
    folder = tmp_path / "class"
    code, out, _ = run("lessons", str(folder))
    assert code == 0
    stored = lessons.lessons_folder()
    for path in [*stored.glob("*.ipynb"), *stored.glob("solutions/*.ipynb")]:
        assert (folder / path.relative_to(stored)).read_bytes() == path.read_bytes()
    mine = folder / lessons.FIRST
    mine.write_text("my work")
    (folder / "solutions" / lessons.FIRST).unlink()
    code, out, _ = run("lessons", str(folder))
    assert code == 0
    assert out.startswith("1 notebook copied")
    assert "stay as they are" in out
    assert mine.read_text() == "my work"


def test_lessons_into_a_file_is_an_error(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("lessons", str(tmp_path / "file"))
    assert code == 1
    assert err.startswith("npu-kit: cannot copy the lessons to ")


def test_an_installation_without_lessons_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(lessons, "__file__", str(tmp_path / "npu_kit" / "lessons.py"))
    monkeypatch.setattr(lessons.metadata, "files", lambda name: None)
    with pytest.raises(NpuKitError, match="no lessons found"):
        lessons.lessons_folder()


def test_doctor_finds_this_environment_well(run):
    code, out, _ = run("doctor")
    assert code == 0
    assert "WRONG" not in out
    assert "TVM" in out


def test_interrupt_is_exit_code_130(run, monkeypatch):
    def interrupted(spec):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "describe_spec", interrupted)
    assert run("spec") == (130, "", "npu-kit: interrupted\n")


def test_without_tvm_spec_works_and_the_rest_says_what_is_missing():
    spec = without_tvm("spec")
    assert (spec.returncode, spec.stderr) == (0, "")
    doctor = without_tvm("doctor")
    assert doctor.returncode == 1
    assert "fix: pip install" in doctor.stdout
    tour = without_tvm("tour")
    assert tour.returncode == 1
    assert tour.stderr.startswith("npu-kit: ")
    assert "Traceback" not in tour.stderr


def test_runs_as_a_module_and_stops_quietly_when_the_reader_does():
    command = [sys.executable, "-m", "npu_kit", "spec", "--json"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).returncode == 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_output_that_cannot_be_written_is_one_sentence():
    command = f"{shlex.quote(sys.executable)} -m npu_kit ops"
    for where, code, told in (
        (">/dev/full", 1, "npu-kit: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
    ):
        done = subprocess.run(f"{command} {where}", shell=True, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (code, told)


def test_what_a_terminal_cannot_show_is_escaped(tmp_path):
    file = tmp_path / "own.json"
    file.write_text(spec_to_json(load_spec().replace(description="caf\u00e9")), encoding="utf-8")
    command = [sys.executable, "-m", "npu_kit", "spec", str(file)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("example: caf\\xe9\n")


def test_ops_lists_all_and_shows_one(run):
    code, text, _ = run("ops")
    assert code == 0 and all(name in text for name in ("conv2d", "layer_norm", "concat"))
    code, text, _ = run("ops", "relax.nn.leakyrelu")
    assert code == 0 and text.startswith("leaky_relu\n") and "alpha = 0.01" in text
    code, _, wrong = run("ops", "sin")
    assert code == 1 and "no operation 'sin'" in wrong
