"""Imported by every function of a local cloud whose instances share this machine's network.

Their addresses are loopback's from 127.10 on (see `network.SharedNetwork`), and the prober asks none of
loopback's: on AWS the runtime interface of its own function is there. Below 127.10 that holds here, too.
"""

from ipaddress import IPv4Address

_FIRST, _LAST = IPv4Address("127.0.0.0"), IPv4Address("127.9.255.255")

IPv4Address.is_loopback = property(lambda self: _FIRST <= self <= _LAST)  # type: ignore[assignment,method-assign]
