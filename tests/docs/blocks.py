"""What the repository's Markdown holds: blocks of code, links, and the shell commands in both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tree_sitter_bash
from markdown_it import MarkdownIt
from markdown_it.token import Token
from tree_sitter import Language, Node, Parser

ROOT = Path(__file__).parents[2]

SHELL = "sh"
"""The language of a block of shell commands. One way to write it, so that none is overlooked."""

ACCOUNT = "account"
"""Mark of a block whose commands need an AWS account: ```sh account."""

LONG = "long"
"""Mark of a block whose commands take minutes, or need what the repository doesn't have: ```sh long."""

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_BASH = Parser(Language(tree_sitter_bash.language()))


@dataclass(frozen=True)
class Block:
    """A fenced block, or a piece of inline code; `line` is that of its first line of text."""

    file: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Command:
    """One command: its words as a shell would pass them on, and where it begins."""

    file: Path
    line: int
    words: tuple[str, ...]

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file.relative_to(ROOT) if self.file.is_relative_to(ROOT) else self.file}:{self.line}"


class NotShellError(ValueError):
    """No shell would read it: which line."""


def pages(*, with_decisions: bool = False) -> list[Path]:
    """The Markdown that people read. What a decision's record shows was so on its day."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [*sorted(ROOT.glob("*.md")), *(f for f in docs if with_decisions or f.parent.name != "decisions")]


def fences(file: Path) -> list[Block]:
    """Every fenced block."""
    return [
        Block(
            file,
            token.map[0] + 2,
            (token.info.split() or [""])[0],
            tuple(token.info.split()[1:]),
            token.content,
        )
        for token in _tokens(file)
        if token.type == "fence" and token.map
    ]


def inline_code(file: Path) -> list[Block]:
    """Every piece of code within a sentence or a table's cell."""
    return [
        Block(file, line, "", (), child.content)
        for line, child in _children(file)
        if child.type == "code_inline"
    ]


def links(file: Path) -> list[tuple[int, str]]:
    """Where each link and image leads, with its line."""
    found = [(line, child.attrGet("href") or child.attrGet("src")) for line, child in _children(file)]
    return [(line, str(target)) for line, target in found if target]


def headings(file: Path) -> list[str]:
    """The text of every heading, as it is read."""
    tokens = _tokens(file)
    return [
        "".join(child.content for child in after.children or () if child.type in ("text", "code_inline"))
        for token, after in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]


def commands(block: Block) -> list[Command]:
    """The commands of a block, those within `$( )` included.

    Raises:
        NotShellError: it isn't shell.
    """
    source = block.text.encode()
    tree = _BASH.parse(source).root_node
    if tree.has_error:
        wrong = next(node for node in _nodes(tree) if node.is_error or node.is_missing)
        line = block.line + wrong.start_point[0]
        raise NotShellError(
            f"{line}: no shell command: {block.text.splitlines()[wrong.start_point[0]].strip()}"
        )
    return [
        Command(block.file, block.line + node.start_point[0], tuple(_word(word) for word in _words(node)))
        for node in _nodes(tree)
        if node.type == "command"
    ]


def _tokens(file: Path) -> list[Token]:
    return _MARKDOWN.parse(file.read_text(encoding="utf-8"))


def _children(file: Path) -> Iterator[tuple[int, Token]]:
    for token in _tokens(file):
        if token.type == "inline" and token.map:
            line = token.map[0] + 1
            for child in token.children or ():
                yield line, child
                line += child.type in ("softbreak", "hardbreak")


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _words(command: Node) -> list[Node]:
    kinds = ("comment", "variable_assignment", "file_redirect", "heredoc_redirect")
    return [child for child in command.named_children if child.type not in kinds]


def _word(node: Node) -> str:
    """What the shell passes on; what it would compute, such as `$( )`, stays as it is written."""
    text = (node.text or b"").decode()
    if node.type in ("command_name", "concatenation"):
        return "".join(_word(child) for child in node.named_children)
    return text[1:-1] if node.type in ("raw_string", "string") else text
