"""Every numbered statement has checks, every check a statement, and the committed ledger is the generated one."""

import difflib
import sys
from pathlib import Path

EXT = Path(__file__).parents[1] / "book" / "_ext"
sys.path.insert(0, str(EXT))

import ledger  # noqa: E402
import statements  # noqa: E402


def test_statements_and_checks_belong_together():
    assert statements.problems() == []


def test_ledger_is_current():
    stored = ledger.LEDGER.read_text(encoding="utf-8").splitlines()
    fresh = ledger.text().splitlines()
    changes = list(difflib.unified_diff(stored, fresh, "stored", "generated", n=0, lineterm=""))
    shown = "\n".join(line[:300] for line in changes[:20])
    assert not changes, (
        f"a check or statement appeared or vanished; run `make ledger` if that is meant:\n{shown}"
    )


def test_ledger_lists_every_statement_and_check():
    text = ledger.LEDGER.read_text(encoding="utf-8")
    known, checks = statements.read()
    assert known
    assert checks
    for label in known:
        assert f"{{prf:ref}}`{label}`" in text
    assert f"{len(known)} statements and {len(checks)} checks" in text
