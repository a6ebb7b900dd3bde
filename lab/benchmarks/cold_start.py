"""From a fresh interpreter to clients that can call: what a cold start adds to boto3's own.

Lambda's part (a micro-VM, the asset's download, its own bootstrap) is every function's and isn't measured.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from lab.benchmarks.figures import Figure, Row, Tell, ratio

SAMPLES = 9
"""Pairs, whose ratios' median counts."""

TRIES = 3
"""A sample is the quickest of so many starts in turn: whatever else the machine does only ever adds."""

QUICKEST = f"median of the quickest of {TRIES}"

OF_LAMBDA = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six.py")
"""What the runtime brings: boto3 and all that it needs."""

CLIENTS = ("dynamodb", "ssm", "elbv2", "sqs", "ec2")
"""What the first batch with a warning about a replica of ours calls, in that order."""

OURS = """
import time
began = time.perf_counter()
from lambdas import on_signal
from spotrelay.plane.aws import runtime
imported = time.perf_counter()
intake = runtime.intake()
clients = intake.controller._ports.store._table._clients
(clients.dynamodb, clients.ssm, clients.elbv2, clients.sqs, clients.ec2_launching)
print(imported - began, time.perf_counter() - began)
import os
assert on_signal.__file__.startswith(os.environ["PYTHONPATH"].partition(":")[0]), on_signal.__file__
"""

THEIRS = f"""
import time
began = time.perf_counter()
import boto3
imported = time.perf_counter()
session = boto3.Session()
[session.client(name) for name in {CLIENTS!r}]
print(imported - began, time.perf_counter() - began)
"""

FOREIGN = OURS.replace(
    "(clients.dynamodb, clients.ssm, clients.elbv2, clients.sqs, clients.ec2_launching)", "clients.dynamodb"
)


def measure(tell: Tell) -> Sequence[Figure]:
    """The asset and boto3, in turn, each in an interpreter that has nothing but it and what Lambda brings."""
    from stacks.bundling import stage  # with the CDK, which takes seconds to import

    with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as directory:
        asset, runtime = Path(directory, "asset"), Path(directory, "runtime")
        tell(0, 1, "putting the asset together")
        stage(asset)
        runtime.mkdir()
        bring_runtime(runtime)
        # Lambda's is compiled. Here it depends on whether somebody ran it before.
        compileall.compile_dir(runtime, quiet=1)
        programs = {"ours": OURS, "theirs": THEIRS, "foreign": FOREIGN}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        runs = SAMPLES * TRIES
        for run in range(-1, runs):  # the first reads the files into memory
            tell(max(run, 0), runs, "cold starts")
            # Forwards and backwards in turn: what grows or fades in the meantime is nobody's disadvantage.
            for name in list(programs)[:: 1 if run % 2 else -1]:
                result = _run(programs[name], asset, runtime)
                if run >= 0:
                    taken[name].append(result)
    imports = {name: quickest([first for first, _ in results]) for name, results in taken.items()}
    wholes = {name: quickest([whole for _, whole in results]) for name, results in taken.items()}
    return [
        Figure(
            "to_boto3",
            ratio(wholes["ours"], wholes["theirs"]),
            "x",
            "import and the clients of a first warning, to importing boto3 and making the same clients",
            at_most=1.15,
            tolerance=0.15,
        ),
        Figure(
            "foreign_to_boto3",
            ratio(wholes["foreign"], wholes["theirs"]),
            "x",
            "as far as a signal about somebody else's instance needs it, to the same",
            tolerance=0.15,
        ),
        Figure("ours", median(wholes["ours"]) * 1000, "ms", QUICKEST),
        Figure("ours_import", median(imports["ours"]) * 1000, "ms", "of it, importing the handler"),
        Figure("boto3", median(wholes["theirs"]) * 1000, "ms", QUICKEST),
        Figure("boto3_import", median(imports["theirs"]) * 1000, "ms", "of it, importing boto3"),
    ]


def bring_runtime(directory: Path) -> None:
    """Fill a directory with what Lambda's runtime brings."""
    site_packages = Path(str(importlib.metadata.distribution("boto3").locate_file("")))
    for name in OF_LAMBDA:
        for source in sorted((site_packages / name).rglob("*.py")) or [site_packages / name]:
            target = directory / source.relative_to(site_packages)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
        # The models of services, and certificates.
        for data in (*(site_packages / name).glob("data"), *(site_packages / name).glob("*.pem")):
            (directory / name / data.name).symlink_to(data)


def quickest(times: Sequence[float]) -> list[float]:
    """Of each sample the quickest of its `TRIES`."""
    return [min(times[i : i + TRIES]) for i in range(0, len(times), TRIES)]


def _run(program: str, asset: Path, runtime: Path) -> tuple[float, float]:
    """(until imported, until there are clients), seconds."""
    done = subprocess.run(
        # -S: without the virtual environment's own packages. -P: without the working copy, which is compiled.
        [sys.executable, "-S", "-P", "-c", program],
        env={
            "PYTHONPATH": f"{asset}:{runtime}",
            # A function can't write beside its code: what isn't compiled in the asset is compiled each time.
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SPOTRELAY_TABLE": "spotrelay",
            "SPOTRELAY_TICK_QUEUE_URL": "https://ticks",
            "SPOTRELAY_LEAVE_QUEUE_URL": "https://leaves",
            "SPOTRELAY_DEAD_LETTER_QUEUE_URL": "https://dead-letters",
            "SPOTRELAY_SERVICES_PATH": "/spotrelay/services",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    imported, whole = done.stdout.split()
    return float(imported), float(whole)


ROW = Row("cold_start", "Cold start, beside boto3's own", 55, measure)
