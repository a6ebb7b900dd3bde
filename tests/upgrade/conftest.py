"""AWS in process, as the adapters' own tests have it."""

from tests.contract.conftest import _hermetic, aws, clients

__all__ = ["_hermetic", "aws", "clients"]
