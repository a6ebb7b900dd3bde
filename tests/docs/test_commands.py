"""Commands that the docs show exist, and those that need no account do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import (
    ACCOUNT,
    LONG,
    ROOT,
    SHELL,
    Block,
    Command,
    NotShellError,
    commands,
    fences,
    inline_code,
    pages,
)
from .checks import CHECKS, complaint, is_known
from .transcript import TERMINAL, steps

LANGUAGES = (SHELL, TERMINAL, "text", "yaml", "json", "python", "csv")

FENCES = [block for page in pages() for block in fences(page)]
BLOCKS = [block for block in FENCES if block.language == SHELL]

CONVENTION = (
    f"mark its block ```{SHELL} {ACCOUNT} if it needs an AWS account, ```{SHELL} {LONG} if it takes minutes"
    " or needs what the repository doesn't have"
)


def place(block: Block) -> str:
    """File and line, as an ID of a test."""
    return f"{block.file.relative_to(ROOT)}:{block.line}"


def wrong_with_block(block: Block) -> list[str]:
    """Every command of a block that doesn't exist, isn't shell, or neither runs here nor is marked."""
    if unknown := [mark for mark in block.marks if mark not in (ACCOUNT, LONG)]:
        return [f"{place(block)}: no mark {unknown[0]}: {ACCOUNT} and {LONG} are marks"]
    try:
        found = commands(block)
    except NotShellError as error:
        return [f"{block.file.relative_to(ROOT)}:{error}"]
    wrong = [f"{one.place}: {why}" for one in found if (why := complaint(one.words))]
    if not block.marks:
        wrong += [
            f"{one.place}: no test can run {' '.join(one.words[:3])}: {CONVENTION}"
            for one in found
            if not is_run_or_made(one)
        ]
    return wrong


def is_run_or_made(command: Command) -> bool:
    """Whether a test runs it, or `make` has a target for it that the project's checks use themselves."""
    return command.words[0] == "make" or is_run(command)


def is_run(command: Command) -> bool:
    """Whether the test below runs it."""
    return command.words[0].removeprefix(".venv/bin/") in ("spotrelay", "python")


def test_every_block_says_what_it_is() -> None:
    """A block without a language could hide commands from the tests below."""
    silent = [f"{place(block)}: ```{block.language}" for block in FENCES if block.language not in LANGUAGES]
    assert not silent, f"give each block a language, one of {', '.join(LANGUAGES)}: {silent}"


@pytest.mark.parametrize("block", BLOCKS, ids=place)
def test_what_a_block_shows_exists(block: Block) -> None:
    """Each command is there, with these options, and runs here or is marked."""
    assert wrong_with_block(block) == []


def test_what_a_terminal_shows_is_a_command() -> None:
    """Each command of a terminal session exists, with these options; `tests/e2e/walk` runs them."""
    shown = [step for page in pages() for step in steps(page)]
    assert shown
    assert [why for step in shown if (why := complaint(step.command))] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_sentence_mentions_exists(page: Path) -> None:
    """A command within a sentence exists, with the options that are named."""
    wrong = []
    for block in inline_code(page):
        if not is_known(tuple(block.text.split()[:1])) or len(block.text.split()) == 1:
            continue
        try:
            first = commands(block)[0]
        except NotShellError as error:
            wrong.append(f"{block.file.relative_to(ROOT)}:{error}")
            continue
        if why := complaint(first.words, is_whole=False):
            wrong.append(f"{first.place}: {why}")
    assert wrong == []


NO_AWS = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""A block that somebody forgot to mark must not reach the account of whoever runs the tests."""

RUN = [command for block in BLOCKS if not block.marks for command in commands(block) if is_run(command)]


@pytest.mark.parametrize("command", RUN, ids=lambda command: command.place)
def test_what_needs_no_account_runs(command: Command) -> None:
    """It ends well, in the repository, with no AWS in reach."""
    program, *arguments = command.words
    code = "from spotrelay.operator.cli import main; main()"
    python = ["-c", code] if program.endswith("spotrelay") else []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, *python, *arguments], cwd=ROOT, env={**kept, **NO_AWS, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    shown = f"{command.place}: {' '.join(command.words)}"
    assert done.returncode == 0, f"{shown}: {CONVENTION}\n{done.stdout}{done.stderr}"


def test_some_commands_are_run() -> None:
    """Neither the pages nor the convention has made the test above empty."""
    assert RUN
    assert {command.words[0] for block in BLOCKS for command in commands(block)} >= {
        "make", "aws", ".venv/bin/spotrelay", ".venv/bin/cdk",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spotrelay valdate services/llama3.yaml", "spotrelay has no command valdate"),
        (".venv/bin/spotrelay validate --prize x.yaml", "No such option: --prize"),
        ("spotrelay validate --region", "requires an argument"),
        ("spotrelay secrets --region us-east-1", "spotrelay secrets needs FILE"),
        ("spotrelay retire chat too", "spotrelay retire doesn't take too"),
        ("make dmeo", "no target dmeo"),
        ("make demo SPEED=2", "no variable SPEED"),
        (".venv/bin/cdk deploy --al", "cdk deploy has no option --al"),
        ("cdk deploy --all -c alarm_mail=x", "no setting alarm_mail"),
        ("cdk deplyo", "cdk has no command deplyo"),
        ("python -m lab.locl", "no module lab.locl"),
        ("aws ec3 describe-instances", "no service ec3"),
        ("aws ec2 describe-instance", "aws ec2 has no command describe-instance"),
        ("aws ec2 describe-instances --filter x", "has no option --filter"),
        ("aws ssm get-parameters --region x", "needs --names"),
        ("aws ec2 describe-instances --query 'Reservations[.x'", "--query"),
        ("aws ec2 wait instance-rnning", "knows no instance-rnning"),
        ("echo $(aws ec2 describe-instance)", "aws ec2 has no command describe-instance"),
        ("aws sns subscribe --topic-arn x --protocol email --endpoint y", "no option --endpoint"),
        ("make demo | aws s3 copy x", "aws s3 has no command copy"),
        ("make demo TRACES=<dir> && ", "no shell command"),
        ("curl https://example.com", "no test can run curl"),
        ("aws sts get-caller-identity", "no test can run aws sts get-caller-identity"),
    ],
)
def test_a_slip_is_named_with_its_line(text: str, why: str) -> None:
    """What the tests above would say of a command that doesn't exist, or that isn't marked."""
    block = Block(ROOT / "docs" / "page.md", 7, SHELL, (), f"make demo\n{text}\n")
    wrong = "\n".join(wrong_with_block(block))
    assert why in wrong
    assert wrong.startswith("docs/page.md:8: ")


def test_every_kind_of_command_is_checked() -> None:
    """The slips above have one for each program that is known."""
    assert set(CHECKS) == {"spotrelay", "make", "cdk", "python", "python3", "aws"}
