"""`spotrelay mirror`: copies a model of Hugging Face into a bucket."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.file.values.disk import INSTANCE_STORE
from spotrelay.messages import in_gb
from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import EndpointUrl, Profile, Region, Where

if TYPE_CHECKING:
    from spotrelay.file.values.files import Bucket
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.mirror import HubFile, Snapshot, Tell


def mirror(
    source: Annotated[
        str,
        typer.Argument(
            metavar="hf://ORG/NAME[@REVISION]", help="A model of Hugging Face.", show_default=False
        ),
    ],
    to: Annotated[
        str,
        typer.Argument(
            metavar="s3://BUCKET/PREFIX", help="Where to; nothing else is there.", show_default=False
        ),
    ],
    include: Annotated[
        list[str] | None,
        typer.Option(help="Only files like this, such as '*.gguf'.", metavar="PATTERN", show_default=False),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="No files like this, such as 'original/*'.", metavar="PATTERN", show_default=False),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="A directory with room for the largest file, by default in your cache.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Copy a model from Hugging Face into a bucket, and check each file.

    All is of one commit. One file comes after the other, by way of this machine's disk. The same command goes
    on where another broke off. It overwrites nothing: what is there must be of the same commit. HF_TOKEN is
    for models that need a token.

    Example: spotrelay mirror hf://openai-community/gpt2 s3://my-bucket/gpt2/
    """
    from spotrelay.file.values.files import FilesError, bucket
    from spotrelay.operator import mirror as mirroring
    from spotrelay.operator.cli.control_plane import errors_shown
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.plane.aws.clients import Clients

    with errors_shown("mirror"), Teller() as teller:
        try:
            into = bucket(to)
            wanted = mirroring.repository(source)
        except (FilesError, mirroring.MirrorError) as error:
            raise CommandError(f"{error}") from error
        try:
            hub = mirroring.Hub()
            snapshot = hub.snapshot(wanted, include or (), exclude or ())
            many = f"{len(snapshot.files)} files, {in_gb(snapshot.size)}"
            teller.say(f"{snapshot.name}, commit {snapshot.commit}: {many}")
            clients = Clients(Where(region, profile, endpoint_url).session())
            there = mirroring.copied(clients, into, snapshot)
            if there:
                teller.say(f"{len(there)} of them are there")
            place = (scratch or _cache()) / f"{snapshot.name.replace('/', '--')}@{snapshot.commit}"
            for file in snapshot.files:
                if file.path in there:
                    continue
                path = hub.fetch(snapshot, file, place, _now(teller, file, "fetched"))
                mirroring.upload(clients, into, file, path, _now(teller, file, "uploaded"))
                path.unlink()
                teller.say(f"{into.url}/{file.path}: {in_gb(file.size)}")
            shutil.rmtree(place, ignore_errors=True)
        except mirroring.MirrorError as error:
            raise CommandError(str(error), EXIT_FAILED) from error
        teller.say(_lines(into, snapshot))


def _cache() -> Path:
    """Where what a try has left is found again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spotrelay" / "mirror"


def _now(teller: Teller, file: HubFile, what: str) -> Tell:
    def tell(done: int) -> None:
        teller.now(f"{file.path}: {in_gb(done)} of {in_gb(file.size)} {what}")

    return tell


def _lines(into: Bucket, snapshot: Snapshot) -> str:
    name = into.prefix.rpartition("/")[2] or snapshot.name.rpartition("/")[2]
    return f"""\
All of it is there. In the service file:

spotrelay:
  models:
    - source: {into.url}/    # {snapshot.name}@{snapshot.commit}
      path: {INSTANCE_STORE}/{name}"""
