"""What YAML 1.1, which SkyPilot reads with, and Python make of a bare word: `yes` → True, `1.10` → 1.1."""

from __future__ import annotations

import re

_BOOLEAN = re.compile(r"yes|Yes|YES|true|True|TRUE|on|On|ON|no|No|NO|false|False|FALSE|off|Off|OFF")
_TRUE = ("yes", "true", "on")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_BASED = re.compile(r"[-+]?0(?:b[01_]+|x[0-9a-fA-F_]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SIXTIES = re.compile(r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+")

MAX_DIGITS = 1000
"""Python doesn't print numbers of some thousands of digits."""


def text_of(word: str) -> str:
    """The text that SkyPilot makes of an unquoted value of `envs`."""
    plain = word.replace("_", "")
    if len(word) > MAX_DIGITS:
        return word
    if _BOOLEAN.fullmatch(word):
        return str(word.lower() in _TRUE)
    if _OCTAL.fullmatch(word):
        return str(int(plain, 8))
    if _INTEGER.fullmatch(word):
        return str(int(plain))
    if _BASED.fullmatch(word):
        return str(int(plain, 0))
    if _FLOAT.fullmatch(word) and any(c.isdigit() for c in word):
        return str(float(plain))
    if _SPECIAL.fullmatch(word):
        return str(float(word.lower().replace(".", "")))
    if _SIXTIES.fullmatch(word):
        sign, number = (-1 if word.startswith("-") else 1), 0
        for part in plain.lstrip("+-").split(":"):
            number = number * 60 + int(part)
        return str(sign * number)
    return word
