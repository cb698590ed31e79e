"""One ordinary script from the lab's modules, for readers who open the site from a folder.

Browsers refuse to load modules from file addresses. Each module becomes a function scope that returns its exports; the
sources are used as they are, and nothing else of a bundler (minifying, resolving packages) belongs here.
"""

import re
from pathlib import Path

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";$', re.M)
EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.M)


def bundle(folder, entry="lab.mjs"):
    """The source of `entry` and of all modules it imports, as one classic script. Raises ValueError on other syntax."""
    done, parts = set(), []

    def add(name):
        if name in done:
            return
        done.add(name)
        source = (Path(folder) / name).read_text(encoding="utf-8")
        for _, needed in IMPORT.findall(source):
            add(needed)
        exports = [name for _, name in EXPORT.findall(source)]
        body = EXPORT.sub(r"\1 \2", IMPORT.sub(r'const {\1} = modules["\2"];', source))
        if re.search(r"^(import\b.* from|export) ", body, re.M):
            raise ValueError(f"{name} has an import or export that is not of the form the lab uses.")
        parts.append(f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exports)} }};\n}})();\n')

    add(entry)
    return '(() => {\n"use strict";\nconst modules = {};\n' + "".join(parts) + "})();\n"
