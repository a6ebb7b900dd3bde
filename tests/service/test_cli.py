"""`spotrelay validate`, as an operator meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotrelay.file.reference import schema_text
from spotrelay.file.source.errors import Problem
from spotrelay.file.source.inputs import inputs
from spotrelay.operator.cli.account import Account
from spotrelay.operator.cli.app import app
from spotrelay.plane.aws.clients import Clients, Session
from spotrelay.plane.aws.quotas import Quotas
from spotrelay.plane.core.ports import Denied
from spotrelay.plane.core.quotas import Quota

from .conftest import GOOD

ROOT = Path(__file__).parents[2]


def run(*files: Path) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["validate", *map(str, files)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_right_files_are_described_and_exit_0() -> None:
    """Both service files of the repository validate, with a table for each."""
    code, out, err = run(ROOT / "services" / "demo.yaml", ROOT / "services" / "llama3.yaml")
    assert (code, err) == (0, "")
    assert "22 in each zone" in out
    assert "11 in each zone" in out
    assert "POST /v1/chat/completions" in out


def test_problems_of_all_files_go_to_standard_error_one_per_line_and_exit_2(tmp_path: Path) -> None:
    """Every wrong file is reported, right ones are still described, and the exit code says not to deploy."""
    good, bad = tmp_path / "good.yaml", tmp_path / "a-directory-with-a-rather-long-name" / "bad.yaml"
    bad.parent.mkdir()
    good.write_text(GOOD, encoding="utf-8")
    bad.write_text(GOOD.replace("replicas: 2", "replicas: -1").replace("8081", "0"), encoding="utf-8")
    code, out, err = run(bad, good, tmp_path / "none.yaml")
    assert code == 2
    assert "good" in out
    assert err.splitlines() == [
        f"{bad}:2:3: service.replicas: expected a whole number from 0 to 1000, got -1",
        f"{bad}:6:3: resources.ports: expected a port from 1 to 65535, such as 8080, got 0",
        f"{tmp_path / 'none.yaml'}: no such file",
    ]


def test_warnings_are_shown_and_exit_0(tmp_path: Path) -> None:
    """What is allowed and probably not meant is said, and is no failure."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("{A10G, L4, L40S}", "T4"), encoding="utf-8")
    code, _, err = run(file)
    assert code == 0
    assert err.startswith(f"warning: {file}:5:3: resources.accelerators: only 5 instance types are eligible")


def test_markup_in_a_file_is_shown_as_it_stands(tmp_path: Path) -> None:
    """Square brackets in a value are not taken for the terminal's colours."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("8081", "'[red]x[/red]'"), encoding="utf-8")
    assert "got '[red]x[/red]'" in run(file)[2]


def test_python_dash_m_spotrelay_is_the_same_command() -> None:
    """`python -m spotrelay validate` works without the console script, on a pipe, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "spotrelay", "validate", "nonesuch.yaml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "nonesuch.yaml: no such file\n")


def test_what_the_laboratory_lacks_is_said_in_a_line() -> None:
    """In a clone whose set-up hasn't run, which has the laboratory's commands and not its packages."""
    code = "import sys; sys.modules['greenlet'] = None; from spotrelay.operator.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "chaos"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    said = "spotrelay: greenlet, which simulates, is not installed: run make setup\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(
    ("spot", "on_demand", "code"), [(0, 0, 2), (1000, 0, 2), (1000, 1000, 0), (None, None, 3)]
)
def test_an_accounts_quotas(
    monkeypatch: pytest.MonkeyPatch, spot: float | None, on_demand: float | None, code: int
) -> None:
    """A quota that is too small is said by name, code, value, need and place; an account may not say."""
    values = {"L-3819A6DF": spot, "L-DB2E81BA": on_demand, "L-B99A9384": 10}

    def value_of(_: Quotas, quota: Quota) -> float:
        value = values[quota.code]
        if value is None:
            raise Denied("AccessDeniedException: no")
        return value

    monkeypatch.setattr(Quotas, "value", value_of)
    file = ROOT / "services" / "llama3.yaml"
    arguments = ["validate", "--account", "--region", "us-east-1", str(file)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == code
    lines = result.stderr.splitlines()
    short = [c for c, value in values.items() if value == 0]
    if code == 3:
        assert "servicequotas:GetServiceQuota" in lines[-1]
    else:
        concurrency = lines.pop(0)
        assert concurrency.startswith("warning: Lambda, us-east-1: Concurrent executions (L-B99A9384) is 10")
        assert "carries 3 services" in concurrency
        assert len(lines) == len(short)
    for quota_code, line in zip(short, lines, strict=False):
        assert line.startswith(str(file))
        assert f"({quota_code}) is 0 vCPU" in line
        assert f"us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{quota_code}" in line


def test_a_quota_that_the_replicas_fill_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is enough, but a replacement is refused while what EC2 takes back still runs: told, no problem."""
    for vcpus, told in ((16, ["spot, us-east-1: All G and VT Spot Instance Requests"]), (24, [])):
        values = {"L-3819A6DF": vcpus, "L-DB2E81BA": 1000, "L-B99A9384": 1000}
        monkeypatch.setattr(Quotas, "value", lambda _, quota, values=values: float(values[quota.code]))
        file = str(ROOT / "services" / "llama3.yaml")
        code, out, err = invoke("validate", "--account", "--region", "us-east-1", file)
        lines = [line for line in err.splitlines() if "quota" in line or "L-3819A6DF" in line]
        assert code == 0
        assert [line.startswith(f"notice: {begin}") for line, begin in zip(lines, told, strict=True)] == [
            True
        ] * len(told)
        code, out, _ = invoke("validate", "--account", "--region", "us-east-1", "--json", file)
        assert (code, len(json.loads(out)["notices"])) == (0, len(told))
        assert all("ask for 24 or more" in line for line in lines)


@pytest.mark.parametrize(
    ("concurrency", "services", "carried"), [(21, 1, 8), (22, 9, None), (22, 10, 9), (1000, 400, None)]
)
def test_an_accounts_concurrency(
    monkeypatch: pytest.MonkeyPatch, concurrency: float, services: int, carried: int | None
) -> None:
    """How many services it carries is said where that is too few for them, or too little for a storm."""
    monkeypatch.setattr(Quotas, "value", lambda *_: concurrency)
    warnings = Account("us-east-1", Quotas(Clients()), Clients()).warnings(services)
    assert [f"carries {carried} services" in warning for warning in warnings] == [True] * (
        carried is not None
    )


def invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error of any command."""
    result = CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_a_file_may_come_on_standard_input() -> None:
    """It has no name of its own: it says one, or the command does."""
    code, out, err = invoke("validate", "-", "-n", "chat", stdin=GOOD)
    assert (code, err) == (0, "")
    assert "chat" in out
    code, _, err = invoke("validate", "-", stdin=GOOD)
    assert (code, err) == (
        2,
        "-:1:1: name: text from standard input has no name: add `name:`, or give --name\n",
    )


def test_a_directory_means_the_service_files_in_it(tmp_path: Path) -> None:
    """Both endings; a directory without one is an error."""
    for name in ("a.yaml", "b.yml", "c.txt"):
        (tmp_path / name).write_text(GOOD, encoding="utf-8")
    code, out, _ = invoke("validate", str(tmp_path), "--json")
    assert (code, [service["name"] for service in json.loads(out)["services"]]) == (0, ["a", "b"])
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = invoke("validate", str(empty))
    assert (code, err) == (2, f"{empty}: has no service file (*.yaml, *.yml) in it\n")


def test_two_files_with_one_name_are_an_error(tmp_path: Path) -> None:
    """Also if only their slugs are one."""
    for name in ("a_b.yaml", "a-b.yml"):
        (tmp_path / name).write_text(GOOD, encoding="utf-8")
    code, _, err = invoke("validate", str(tmp_path))
    assert code == 2
    assert f"{tmp_path / 'a_b.yaml'}: name: {tmp_path / 'a-b.yml'} is named a-b, too" in err


def test_what_is_no_file_gets_one_line_and_nothing_hangs(tmp_path: Path) -> None:
    """A pipe that nobody writes to, a device without an end."""
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path, what in ((pipe, "a pipe"), (Path("/dev/zero"), "a device")):
        code, _, err = invoke("validate", str(path))
        assert (code, err) == (
            2,
            f"{path}: is {what}, not a file: give its text on standard input, with -\n",
        )


LONG = "n" * 20_000


@pytest.mark.parametrize(
    ("was", "becomes", "place"),
    [
        ("{A10G, L4, L40S}", "LONG", ":5:3: resources.accelerators"),
        ("run:", "? LONG\n: 1\nrun:", ":7:3: nnn"),
        ("  surge: 1", "  ? LONG\n  : 1\n  surge: 1", ":3:5: service.nnn"),
        ("run:", "envs: {? LONG : x}\nrun:", ":7:1: envs"),
        ("run:", "secrets: {? LONG : /a/b}\nrun:", ":7:1: secrets"),
        ("run:", "file_mounts: {? /LONG : s3://abc}\nrun:", ":7:1: file_mounts"),
        ("run:", "file_mounts: {/m: LONG}\nrun:", ":7:15: file_mounts./m"),
        ("run:", "workdir: LONG\nrun:", ":7:1: workdir"),
        ("run:", "workdir: ~no-such-user/x\nrun:", ":7:1: workdir"),
        ("run:", "spotrelay: {instance_types: [LONG.xlarge]}\nrun:", ":7:30: spotrelay.instance_types[0]"),
        ("  ports", "  image_id: docker:LONG\n  ports", ":6:3: resources.image_id"),
        ("  ports", "  labels: {? LONG : x}\n  ports", ":6:14: resources.labels.nnn"),
    ],
)
def test_a_name_of_thousands_of_characters_gets_one_line(
    tmp_path: Path, was: str, becomes: str, place: str
) -> None:
    """Which says where it stands, and doesn't repeat it in full."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace(was, becomes.replace("LONG", LONG), 1), encoding="utf-8")
    code, _, err = invoke("validate", str(file))
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith(f"{file}{place}")
    assert len(line) < len(str(file)) + 350


def test_a_service_of_a_long_name_says_what_becomes_of_it(tmp_path: Path) -> None:
    """AWS has room for a few characters of it."""
    file = tmp_path / "chat.yaml"
    file.write_text(f"name: {LONG}\n{GOOD}", encoding="utf-8")
    code, out, err = invoke("validate", str(file))
    assert (code, len(err.splitlines())) == (0, 1)
    assert LONG[:24] in out
    assert len(err) < len(str(file)) + 350


@pytest.mark.parametrize("path", [LONG, "a/" * 10_000])
def test_a_path_that_no_system_has_is_one_line(path: str) -> None:
    """Not a failure of the output, nor a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "spotrelay", "validate", path],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (2, f"{path[:60]}…: can't be read: File name too long\n")


def test_a_failure_of_a_file_isnt_blamed_on_the_output() -> None:
    """Whatever file it is: the line names it."""
    code = (
        "import spotrelay.operator.cli.app as module; module.app = lambda: open('/nowhere/x');"
        "from spotrelay.operator.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "spotrelay: /nowhere/x: No such file or directory\n")


def test_a_problem_shows_no_word_in_full_that_nobody_reads() -> None:
    """Neither of its parts; what a program reads has them."""
    problem = Problem("f.yaml", 1, f"envs.{LONG}", f"expected x, got {LONG} there")
    assert str(problem) == f"f.yaml:1: envs.{LONG[:55]}…: expected x, got {LONG[:60]}… there"
    assert problem.field.endswith(LONG)


def test_thousands_of_values_get_one_line(tmp_path: Path) -> None:
    """That isn't blamed on aliases, nor on the script."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD + "envs:\n" + "".join(f"  E{n}: x\n" for n in range(12_000)), encoding="utf-8")
    code, _, err = invoke("validate", str(file))
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.endswith("has more than 10000 values: that is no service file\n")
    file.write_text("a: " + "[" * 60 + "]" * 60, encoding="utf-8")
    assert invoke("validate", str(file))[2].endswith(
        "is nested more than 50 deep: no field of a service is\n"
    )


def test_values_come_from_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--env counts before --env-file; K alone takes the caller's; a slip is one line without the value."""
    file, values = tmp_path / "chat.yaml", tmp_path / "values.env"
    file.write_text(
        GOOD + "envs: {A: null, B: null, C: null, D: null}\nsecrets: {S: null}\n", encoding="utf-8"
    )
    values.write_text("# ours\nexport A=1\nB='two words' \nC=3 # three\n\n", encoding="utf-8")
    monkeypatch.setenv("D", "here")
    said = inputs(["A=one", "D"], values, ["S=hush"])
    assert said.envs == {"A": "one", "B": "two words", "C": "3", "D": "here"}
    code, _, err = invoke(
        "validate", str(file), "--env", "A=one", "--env", "D", "--env-file", str(values), "--secret", "S=hush"
    )
    assert code == 0
    assert "hush" not in err
    assert "hush" not in repr(said)
    for options in (
        ["--env", "1=2"],
        ["--env", "NOWHERE"],
        ["--env-file", "/dev/zero"],
        ["--secret", "a b=hush"],
    ):
        code, _, err = invoke("validate", str(file), *options)
        assert code == 2
        assert "hush" not in err
        assert options[0] in err


def test_without_credentials_all_but_the_costs_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line says what to do, for two files, too, and the exit code that AWS couldn't be asked."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD, encoding="utf-8")
    code, out, err = invoke("validate", "--prices", "--region", "us-east-1", str(tmp_path), "--json")
    assert (code, len(err.splitlines())) == (3, 1)
    assert err.startswith("spotrelay validate --prices: no AWS credentials")
    assert [service["costs"] for service in json.loads(out)["services"]] == [None, None]
    code, out, err = invoke("validate", "--prices", str(tmp_path))
    assert code == 2
    assert err == (
        "spotrelay validate --prices: which region? Name it with --region, or set AWS_DEFAULT_REGION\n"
    )
    assert out.count("cost a month") == 2


def test_a_service_of_other_regions_has_no_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS isn't asked, and a warning names the region to ask for."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD.replace("  ports", "  regions: [eu-west-1]\n  ports"), encoding="utf-8")
    code, _, err = invoke("validate", "--prices", "--region", "us-east-1", str(file))
    assert code == 0
    assert err == (
        f"warning: {file}: may run in eu-west-1 only, so there is no cost in us-east-1:"
        " say --region eu-west-1\n"
    )


def test_json_has_everything_for_scripts(tmp_path: Path) -> None:
    """Facts, warnings, notices and problems with their places."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD.replace("{A10G, L4, L40S}", "T4") + "name: Good\n", encoding="utf-8")
    bad.write_text(GOOD.replace("8081", "0"), encoding="utf-8")
    code, out, err = invoke("validate", "--json", str(good), str(bad))
    assert (code, err) == (2, "")
    said = json.loads(out)
    (service,) = said["services"]
    assert (service["name"], service["port"], service["file"]) == ("good", 8081, str(good))
    assert service["costs"] is None
    assert service["instance_types"][0] == {
        "name": "g4dn.xlarge",
        "accelerator": "T4",
        "accelerator_count": 1,
        "accelerator_memory_gb": 16,
        "vcpus": 4,
        "memory_gib": 16.0,
        "replicas": 1,
        "why": ["T4:1"],
    }
    assert service["quotas"][1] == {
        "purchase_option": "on-demand",
        "any_of": [{"code": "L-DB2E81BA", "name": "Running On-Demand G and VT instances", "vcpus": 8}],
    }
    assert [w["field"] for w in service["warnings"]] == ["resources.accelerators"]
    assert [n["field"] for n in service["notices"]] == ["name"]
    (problem,) = said["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == (str(bad), 6, 3)


def test_help_version_and_completion_are_there() -> None:
    """As of any command."""
    assert invoke("-h")[0] == 0
    assert invoke("validate", "-h")[0] == 0
    code, out, _ = invoke("--version")
    assert code == 0
    assert re.fullmatch(r"spotrelay \d+\.\d+\.\d+\n", out)
    assert "--show-completion" in invoke("--help")[1]


def spotrelay(*arguments: str, **environment: str) -> str:
    """What the command prints under its own name, which names the variables of its completion."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'spotrelay'; from spotrelay.operator.cli import main; main()",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize(
    ("shell", "script"),
    [("bash", ".bash_completions/spotrelay.sh"), ("zsh", ".zfunc/_spotrelay")],
)
def test_completion_installs_and_answers(shell: str, script: str, tmp_path: Path) -> None:
    """The script goes to the home directory, and what it asks is answered: commands, and their options."""
    unguessed = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
    spotrelay("--install-completion", shell, HOME=str(tmp_path), **{unguessed: "1"})
    assert f"_SPOTRELAY_COMPLETE=complete_{shell}" in (tmp_path / script).read_text(encoding="utf-8")
    for words, expected in (("spotrelay val", "validate"), ("spotrelay validate --pri", "--prices")):
        told = spotrelay(
            _SPOTRELAY_COMPLETE=f"complete_{shell}",
            COMP_WORDS=words,
            COMP_CWORD=str(words.count(" ")),
            _TYPER_COMPLETE_ARGS=words,
        )
        assert expected in told


def test_the_schema_is_printed() -> None:
    """For a file of one's own beside the service files."""
    code, out, _ = invoke("schema")
    assert (code, out) == (0, schema_text())


@pytest.mark.parametrize(
    "arguments",
    [["schema"], ["validate", "services/demo.yaml"], ["validate", "--json", "services/demo.yaml"]],
)
def test_an_output_that_takes_nothing_is_one_line(arguments: list[str]) -> None:
    """No traceback from a full disk, and none from a reader that has gone."""
    command = [sys.executable, "-m", "spotrelay", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (
        1,
        "spotrelay: can't write the output: No space left on device\n",
    )


def test_secrets_are_written_encrypted_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that get a value, by an option or in the file; the others are named with the option."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD + "secrets: {A: null, B: in the file, C: /own/c, D: null}\n", encoding="utf-8")
    written: list[dict[str, object]] = []

    class Parameters:
        def put_parameter(self, **request: object) -> dict[str, int]:
            written.append(request)
            return {"Version": len(written)}

    asked: list[tuple[str, str | None]] = []

    def client(session: Session, service: str, **_: object) -> Parameters:
        asked.append((service, session.region_name))
        return Parameters()

    monkeypatch.setattr(Session, "client", client)
    code, out, err = invoke(
        "secrets", str(file), "--secret", "A=hush", "--secret", "C=quiet", "--region", "us-east-1"
    )
    assert (code, err, asked) == (0, "", [("ssm", "us-east-1")])
    assert [(w["Name"], w["Value"], w["Type"]) for w in written] == [
        ("/spotrelay/chat/A", "hush", "SecureString"),
        ("/spotrelay/chat/B", "in the file", "SecureString"),
        ("/own/c", "quiet", "SecureString"),
    ]
    assert "D: /spotrelay/chat/D isn't written: give it with --secret D=…" in out
    assert not any(value in out for value in ("hush", "quiet", "in the file"))
    assert "A: written to /spotrelay/chat/A, version 1\n" in out
    assert out.splitlines()[-1] == (
        "chat: replicas keep the value that they were deployed with, new ones as well:"
        f" `spotrelay update {file}` rolls this one out"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("HF_TOKN=1", "no file has a secret HF_TOKN: did you mean HF_TOKEN?"),
        ("OTHER=1", "no file has a secret OTHER: add `OTHER:` under `secrets` there"),
    ],
)
def test_a_secret_that_no_file_has_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    """Nobody would read it, and whoever mistyped it would look for hours. Nothing else is written, either."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD + "secrets: {HF_TOKEN: null}\n", encoding="utf-8")
    monkeypatch.setattr(Session, "client", lambda *_, **__: None)
    code, out, err = invoke("secrets", str(file), "--secret", "HF_TOKEN=2", "--secret", said)
    assert (code != 0, out) == (True, "")
    assert told in err


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    """Not that there is no such file: there is a link of that name."""
    (tmp_path / "chat.yaml").symlink_to("gone.yaml")
    code, _, err = invoke("validate", str(tmp_path / "chat.yaml"))
    assert code == 2
    assert "is a symbolic link to gone.yaml, which isn't there" in err


def test_a_file_that_is_named_twice_is_one(tmp_path: Path) -> None:
    """It isn't at odds with itself."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD, encoding="utf-8")
    code, out, _ = invoke("validate", "--json", str(file), str(file))
    assert (code, len(json.loads(out)["services"])) == (0, 1)


def test_standard_input_that_is_closed_is_told(tmp_path: Path) -> None:
    """One line with the remedy, and no traceback."""
    command = f"exec {sys.executable} -m spotrelay validate - -n chat <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr
