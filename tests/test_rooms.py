"""The house: imports go down the floors, witnesses do not know the model, rooms are small and say what they hold."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import icfgd

ROOT = Path(icfgd.__file__).parent
FLOORS = [
    {"checks", "device", "files", "symbolic", "kernels", "claims", "notebook"},
    {"attention", "processes"},
    {"transformer", "descent", "bayes"},
    {"losses", "constructions", "symmetry", "schedules"},
    {"training", "landscape", "stationary", "sweep"},
    {"experiments", "plots", "results"},
    {"__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# On the ground floor one room may use another, one way only.
GROUND = ["checks", "files", "device", "symbolic", "kernels", "claims", "notebook"]
WITNESSES = {"descent", "bayes"}
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def room_of(file):
    return file.split("/")[0].removesuffix(".py")


def imported_rooms(source):
    """The rooms of icfgd that a source text imports, at any depth of its code."""
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("icfgd.")}
    return rooms


def wrong_imports(file, rooms):
    """Rooms that `file` must not import."""
    room = room_of(file)
    if room == "__init__":
        return set(rooms)
    if room == "reservoirs":  # a wing of its own on floors 0-2; its experiments and commands share the store and the fan-out
        shared = {"results", "sweep"} if file in ("reservoirs/experiments.py", "reservoirs/__main__.py") else set()
        return {r for r in rooms if r != room and FLOOR.get(r, 99) > 2} - shared
    wrong = {r for r in rooms if r != room and (r not in FLOOR or FLOOR[r] > FLOOR[room])}
    if room in GROUND:
        wrong |= {r for r in rooms if r in GROUND and GROUND.index(r) > GROUND.index(room)}
    if FLOOR[room] in (1, 2):  # neighbours on these floors do not know each other
        wrong |= {r for r in rooms if r != room and FLOOR.get(r) == FLOOR[room]}
    if room in WITNESSES:
        wrong |= rooms & {"transformer", "attention"}
    return wrong


@pytest.mark.parametrize("file", FILES)
def test_imports_go_down(file):
    room = room_of(file)
    assert room in FLOOR or room in ("__init__", "reservoirs"), f"{room} is on no floor"
    assert not wrong_imports(file, imported_rooms((ROOT / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "file, source",
    [
        ("kernels", "from icfgd import transformer"),
        ("descent", "def f():\n    from icfgd.transformer import Transformer"),
        ("bayes", "import icfgd.attention"),
        ("bayes", "from icfgd import descent"),
        ("checks", "from icfgd.symbolic import is_zero"),
        ("processes", "from icfgd.losses import integrated_loss"),
        ("reservoirs/layers.py", "from icfgd.training import train"),
        ("reservoirs/layers.py", "from icfgd import results"),
        ("__init__", "import icfgd.kernels"),
    ],
)
def test_a_wrong_import_is_noticed(file, source):
    assert wrong_imports(file, imported_rooms(source))


@pytest.mark.parametrize("file", FILES)
def test_rooms_are_small_and_say_what_they_hold(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 320, "split the room along a seam of the field"
    assert len((ast.get_docstring(ast.parse(text)) or "").split()) >= 5


@pytest.mark.parametrize("file", FILES)
def test_everything_public_has_a_docstring(file):
    missing = []

    def visit(node, inside=""):
        for child in node.body:
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not child.name.startswith("_"):
                if not ast.get_docstring(child):
                    missing.append(inside + child.name)
                if isinstance(child, ast.ClassDef):
                    visit(child, f"{child.name}.")

    visit(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    assert not missing


@pytest.mark.parametrize("file", FILES)
def test_no_global_randomness_no_hard_coded_device_no_unsafe_loading(file):
    """Seeds are never set globally, nothing names 'cuda' except the choice of device, files load without pickle."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        words = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        assert call not in ("torch.manual_seed", "np.random.seed", "random.seed", "torch.seed"), call
        assert not call.startswith(("np.random.", "random.")) or "default_rng" in call or "SeedSequence" in call, call
        if call in ("torch.randn", "torch.rand", "torch.randint", "torch.randperm", "torch.normal"):
            assert "generator" in words, f"line {node.lineno}: {call} without a generator"
        if call == "torch.load":
            assert words.get("weights_only") == "True", f"line {node.lineno}"
        if call == "np.load":
            assert words.get("allow_pickle") == "False", f"line {node.lineno}"
        assert not call.endswith(".cuda"), f"line {node.lineno}"


def test_every_room_of_the_lower_floors_imports_alone():
    for room in sorted(set().union(*FLOORS[:3])):
        assert inspect.getdoc(importlib.import_module(f"icfgd.{room}"))
