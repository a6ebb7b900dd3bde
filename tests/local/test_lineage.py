"""What a chain of invocations is counted by: the trace header, as botocore hands it on."""

from __future__ import annotations

from urllib.parse import quote

from lab.local.lineage import Chain


def test_a_chain_through_two_functions_is_counted_to_its_end() -> None:
    """botocore encodes the line between two functions: encoded or not, each has its own count."""
    chain = Chain.of([]).invoking("on_signal")
    for _ in range(20):
        chain = Chain.of([quote(chain.invoking("reconcile").header(), safe="-=;:+&[]{}\"',")])
    assert (chain.invocations("on_signal"), chain.invocations("reconcile")) == (1, 20)
    assert Chain.of([chain.header()]).invocations("reconcile") == 20
