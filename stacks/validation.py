"""Findings of the security rules (cdk-nag) that we have looked at and accept."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept a finding at a construct and below. The reason is for whoever audits the account."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
