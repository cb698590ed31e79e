"""Change the public address of the project everywhere: `make address REPO=owner/name`.

The address stands in pyproject.toml. README.md, _config.yml and CITATION.cff are rewritten here; the Colab cells of the notebooks are
refreshed in place, without running them.
"""

import re
import sys

import nbformat

from execute import GENERATED, ROOT, as_text, colab_source, project, write

FILES = ("pyproject.toml", "_config.yml", "CITATION.cff", "README.md")


def main(arguments):
    if len(arguments) != 1 or not re.fullmatch(r"[\w.-]+/[\w.-]+", arguments[0]):
        sys.exit("usage: make address REPO=owner/name")
    old = project()["urls"]["Repository"].removeprefix("https://github.com/")
    for name in FILES:
        path = ROOT / name
        write(path, path.read_text(encoding="utf-8").replace(old, arguments[0]))
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.source.startswith(GENERATED[0]):
                cell.source = colab_source()
        write(path, as_text(notebook))


if __name__ == "__main__":
    main(sys.argv[1:])
