"""Mutation testing: change the source in one small way at a time, and see whether a test fails.

    nice -n 19 python tools/mutation.py                        # all modules
    nice -n 19 python tools/mutation.py statistics/bounds.py   # one of them

Each mutant runs in a process forked from one that has imported NumPy, SciPy, torch and pytest,
against the tests that call the changed function, the fastest first. A mutant that no test notices
survives.
The result is results/reliability/mutation.csv, and mutation.md with the reasons in
tools/mutation_survivors.toml. Documentation, messages and annotations are not changed.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import csv
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import resource
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "deformrs"
OUT = ROOT / "results" / "reliability"
REASONS = Path(__file__).with_name("mutation_survivors.toml")

TRUTHS = ("tests/known_truth/test_truths.py",)
STATISTICS = ("tests/statistics/test_bounds.py", "tests/statistics/test_sequential.py")
ROUNDING = ("tests/test_rounding.py",)
NOISE = (
    "tests/noise/test_law.py",
    "tests/noise/test_law_rounding.py",
    "tests/noise/test_radii.py",
    "tests/noise/test_worst_cases.py",
)
CERTIFICATE = ("tests/test_certificate.py",)
MODULES: dict[str, tuple[str, ...]] = {
    "rounding.py": (*ROUNDING, *STATISTICS, *NOISE, *CERTIFICATE),
    "certificate.py": (*CERTIFICATE, *STATISTICS, *NOISE),
    "statistics/__init__.py": (*STATISTICS, *CERTIFICATE),
    "statistics/bounds.py": (*STATISTICS, *ROUNDING),
    "statistics/multiplicity.py": ("tests/statistics/test_multiplicity.py",),
    "statistics/sequential.py": (*STATISTICS, *ROUNDING, "tests/test_stopping.py"),
    "noise/distance.py": (*NOISE, *ROUNDING),
    "noise/gaussian.py": (*NOISE, *ROUNDING, *TRUTHS),
    "noise/independent.py": (*NOISE, *ROUNDING),
    "noise/law.py": (*NOISE, *CERTIFICATE),
    "noise/scaled.py": (*NOISE, *ROUNDING, *TRUTHS),
    "noise/uniform.py": (*NOISE, *ROUNDING, *TRUTHS),
}
"""The mutated modules, and the tests that must notice."""

IMPORTED = (
    *("numpy", "scipy.special", "scipy.stats", "torch", "torch.compiler", "PIL.Image"),
    *("pytest", "mpmath", "hypothesis", "hypothesis.strategies", "click", "rich"),
)

BUDGET = 8.0
"""The most seconds of tests for a mutant: the fastest ones."""

CPU_SECONDS = 20
"""The most processor time of a mutant, which may loop for ever."""


# ---------------------------------------------------------------- operators

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
TWINS = {
    "min": "max",
    "minimum": "maximum",
    "any": "all",
    "floor": "ceil",
    "round_down": "round_up",
    "array_down": "array_up",
    "complement_down": "complement_up",
    "format_down": "format_up",
    "zeros": "ones",
}
TWINS |= {b: a for a, b in TWINS.items()}
COMMUTATIVE = ("min", "max", "minimum", "maximum")
ROUNDED = ("round_down", "round_up", "array_down", "array_up", "float_down")


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the operator and the replacement of every mutant of one node."""
    match node:
        case ast.Compare(left, [op], [right]):
            for other in COMPARISONS[type(op)]:
                yield "comparison", ast.Compare(left, [other()], [right])
        case ast.Compare(left, ops, comparators):
            for place, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    changed = [*ops[:place], other(), *ops[place + 1 :]]
                    yield "comparison", ast.Compare(left, changed, comparators)
        case ast.BinOp(left, op, right) if type(op) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in ARITHMETIC:
            yield "arithmetic", ast.AugAssign(target, ARITHMETIC[type(op)](), value)
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield "sign or negation", operand
        case ast.Constant(bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(int(value)):
            yield "constant", ast.Constant(value + 1)
            yield "constant", ast.Constant(value - 1)
        case ast.Constant(float(value)):
            for near in (value * 1.1, value * 0.9) if value else (1e-9, -1e-9):
                yield "constant", ast.Constant(near)
        case ast.BoolOp(op, values):
            yield "and or", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.If() | ast.While() | ast.IfExp():
            opposite = copy.copy(node)
            opposite.test = ast.UnaryOp(ast.Not(), node.test)
            yield "condition", opposite
        case ast.Return(value) if value is not None and not _is_none(value):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Raise() | ast.Expr(ast.Call()):
            yield "statement", ast.Pass()
        case ast.Attribute(ast.Name("math" | "np") as module, "inf", load):
            infinity = ast.Attribute(module, "inf", load)
            yield "sign or negation", ast.UnaryOp(ast.USub(), infinity)
        case ast.Call(function, arguments, keywords):
            name = getattr(function, "id", getattr(function, "attr", ""))
            if name in TWINS:
                twin = copy.copy(function)
                setattr(twin, "id" if isinstance(function, ast.Name) else "attr", TWINS[name])
                yield "twin", ast.Call(twin, arguments, keywords)
            if name in ROUNDED and arguments:
                yield "rounding", arguments[0]
            plain = not any(isinstance(a, ast.Starred) for a in arguments[:2])
            if len(arguments) > 1 and plain and name not in COMMUTATIVE:
                first, second, *rest = arguments
                if ast.dump(first) != ast.dump(second):
                    yield "swap", ast.Call(function, [second, first, *rest], keywords)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# ---------------------------------------------------------------- mutants


@dataclass(frozen=True)
class Mutant:
    """One change of a module. What is outside functions is run `on_import`."""

    file: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    on_import: bool
    number: int

    @property
    def key(self) -> str:
        """The name of the mutant in the list of reasons, which does not move with its line."""
        return f"{self.file} {self.function}: {self.before} -> {self.after}"


def mutants_of(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, ast.AST, ast.AST, str, int]]:
    """Yield every mutant of a module with its parent node, new node, and place in the parent."""
    number = 0

    def visit(
        node: ast.AST, names: tuple[str, ...], line: int, on_import: bool
    ) -> Iterator[tuple[Mutant, ast.AST, ast.AST, str, int]]:
        nonlocal number
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or _is_text(child):
                    continue
                inside, at, outside = names, getattr(child, "lineno", line), on_import
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    if child.name in ("__repr__", "_repr_html_", "examples"):
                        continue
                    inside = (*names, child.name)
                    outside = on_import and isinstance(child, ast.ClassDef)
                for operator, new in changes(child):
                    shown = ast.unparse(_header(child)), ast.unparse(_header(new))
                    before, after = (" ".join(text.split())[:120] for text in shown)
                    default = isinstance(node, ast.arguments)
                    mutant = Mutant(
                        file=file,
                        line=at,
                        function=".".join(inside) or "(module)",
                        operator=operator,
                        before=before,
                        after=after,
                        on_import=outside or default,
                        number=number,
                    )
                    number += 1
                    yield mutant, node, new, name, place if isinstance(value, list) else -1
                if not isinstance(child, ast.Raise):
                    yield from visit(child, inside, at, outside)

    yield from visit(tree, (), 1, True)


def _is_text(node: ast.AST) -> bool:
    """Return whether a node is documentation, a message, or for the type checker only."""
    match node:
        case ast.JoinedStr() | ast.Constant(str()) | ast.Expr(ast.Constant(str())):
            return True
        case ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case ast.ClassDef(bases=bases):
            return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases)
        case ast.Assign([ast.Name("__all__")]):
            return True
        case ast.Call(ast.Name("InputError" | "UnsupportedError" | "cast")):
            return True
        case _:
            return False


def _header(node: ast.AST) -> ast.AST:
    """Return a compound statement without its body."""
    if isinstance(node, ast.If | ast.While):
        return ast.If(node.test, [ast.Pass()], [])
    return node


def mutated(file: str, number: int) -> CodeType:
    """Return the code of a module with one mutant in it."""
    path = PACKAGE / file
    tree = ast.parse(path.read_text())
    for mutant, parent, new, name, place in mutants_of(file, tree):
        if mutant.number == number:
            if place < 0:
                setattr(parent, name, new)
            else:
                getattr(parent, name)[place] = new
            return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    raise LookupError(f"{file} has no mutant {number}")


REACHED = "_reached_"


def instrumented(file: str) -> CodeType:
    """Return the code of a module whose functions tell when they are called."""

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inside = names
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = (*names, child.name)
            visit(child, inside)
            if isinstance(child, ast.FunctionDef):
                words = [ast.Constant(file), ast.Constant(".".join(inside))]
                place = ast.Tuple([*words], ast.Load())
                call = ast.Call(ast.Name(REACHED, ast.Load()), [place], [])
                child.body.insert(1 if _is_text(child.body[0]) else 0, ast.Expr(call))

    path = PACKAGE / file
    tree = ast.parse(path.read_text())
    visit(tree, ())
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


# ---------------------------------------------------------------- processes


class MutantFinder(importlib.abc.MetaPathFinder):
    """Imports one module of the package from other code."""

    def __init__(self, file: str, code: CodeType) -> None:
        parts = ["deformrs", *Path(file).with_suffix("").parts]
        self._name = ".".join(part for part in parts if part != "__init__")
        self._path, self._code = PACKAGE / file, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(fullname, str(self._path))
        loader.code = self._code
        package = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, self._path, loader=loader, submodule_search_locations=package
        )


class _Loader(importlib.machinery.SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class Recorder:
    """A pytest plugin that records which functions of the modules each test calls, and how long."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        self._finish()
        for cached in _caches():
            cached.cache_clear()  # or only the first caller would be seen to run the function
        self._reached: set[tuple[str, str]] = set()
        self._item, self._begin = item.nodeid, time.process_time()
        builtins.__dict__[REACHED] = self._reached.add

    def pytest_sessionfinish(self) -> None:
        self._finish()
        self._path.write_text(json.dumps(self._found))

    def _finish(self) -> None:
        if hasattr(self, "_item"):
            taken = time.process_time() - self._begin
            self._found[self._item] = {"seconds": taken, "reached": sorted(self._reached)}


@functools.cache
def _caches() -> list[Any]:
    kind = type(functools.lru_cache(lambda: None))
    found = [x for x in gc.get_objects() if type(x) is kind]
    return [x for x in found if getattr(x, "__module__", "").startswith("deformrs")]


def run_tests(nodes: Sequence[str], mutant: Mutant | None, recorder: Recorder | None = None) -> int:
    """Run tests in a forked process, against a mutant; return its wait status."""
    import pytest

    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1]
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        if recorder is None:
            os.dup2(sink, 1)
            os.dup2(sink, 2)
        if mutant is not None:
            signal.alarm(10 * CPU_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            sys.meta_path.insert(0, MutantFinder(mutant.file, mutated(mutant.file, mutant.number)))
        if recorder is not None:
            builtins.__dict__[REACHED] = id  # until the first test begins
            for file in MODULES:
                sys.meta_path.insert(0, MutantFinder(file, instrumented(file)))
        plugins = [] if recorder is None else [recorder]
        sys.path.insert(0, str(ROOT / "tests"))  # as conftest.py does, which imports everything
        warned = ("-W", "ignore:Module already imported")
        options = ("-x", "--noconftest", "--hypothesis-seed=0", "--tb=no", *warned)
        code = int(pytest.main([*options, *nodes], plugins=plugins))
        sys.stdout.flush()
        os._exit(code)
    except BaseException:
        if recorder is not None:
            traceback.print_exc()
        os._exit(1)


def outcome_of(status: int) -> str:
    """Return what a wait status of the tests says about a mutant."""
    if os.WIFSIGNALED(status):
        slow = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
        return "timeout" if slow else "killed"
    return "survived" if os.WEXITSTATUS(status) == 0 else "killed"


def record(files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the functions and seconds of each test that a module is tested by."""
    tests = list(dict.fromkeys(test for file in files for test in MODULES[file]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.json"
        if run_tests(tests, None, Recorder(path)):
            raise SystemExit("the tests fail without any mutant")
        found: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return found


def tests_for(mutant: Mutant, recorded: dict[str, dict[str, Any]]) -> list[str]:
    """Return the tests that call the function of a mutant, the fastest first."""
    chosen = [node for node in recorded if node.split("::")[0] in MODULES[mutant.file]]
    place = [mutant.file, mutant.function]
    reached = {node for node in chosen if place in recorded[node]["reached"]}
    if not reached and mutant.on_import:  # whatever calls any of the module
        reached = {n for n in chosen if any(f == mutant.file for f, _ in recorded[n]["reached"])}
    ordered = sorted(reached, key=lambda node: recorded[node]["seconds"])
    total = itertools.accumulate(recorded[node]["seconds"] for node in ordered)
    return [node for node, seconds in zip(ordered, total, strict=True) if seconds < BUDGET]


def run_all(
    files: Sequence[str], chosen: Callable[[Mutant], bool]
) -> Iterator[tuple[str, list[tuple[Mutant, str]]]]:
    """Yield each of some modules with the outcomes of its mutants, or of the chosen ones."""
    for name in IMPORTED:
        importlib.import_module(name)
    recorded = record(files)
    gc.freeze()
    for file in files:
        outcomes = []
        for mutant, *_ in mutants_of(file, ast.parse((PACKAGE / file).read_text())):
            if not chosen(mutant):
                continue
            nodes = tests_for(mutant, recorded)
            outcome = outcome_of(run_tests(nodes, mutant)) if nodes else "not reached"
            outcomes.append((mutant, outcome))
            if outcome != "killed":
                print(f"{outcome}: line {mutant.line} of {mutant.key}", flush=True)
        yield file, outcomes


# ---------------------------------------------------------------- results

COLUMNS = ("file", "line", "function", "operator", "before", "after", "outcome")


def read_rows(table: Path) -> list[dict[str, str]]:
    """Return the outcomes that are stored."""
    if not table.exists():
        return []
    with table.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _place(row: Mapping[str, str | int]) -> tuple[str, ...]:
    """Return what tells one mutant from all others."""
    return tuple(str(row[name]) for name in COLUMNS if name != "outcome")


def read_reasons() -> dict[str, str]:
    """Return the reason why each surviving mutant may survive, by its key."""
    groups = tomllib.loads(REASONS.read_text())["group"] if REASONS.exists() else []
    return {key: group["reason"] for group in groups for key in group["mutants"]}


def to_markdown(rows: Sequence[dict[str, str]], reasons: dict[str, str]) -> str:
    """Return the page of results: totals, and every survivor under the reason for it."""
    kinds = ("killed", "timeout", "survived", "not reached")
    lines = [
        "# Mutation testing",
        "",
        "Made by `tools/mutation.py`, which changes the source in one small way at a time and runs",
        "the tests that call the changed function. All mutants: [mutation.csv](mutation.csv).",
        "",
        "| module | mutants | " + " | ".join(kinds) + " |",
        "|---|" + "---:|" * (len(kinds) + 1),
    ]
    files = list(dict.fromkeys(row["file"] for row in rows))
    for file in (*files, "all"):
        chosen = [row for row in rows if file in (row["file"], "all")]
        counts = Counter(row["outcome"] for row in chosen)
        cells = " | ".join(str(counts[kind]) for kind in kinds)
        lines.append(f"| {file} | {len(chosen)} | {cells} |")
    lines += ["", "## Survivors", ""]
    left = [row for row in rows if row["outcome"] in ("survived", "not reached")]
    grouped: dict[str, list[dict[str, str]]] = {}
    for row in left:
        key = f"{row['file']} {row['function']}: {row['before']} -> {row['after']}"
        grouped.setdefault(reasons.get(key, "Unexplained."), []).append(row)
    for reason, members in sorted(grouped.items(), key=lambda item: -len(item[1])):
        lines += [f"**{len(members)}.** {reason}", ""]
        for row in members:
            place = f"{row['file']}:{row['line']} {row['function']}"
            lines.append(f"- {place}: `{row['before']}` -> `{row['after']}`")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help=f"some of {', '.join(MODULES)}")
    parser.add_argument("--out", type=Path, default=OUT, help="where the results are written")
    parser.add_argument("--survivors", action="store_true", help="only those that survived")
    parser.add_argument("--write", action="store_true", help="only write mutation.md again")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    table = arguments.out / "mutation.csv"
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = arguments.modules or list(MODULES)
    rows = read_rows(table)
    lost = {_place(row) for row in rows if row["outcome"] == "killed" and arguments.survivors}

    def chosen(mutant: Mutant) -> bool:
        return _place(asdict(mutant)) not in lost

    for file, outcomes in () if arguments.write else run_all(files, chosen):
        kept = [row for row in rows if row["file"] != file or _place(row) in lost]
        rows = [*kept, *({**asdict(mutant), "outcome": outcome} for mutant, outcome in outcomes)]
        rows.sort(key=lambda row: (list(MODULES).index(row["file"]), int(row["line"])))
        with table.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    (arguments.out / "mutation.md").write_text(to_markdown(rows, read_reasons()))
    counts = Counter(row["outcome"] for row in rows)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


if __name__ == "__main__":
    main()
