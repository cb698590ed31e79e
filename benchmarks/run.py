"""All benchmarks in one run: `python -m icfgd bench`. Prints ratios and writes bench.csv with its
provenance."""

import racing
import scaling
import throughput

from icfgd import checks, results

PARTS = {
    "context": lambda budget: scaling.context_rows(),
    "depth": lambda budget: scaling.depth_rows(),
    "throughput": lambda budget: throughput.rows(),
    "race": racing.rows,
}


def main(budget=300.0, only=None, out=None):
    """Run the parts named in `only` (default: all) and write bench.csv into `out`; returns the exit
    status."""
    rows = []
    for part in only or PARTS:
        checks.one_of("only", part, PARTS)
        found = PARTS[part](budget)
        rows += found
        for row in found:
            name = " ".join(word for word in (row["case"], row["size"], row["quantity"]) if word)
            print(f"{part:10} {name:72} {row['value']:12.5g} {row['unit']}")
    if any(row["part"] == "race" for row in rows):
        print("\n".join(racing.ratios(rows)))
    content = {"bench.csv": results.render(rows).encode()}
    note = f"budget of the published recipe: {budget:g} CPU s"
    results.add(content, {"preset": "bench", **results.provenance(note)}, out or results.FOLDER)
    return 0
