"""Run the notebooks as a reader would: from the built wheel, each in an empty folder.

`compare` re-executes every notebook and compares all outputs, pictures included, with the stored ones. `colab` runs them with a
stand-in for Google Colab and only asks that they finish. Both build the wheel first and make sure that it is the one that runs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CELL_SECONDS = 300


def install_wheel(folder):
    """Build the wheel of the checkout and unpack it, without dependencies, into folder/site."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = folder / "source"
    shutil.copytree(
        ROOT,
        build,
        ignore=shutil.ignore_patterns(".venv", "_build", ".git", "book", "tests", "*.egg-info", "build"),
    )
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, build],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True, capture_output=True
    )
    return folder / "site"


def environment(site, *more):
    """The environment of a run: the wheel before everything else, one thread, fixed hash seed."""
    path = os.pathsep.join(map(str, (site, *more)))
    env = dict(
        os.environ,
        PYTHONPATH=path,
        OMP_NUM_THREADS="1",
        PYTHONHASHSEED="0",
        PYDEVD_DISABLE_FILE_VALIDATION="1",
    )
    found = subprocess.run(
        [sys.executable, "-c", "import icfgd; print(icfgd.__file__)"],
        env=env,
        cwd=site,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    if not Path(found).is_relative_to(site):
        sys.exit(f"icfgd was imported from {found}, not from the wheel")
    return env


def compare(notebooks, workers):
    """nbval over copies of the notebooks, each alone in a folder; returns the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(install_wheel(folder), HERE)
        for path in notebooks:
            (folder / "run" / path.stem).mkdir(parents=True)
            shutil.copy(path, folder / "run" / path.stem)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--nbval",
            "--nbval-current-env",
            f"--nbval-cell-timeout={CELL_SECONDS}",
        ]
        command += [
            "-p",
            "compare_pictures",
            "-p",
            "no:cacheprovider",
            "-n",
            str(workers),
            "--dist",
            "loadscope",
            "--rootdir",
            folder / "run",
            folder / "run",
        ]
        return subprocess.run(command, env=env, cwd=folder).returncode


STAND_IN = """
import sys, types
sys.modules["google.colab"] = types.ModuleType("google.colab")
try:
    import plotly.io
    plotly.io.renderers.default = "colab"
except ImportError:
    pass
"""


def colab(notebooks, workers):
    """Run each notebook to its end with a stand-in for Colab; returns the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = install_wheel(folder)
        (site / "sitecustomize.py").write_text(STAND_IN, encoding="utf-8")
        env = environment(site)

        def run(path):
            empty = folder / "run" / path.stem
            empty.mkdir(parents=True)
            notebook = nbformat.read(path, as_version=4)
            client = NotebookClient(
                notebook,
                timeout=CELL_SECONDS,
                kernel_name="python3",
                resources={"metadata": {"path": str(empty)}},
            )
            try:
                client.execute(env=env)
            except Exception as error:
                return f"{path.name}: {error}"
            left = sorted(p.name for p in empty.iterdir())
            return f"{path.name}: left files behind: {left}" if left else None

        with ThreadPoolExecutor(workers) as pool:
            failures = [why for why in pool.map(run, notebooks) if why]
    print("\n".join(failures))
    print(f"{len(notebooks) - len(failures)} passed, {len(failures)} failed")
    return int(bool(failures))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("compare", "colab"))
    parser.add_argument("notebooks", nargs="*", type=Path, help="all notebooks of the book if none is given")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="run N at a time")
    options = parser.parse_args(arguments)
    notebooks = options.notebooks or sorted((ROOT / "book").glob("*.ipynb"))
    if not notebooks:
        sys.exit("there are no notebooks")
    return {"compare": compare, "colab": colab}[options.what](notebooks, options.j)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
