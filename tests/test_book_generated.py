"""What is generated from one place agrees with that place: address, environment, macros, set-up cells."""

import json
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import api  # noqa: E402
import execute  # noqa: E402
import lock  # noqa: E402


def test_environment_is_the_lock():
    stored = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert stored == lock.environment_text()
    content = yaml.safe_load(stored)
    assert set(content) == {"name", "channels", "dependencies"}
    assert content["channels"] == ["conda-forge"]
    assert f"python={lock.PYTHON}" in content["dependencies"]


def test_every_direct_requirement_is_locked():
    locked = lock.pins()
    for line in lock.direct_requirements():
        requirement = lock.Requirement(line)
        assert requirement.name.lower() in locked, (
            f"{requirement.name} is not in constraints.txt; run `make lock`"
        )
        version = locked[requirement.name.lower()].removeprefix("==")
        assert requirement.specifier.contains(version), f"{requirement} does not allow {version}"


def test_lock_leaves_torch_to_the_reader():
    text = lock.LOCK.read_text(encoding="utf-8")
    names = {line.split("==")[0] for line in text.splitlines() if "==" in line}
    assert "torch" not in names
    assert not [n for n in names if n.startswith("nvidia")]
    assert "://" not in text


def test_address_is_the_same_everywhere():
    address = execute.project()["urls"]["Repository"]
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert config["repository"]["url"] == address
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["repository-code"] == address
    assert str(citation["version"]) == execute.project()["version"]
    assert address.removeprefix("https://github.com/") in (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_cells_are_current():
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert "".join(cells[0]["source"]) == execute.colab_source(), f"{path.name}: run `make outputs`"
        assert "".join(cells[1]["source"]) == execute.macros_source(), f"{path.name}: run `make outputs`"


def test_colab_cell_never_touches_torch():
    assert "torch" not in execute.colab_source()
    assert "-c constraints" not in execute.colab_source()


def test_no_machine_paths_in_tracked_text():
    for path in [*ROOT.glob("*.*"), *(ROOT / "book").glob("*.*"), *(ROOT / "icfgd").rglob("*.py")]:
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".yml", ".txt", ".ipynb", ".cff"}:
            text = path.read_text(encoding="utf-8")
            for bad in ("/home/", "/root/", "/work/", "site-packages/"):
                assert bad not in text, f"{path.name} holds {bad!r}"


def test_package_page_is_current():
    assert api.PAGE.read_text(encoding="utf-8") == api.text(), "run `make ledger`"
