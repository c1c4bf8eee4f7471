"""Programs that run undisturbed, and again with every kill and fault at their file operations."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from injection import (
    KILLS,
    Comparable,
    Outcome,
    Program,
    Site,
    Tree,
    digest,
    restore,
    run,
    tree_of,
)

TEMPORARY = "*.partial"
"""Names of files that are not complete yet. A kill may leave them behind."""


@dataclass(frozen=True)
class Case:
    """A kill or fault at one operation of a program, and the problems that it led to."""

    verb: str
    number: int
    site: Site
    kind: str
    problems: tuple[str, ...]
    same_bytes: bool
    """Whether the program, run again, left what it leaves undisturbed."""
    litter: int
    """Temporary files that are left after the program ran again."""


class Subject:
    """A program in a folder, run undisturbed, for comparison.

    `same` selects what is equal in equal runs; `growing` are patterns of files that lines are
    appended to: such a file is whole as long as the final one begins with it.
    """

    def __init__(
        self,
        verb: str,
        program: Program,
        folder: Path,
        *,
        same: Comparable = lambda _, content: content,
        growing: tuple[str, ...] = (),
        prints: bool = False,
    ) -> None:
        self.verb, self.program, self.folder = verb, program, folder
        self.same, self.growing, self.prints = same, growing, prints
        self.before = tree_of(folder)
        done = run(program, folder, same)
        assert done.code == 0, f"{verb}: exit {done.code}\n{done.out}\n{done.err}"
        self.after, self.out, self.sites = tree_of(folder), done.out, done.sites
        trees = (self.before, self.after)
        self._versions = {
            name: {digest(same, name, tree[name]) for tree in trees if name in tree}
            | set(done.replaced.get(name, ()))
            for name in self.before | self.after | dict.fromkeys(done.replaced, b"")
        }
        self._again: dict[str, tuple[Outcome, Tree]] = {}
        written = {s.path for s in self.sites if s.operation == "write"}
        written |= {s.target for s in self.sites if s.operation == "replace"}
        for name, content in self.after.items():
            if content != self.before.get(name, b"") and name not in written:
                raise AssertionError(f"{verb}: {name} was written by what is not seen here")

    def cases(self) -> Iterator[tuple[int, str]]:
        """Yield every kill and fault, as the number of an operation and a kind."""
        for number, site in enumerate(self.sites):
            yield from ((number, kind) for kind in site.kinds)

    def examine(self, number: int, kind: str) -> Case:
        """Kill the program or let its operation fail, run it again, and return the problems."""
        restore(self.folder, self.before)
        done = run(self.program, self.folder, self.same, number, kind)
        left, site = tree_of(self.folder), self.sites[number]
        problems = []
        # Names of temporary files may be random.
        path = "*" if fnmatch(site.path, TEMPORARY) else site.path
        if not fnmatch(done.hit, f"{site.operation} {path}"):
            problems.append(f"not repeatable: {done.hit!r} instead of {site}")
        if kind in KILLS:
            if done.code != -signal.SIGKILL:
                problems.append(f"not killed, exit {done.code}")
            if site.operation == "exit":
                lost = [name for name in self._differences(left)[0] if name in self.after]
                problems += [f"lost: {name}" for name in lost]
        else:
            problems += self._answer(done, left, site, kind)
        problems += [f"torn: {name}" for name in left if not self._is_whole(name, left[name])]
        kept = (self.before.keys() & self.after.keys()) - left.keys()
        problems += [f"removed: {name}" for name in sorted(kept)]

        again, final = self._run_again(left)
        if again.code:
            problems.append(f"run again, exit {again.code}: {again.err.strip()[-300:]}")
        differing, litter = self._differences(final)
        problems += [f"run again, differs: {name}" for name in differing]
        if self.prints and again.out != self.out:
            problems.append("run again, prints something else")
        if litter and kind not in KILLS:
            problems.append(f"run again, left behind: {', '.join(litter)}")
        equal = again.code == 0 and not differing
        return Case(self.verb, number, site, kind, tuple(problems), equal, len(litter))

    def _answer(self, done: Outcome, left: Tree, site: Site, kind: str) -> list[str]:
        """Return the problems of how the program ended after an error of the system."""
        err = done.err.strip()
        if done.code < 0:
            return [f"ended by signal {-done.code}" + " (too slow)" * (done.code == -14)]
        if any(word in err for word in ("Traceback", "unexpected (", "Exception ignored")):
            return [f"traceback: {err[-300:]}"]
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        if done.code == 0:
            harmless = kind == "short write" or (  # or it was read in another way
                site.operation == "open to read" and f"{site.path}/" not in self.after
            )
            if harmless and not any(self._differences(left)):
                return []
            return [] if self._names(err, site, kind) else [f"silent: {err[-300:]}"]
        if len(lines) != 1 or lines[0] != err.splitlines()[-1]:
            return [f"not one line of error: {err[-300:]}"]
        return [] if self._names(lines[0], site, kind) else [f"without the file's name: {lines[0]}"]

    def _names(self, text: str, site: Site, kind: str) -> bool:
        """Return whether a message names the file, what it was to become, or one in the folder."""
        path, target = Path(site.path), site.target
        words = {path.name, Path(target).name, path.name.removesuffix(".partial")}
        words |= {Path(name).name for name in self.after if Path(name).parent == path}
        words |= {"'.'"} if site.path == "." else set()
        if kind == "full disk":  # a later file may be named
            words |= {Path(site.target or site.path).name for site in self.sites}
        return any(word and word in text for word in words)

    def _is_whole(self, name: str, content: bytes) -> bool:
        """Return whether a file is the old or the new one."""
        if name.endswith("/") or (name not in self._versions and fnmatch(name, TEMPORARY)):
            return True
        if any(fnmatch(name, pattern) for pattern in self.growing):
            wholes = [self.same(name, tree.get(name, b"")) for tree in (self.before, self.after)]
            part = self.same(name, content)
            return part is None or any(whole and whole.startswith(part) for whole in wholes)
        return digest(self.same, name, content) in self._versions.get(name, set())

    def _differences(self, tree: Tree) -> tuple[list[str], list[str]]:
        """Return the files that differ from those of the undisturbed run, and the temporary."""
        differing, litter = [], []
        for name in sorted(tree.keys() | self.after.keys()):
            if name not in self.after and fnmatch(name, TEMPORARY):
                litter.append(name)
            elif (name in tree) != (name in self.after):
                if self.same(name, b"") is not None:
                    differing.append(name)
            elif self.same(name, tree[name]) != self.same(name, self.after[name]):
                differing.append(name)
        return differing, litter

    def _run_again(self, left: Tree) -> tuple[Outcome, Tree]:
        """Return the outcome of the same command in the folder as it is now."""
        # Many kills leave folders that differ in nothing but measured times and random names.
        state = sorted(
            (TEMPORARY if fnmatch(name, TEMPORARY) else name, digest(self.same, name, content))
            for name, content in left.items()
        )
        key = hashlib.sha256(repr(state).encode()).hexdigest()
        if key not in self._again:
            done = run(self.program, self.folder, self.same)
            self._again[key] = done, tree_of(self.folder)
        return self._again[key]
