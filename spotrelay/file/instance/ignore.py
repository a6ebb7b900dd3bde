"""Which files of a directory stay behind: `.skyignore`, or else `.gitignore`, as Git understands them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

SKYIGNORE = ".skyignore"
GITIGNORE = ".gitignore"
ALWAYS = ".git"
"""No service needs its history, and each commit would be another version of the service."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file."""

    pattern: re.Pattern[str]
    """Matches a path relative to the ignore file's directory."""
    negated: bool
    directories_only: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that hold in a directory: its own, and those of the directories above."""

    levels: tuple[tuple[PurePosixPath, tuple[Rule, ...]], ...] = ()

    def below(self, directory: Path, at: PurePosixPath, name: str) -> Rules:
        """With those of the ignore file in `directory`, which is `at` within the tree."""
        rules = parse(directory / name)
        return Rules((*self.levels, (at, rules))) if rules else self

    def ignores(self, path: PurePosixPath, *, is_directory: bool) -> bool:
        """Whether a path within the tree stays behind. The last rule that matches decides."""
        if path.name == ALWAYS:
            return True
        for at, rules in reversed(self.levels):
            relative = str(path.relative_to(at))
            for rule in reversed(rules):
                if (is_directory or not rule.directories_only) and rule.pattern.fullmatch(relative):
                    return not rule.negated
        return False


def ignore_file(root: Path) -> str:
    """The name of the ignore files of a tree: a `.skyignore` at its root replaces every `.gitignore`."""
    return SKYIGNORE if (root / SKYIGNORE).is_file() else GITIGNORE


def parse(file: Path) -> tuple[Rule, ...]:
    """The rules of an ignore file; none if there is no such file."""
    if not file.is_file():
        return ()
    lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return tuple(rule for line in lines if (rule := _rule(line)))


def _rule(line: str) -> Rule | None:
    # A space at the end counts only after a backslash.
    line = re.sub(r"(?<!\\)\s+$", "", line)
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    text = line[1:] if negated else line
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    # A slash anywhere but at the end ties the pattern to the ignore file's own directory.
    anchored = "/" in text
    expression = _expression(text.removeprefix("/"))
    try:
        pattern = re.compile(expression if anchored else f"(?:.*/)?{expression}", re.DOTALL)
    except re.error:  # such as `[b-a]`, which matches nothing
        return None
    return Rule(pattern, negated, directories_only)


def _expression(glob: str) -> str:
    """A pattern of Git's as a regular expression."""
    if glob.startswith("**/"):
        return "(?:.*/)?" + _expression(glob[3:])
    out, at = "", 0
    while at < len(glob):
        if glob.startswith("/**/", at):
            out, at = out + "/(?:.*/)?", at + 4
        elif glob[at:] == "/**":
            out, at = out + "/.+", at + 3
        elif glob[at] == "*":
            out, at = out + "[^/]*", at + len(glob[at:]) - len(glob[at:].lstrip("*"))
        elif glob[at] == "?":
            out, at = out + "[^/]", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inner = glob[at + 1 : end]
            inverted = inner[0] in "!^"
            characters = re.sub(r"([\\\[&~|])", r"\\\1", inner[1:] if inverted else inner)
            out, at = out + ("[^/" if inverted else "(?!/)[") + characters + "]", end + 1
        elif glob[at] == "\\" and at + 1 < len(glob):
            out, at = out + re.escape(glob[at + 1]), at + 2
        else:
            out, at = out + re.escape(glob[at]), at + 1
    return out
