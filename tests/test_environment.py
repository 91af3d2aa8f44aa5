"""environment.yml, pyproject.toml and what is installed say the same."""

from __future__ import annotations

import re
import sys
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import npu_kit

# Not Python packages, so pyproject.toml cannot name them.
CONDA_ONLY = {"python", "pip", "graphviz"}


@pytest.fixture(scope="module")
def environment(repository):
    return yaml.safe_load((repository / "environment.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def kit():
    return metadata.metadata("npu-kit")


def core_requirements(kit):
    every = [Requirement(line) for line in kit.get_all("Requires-Dist") if "extra ==" not in line]
    # hatchling adds editables to an editable install by itself
    return [requirement for requirement in every if requirement.name != "editables"]


def conda_packages(environment):
    return dict(
        re.fullmatch(r"([a-z0-9_.-]+)(.*)", item).groups()
        for item in environment["dependencies"]
        if isinstance(item, str)
    )


def pip_lines(environment):
    return [line for item in environment["dependencies"] if isinstance(item, dict) for line in item["pip"]]


def test_environment_has_the_form_that_conda_and_repo2docker_read(environment):
    assert set(environment) == {"name", "channels", "dependencies"}
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    # repo2docker looks for exactly this form and falls back to a Python of its own otherwise.
    assert re.fullmatch(r"=3\.\d+", conda_packages(environment)["python"])
    # conda warns, and may stop supporting it, when pip is used without being listed.
    assert "pip" in conda_packages(environment)


def test_environment_python_is_one_that_the_kit_says_it_supports(environment, kit):
    version = conda_packages(environment)["python"].removeprefix("=")
    assert version in SpecifierSet(kit["Requires-Python"])
    assert f"Programming Language :: Python :: {version}" in kit.get_all("Classifier")


def test_supported_pythons_start_at_the_lower_bound_without_gaps(kit):
    listed = sorted(
        int(match[1])
        for classifier in kit.get_all("Classifier")
        if (match := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", classifier))
    )
    assert listed == list(range(10, listed[-1] + 1))
    assert kit["Requires-Python"] == ">=3.10"
    assert sys.version_info >= (3, 10)


def test_environment_adds_no_dependency_that_pyproject_lacks(environment):
    assert set(conda_packages(environment)) == CONDA_ONLY
    assert pip_lines(environment) == ["--editable ."]


def test_the_six_packages_that_the_kit_is_about_are_core_dependencies(kit):
    core = {requirement.name for requirement in core_requirements(kit)}
    assert {"jupyterlab", "ipywidgets", "apache-tvm", "numpy", "graphviz", "nbval"} <= core


def test_each_core_dependency_has_both_bounds_and_is_installed_within_them(kit):
    for requirement in core_requirements(kit):
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators == {">=", "<"}, f"{requirement} needs a lower and an upper bound"
        installed = metadata.version(requirement.name)
        assert requirement.specifier.contains(installed, prereleases=True), f"{requirement}, but {installed} is there"


def test_the_installed_version_is_the_one_in_the_code(kit):
    assert kit["Version"] == npu_kit.__version__


def test_no_registry_address_is_written_down(repository, environment):
    for name in ("pyproject.toml", "environment.yml", "Makefile", ".ci/run"):
        text = (repository / name).read_text(encoding="utf-8")
        assert not re.search(r"index-url|find-links|://|trusted-host", text), f"{name} names a registry"
    assert not (repository / "uv.lock").exists()
