"""A file's name, its environment variables and its secrets, with what its user says beside it."""

from __future__ import annotations

from spotrelay.file.source import yaml11
from spotrelay.file.source.document import replaced_later
from spotrelay.file.source.draft import Dialect, Draft
from spotrelay.file.source.inputs import Inputs
from spotrelay.file.source.naming import slug
from spotrelay.messages import shown
from spotrelay.plane.core.names import MAX_NAME, RESERVED_NAMES

PARAMETER_NAME = r"/[A-Za-z0-9_.\-/]{1,1010}"
"""An SSM parameter in a hierarchy. IAM wants its name exactly, so the leading slash is not optional."""


def parameter_of(service: str, secret: str) -> str:
    """Where a secret is kept for which the file names no parameter."""
    return f"/spotrelay/{service}/{secret}"


def fill(draft: Draft, inputs: Inputs) -> None:
    """Settle the name, give every env a value and every secret a parameter."""
    name = _name(draft, inputs)
    _envs(draft, inputs)
    _secrets(draft, inputs, name)


def _name(draft: Draft, inputs: Inputs) -> str:
    given, written = inputs.name, draft.values.get("name")
    if given is None and written is not None and not isinstance(written, str):
        return ""  # the schema refuses it
    text = given or written or draft.document.stem
    name = slug(text)
    whose = "--name" if given else "name" if written else "the file's own name, as it says no `name:`,"
    if not name:
        draft.problem(
            ("name",),
            f"{whose} has no letter or digit that AWS takes, got {shown(text)}: choose one of lower-case"
            " letters, digits and hyphens"
            if text
            else "text from standard input has no name: add `name:`, or give --name",
        )
        return ""
    if name in RESERVED_NAMES:
        draft.problem(
            ("name",),
            f"{whose} {shown(text)} is no service's name: SpotRelay keeps parameters of its own below"
            f" /spotrelay/{name}, where this service's secrets would lie: choose another one",
        )
    if name != text:
        draft.note(
            ("name",),
            f"{whose} {shown(text)} becomes {name}: AWS takes lower-case letters, digits and"
            f" hyphens, and its names have room for {MAX_NAME} characters",
        )
    draft.values["name"] = name
    return name


def _envs(draft: Draft, inputs: Inputs) -> None:
    envs = draft.values.get("envs")
    if envs is None:
        envs = {}
    if not isinstance(envs, dict):
        return
    if draft.dialect is Dialect.SKYSERVE:
        for name, text in envs.items():
            other = yaml11.text_of(text) if ("envs", name) in draft.document.plain else text
            if isinstance(text, str) and other != text and name not in inputs.envs:
                draft.note(
                    ("envs", name), f"is {text} as it was written; SkyServe would make {shown(other)} of it"
                )
    for name, text in inputs.envs.items():
        for message in replaced_later(text):
            draft.problem(("envs", name), message)
    draft.values["envs"] = {**envs, **inputs.envs}


def _secrets(draft: Draft, inputs: Inputs, service: str) -> None:
    secrets = draft.values.get("secrets")
    if secrets is None:
        secrets = {}
    if not isinstance(secrets, dict):
        return
    envs = draft.section("envs")
    for name in inputs.secrets.keys() & envs.keys():
        message = "is no secret in the file: give it with --env, or move it under `secrets`"
        draft.problem(("envs", name), message)
        envs[name] = ""  # told already
    for name in inputs.envs.keys() & secrets.keys():
        draft.problem(("secrets", name), "is a secret in the file: give it with --secret")
        envs.pop(name, None)
    more = inputs.secrets.keys() - envs.keys() - secrets.keys()
    secrets = {**secrets, **dict.fromkeys(sorted(more))}
    for name, content in secrets.items():
        if content is None or (isinstance(content, str) and not content.startswith("/")):
            secrets[name] = parameter_of(service or "NAME", name)
            if content:
                draft.secret_values[name] = content
                draft.note(
                    ("secrets", name),
                    f"stands in the file in the clear. It is read from the parameter {secrets[name]}:"
                    " `spotrelay secrets FILE` writes it there, then take it out of the file",
                )
            else:
                draft.note(
                    ("secrets", name),
                    f"is read from the parameter {secrets[name]}: `spotrelay secrets FILE --secret {name}=…`"
                    " writes it",
                )
    draft.values["secrets"] = secrets
