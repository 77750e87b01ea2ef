"""Nothing that is read runs: the source calls nothing that could."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import parallelrnn

SOURCE = Path(parallelrnn.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "runpy", "code"}
FUNCTIONS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "shutil.unpack_archive"}
# Of whatever it is.
METHODS = {"exec", "extract", "extractall", "read_pickle", "read_hdf", "load_module", "exec_module"}
# By which torch.distributed sends what is pickled.
METHODS |= {f"{how}_object" for how in ("all_gather", "gather")}
METHODS |= {f"{how}_object_list" for how in ("broadcast", "scatter", "send", "recv")}
SHELLS = {"sh", "bash", "zsh", "/bin/sh", "/bin/bash", "cmd", "cmd.exe", "powershell"}


def violations(tree: ast.AST) -> list[str]:
    """What a source calls that could run what it is given; names are followed to where they were imported from."""
    origins = origins_of(tree)
    problems = sorted({origin.split(".")[0] for origin in origins.values()} & MODULES)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        root, _, rest = ast.unparse(call.func).partition(".")
        name = ".".join(filter(None, (origins.get(root, root), rest))).removeprefix("builtins.")
        last = name.rpartition(".")[2]
        texts = {node.value for node in ast.walk(call) if isinstance(node, ast.Constant)}
        wrong = {
            name: name in FUNCTIONS or last in METHODS or (last == "load" and name.startswith("torch.")),
            "eval of something": last == "eval" and bool(call.args),  # networks have a method of that name
            "numpy.load": name == "numpy.load" and not _is(keywords.get("allow_pickle"), False),
            "a shell": (root == "subprocess" and bool(texts & SHELLS)) or not _is(keywords.get("shell"), False, None),
            "pickles": not _is(keywords.get("allow_pickle"), False, None),
        }
        problems += [problem for problem, is_so in wrong.items() if is_so]
    return problems


def origins_of(tree: ast.AST) -> dict[str, str]:
    """Of the names that a source imports."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots = {alias.name.split(".")[0] for alias in node.names if not alias.asname}
            names |= {alias.asname: alias.name for alias in node.names if alias.asname} | {root: root for root in roots}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module or ''}.{alias.name}" for alias in node.names}
    return names


def _is(node: ast.expr | None, value: object, absent: object = ...) -> bool:
    """Whether it is written so, or, where that may be, not at all."""
    return absent is None if node is None else isinstance(node, ast.Constant) and node.value is value


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    parsed = {str(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.glob("**/*.py")}
    assert len(parsed) > 150
    return dict(parsed)


def test_nothing_that_is_read_can_run(trees: dict[str, ast.AST]) -> None:
    assert {path: wrong for path, tree in trees.items() if (wrong := violations(tree))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "import torch; torch.load(path)",
        "eval(text)",
        "import numpy as np; np.load(path)",
        "import numpy; numpy.load(path, allow_pickle=True)",
        "subprocess.run(words, shell=True)",
        "archive.extractall(path)",
        "yaml.load(text); import yaml",
        "import torch.distributed as d; d.broadcast_object_list(values)",
        "from torch import load; load(path)",
        "import torch; torch.jit.load(path)",
        "archive.extract(member, path)",
        "import builtins; builtins.eval(text)",
        "frame.eval(text)",
        "import pandas; pandas.read_pickle(path)",
        "from os import system; system(text)",
        "subprocess.run(['sh', '-c', text])",
    ],
)
def test_the_rule_knows_what_runs(text: str) -> None:
    assert violations(ast.parse(text))


def test_every_address_is_of_https(trees: dict[str, ast.AST]) -> None:
    nodes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [node.value for node in nodes if isinstance(node.value, str)]
    assert [text for text in texts if "http://" in text] == []
    assert sum("https://" in text for text in texts) > 5
