"""Execute notebooks and store their outputs in one normal form; with --check, compare with what is stored.

A notebook runs in an empty folder with one thread, so that it cannot lean on files of the checkout. The first two
cells of every notebook, for Colab and for the LaTeX macros, are generated here from the configuration. The time that a
notebook took goes to run_times.json beside this file, never into the notebook.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import yaml
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
TIMES = Path(__file__).with_name("run_times.json")
GENERATED = ("# Generated: set-up for Colab", "<!-- Generated: macros -->")
LIMIT = 300  # seconds a single cell may take


def project():
    """The [project] table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def colab_source():
    """The first cell: on Colab it installs the release that belongs to this notebook, and nothing else ever."""
    about = project()
    return "\n".join(
        [
            GENERATED[0] + "; it does nothing where the package is installed.",
            "try:",
            "    import icfgd",
            "except ModuleNotFoundError:",
            "    import sys",
            "",
            '    if "google.colab" not in sys.modules:',
            "        raise",
            f'    %pip install -q "icfgd @ git+{about["urls"]["Repository"]}@v{about["version"]}"',
            "    import icfgd",
        ]
    )


def macros_source():
    """The second cell: the book's macros, for notebooks that are opened on their own."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    macros = config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    lines = []
    for name, body in macros.items():
        text, count = body if isinstance(body, list) else (body, 0)
        lines.append(rf"\newcommand{{\{name}}}{f'[{count}]' if count else ''}{{{text}}}")
    return GENERATED[1] + "\n$" + "".join(lines) + "$"


def prepare(notebook):
    """Put the generated cells first (replacing older ones) and clear what execution will write."""
    cells = [c for c in notebook.cells if not c.source.startswith(GENERATED)]
    code = nbformat.v4.new_code_cell(colab_source(), metadata={"tags": ["remove-cell"]})
    text = nbformat.v4.new_markdown_cell(macros_source(), metadata={"tags": ["remove-cell"]})
    # The title must stay the first thing on the page: Sphinx takes it from the first cell that it keeps.
    notebook.cells = [code, text, *cells]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return normalise(notebook)


def normalise(notebook):
    """Reduce metadata to what the book uses, number the cells, merge streams: two runs give the same bytes."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    count = 0
    for number, cell in enumerate(notebook.cells):
        cell.id = f"c{number:03d}"
        cell.metadata = nbformat.from_dict(
            {k: cell.metadata[k] for k in ("tags", "mystnb") if cell.metadata.get(k)}
        )
        cell.source = cell.source.rstrip()
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
            if cell.execution_count is not None:
                count += 1
                cell.execution_count = count
                for output in cell.outputs:
                    if output.output_type == "execute_result":
                        output.execution_count = count
    return notebook


def merged(outputs):
    """Join consecutive stream outputs of one name and drop metadata of outputs that vary between versions."""
    result = []
    for output in outputs:
        if output.output_type == "stream" and result and result[-1].get("name") == output.name:
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def execute(path):
    """Execute one notebook file; returns the normalised notebook and the seconds it took."""
    notebook = prepare(nbformat.read(path, as_version=4))
    environment = dict(
        os.environ, OMP_NUM_THREADS="1", PYTHONHASHSEED="0", PYDEVD_DISABLE_FILE_VALIDATION="1"
    )
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=LIMIT,
            record_timing=False,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        start = time.perf_counter()
        client.execute(env=environment)
        return normalise(notebook), time.perf_counter() - start


def write(path, text):
    """Write a whole file and rename it into place."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def as_text(notebook):
    return nbformat.writes(notebook) + "\n"


def without_pictures(text):
    """Notebook text with PNG data blanked: pixels are compared by the tests, with a tolerance."""
    return re.sub(r'"image/png": "[^"]*"', '"image/png": ""', text)


def remember(path, seconds):
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    times[path.stem] = max(1, round(seconds))
    write(TIMES, json.dumps(dict(sorted(times.items())), indent=1) + "\n")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the stored outputs, write nothing")
    parser.add_argument("-j", type=int, default=1, metavar="N", help="run N notebooks at a time")
    options = parser.parse_args(arguments)
    failed = []
    with ThreadPoolExecutor(options.j) as pool:
        jobs = {path: pool.submit(execute, path) for path in options.notebooks}
        for path, job in jobs.items():
            try:
                notebook, seconds = job.result()
            except Exception as error:  # report every notebook, then fail
                failed.append(path)
                print(f"{path.name}: {error}", file=sys.stderr)
                continue
            text = as_text(notebook)
            if not options.check:
                write(path, text)
                remember(path, seconds)
            elif without_pictures(text) != without_pictures(path.read_text(encoding="utf-8")):
                failed.append(path)
                print(f"{path.name}: outputs differ from the stored ones", file=sys.stderr)
            print(f"{path.name}: {seconds:.0f} s")
    if failed:
        sys.exit("failed: " + ", ".join(p.name for p in failed))


if __name__ == "__main__":
    main(sys.argv[1:])
