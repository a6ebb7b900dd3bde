"""The command `python -m lab.local`: starts the local cloud alone, for any AWS client."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from lab.local.environment import EC2_WARNING_S

DEFAULT_PORT = 4566
"""Where tools expect a local AWS."""

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""What a shell expects of a program that Ctrl-C ended."""


def main() -> int:
    """Serve until told to stop. Exit code 2 for what the caller can put right."""
    options = _parser().parse_args()
    _log_to(options.log_file)
    # Late, because it takes a second: a wrong option is answered at once.
    from lab.local import network, server
    from lab.local.cloud import LocalSettings
    from lab.local.recordings import RecordingError, Recordings, read

    try:
        recordings = read(options.prices) if options.prices else Recordings()
    except RecordingError as error:
        return _fail(f"--prices: {error}")
    settings = LocalSettings(options.warning_s, options.schedule_s, options.boot_s)
    try:
        chosen_network = network.choose(options.network)
    except network.NetworkError as error:
        return _fail(f"--network own: {error}. {network.REMEDY}")
    try:
        listener = server.bind(options.port)
    except OSError as error:
        remedy = "choose another with --port, or --port 0 for a free one"
        why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be used ({error.strerror})"
        return _fail(f"port {options.port} of {server.HOST} {why}: {remedy}")
    except OverflowError:
        return _fail(f"--port {options.port}: expected 0 to 65535")
    chosen = server.Options(
        settings,
        options.ready_file,
        options.call_log,
        instance_logs=options.instance_logs,
        recordings=recordings,
        network=chosen_network,
    )
    told = [f"Network: {chosen_network.words}", *recordings.as_of(datetime.now(UTC)).described()]
    server.run(listener, chosen, lambda endpoint: _greet(endpoint, told))
    return 0


def _greet(endpoint: str, told: Sequence[str]) -> None:
    lines = [
        f"The local cloud is ready at {endpoint} (Ctrl-C stops it). Its credentials are test and test:",
        "  export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_DEFAULT_REGION=us-east-1",
        f"  aws --endpoint-url {endpoint} ec2 describe-instances",
        "  python -c 'from lab.local.client import LocalCloud; "
        f'print(LocalCloud("{endpoint}").instances())\'',
        *told,
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.local",
        description="An AWS on this machine, with a Spot market, for SpotRelay's demo and tests.",
    )
    port_help = f"port on 127.0.0.1; 0 for a free one (default: {DEFAULT_PORT})"
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=port_help)
    parser.add_argument(
        "--warning-s",
        type=_seconds,
        default=EC2_WARNING_S,
        help=f"from a warning to the reclaim (default: {EC2_WARNING_S:.0f})",
    )
    parser.add_argument(
        "--schedule-s", type=_seconds, default=60.0, help="how long rate(1 minute) lasts (default: 60)"
    )
    parser.add_argument("--boot-s", type=_seconds, default=1.0, help="from pending to running (default: 1)")
    parser.add_argument(
        "--prices",
        type=Path,
        metavar="DIR",
        help="serve recorded prices from JSON files: what describe-spot-price-history and get-products"
        " printed, and the Spot Instance Advisor's file (default: made-up Spot prices)",
    )
    parser.add_argument(
        "--network",
        choices=("own", "shared"),
        default=os.environ.get("LOCAL_NETWORK"),
        help="whether instances have networks of their own, or share this machine's"
        " (default: $LOCAL_NETWORK, or their own where the machine allows it)",
    )
    parser.add_argument("--ready-file", type=Path, help='gets {"endpoint": …} once requests are answered')
    parser.add_argument("--log-file", type=Path, help="gets the log instead of standard error")
    parser.add_argument("--call-log", type=Path, help="gets every AWS call as a line of JSON")
    parser.add_argument(
        "--instance-logs", type=Path, help="directory that gets what instances say, a file each"
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds above 0")
    return value


def _log_to(path: Path | None) -> None:
    logging.basicConfig(
        filename=path,
        level=logging.INFO if path else logging.WARNING,
        format="%(asctime)s %(levelname)s [%(name)s] %(message)s",
    )
    logging.getLogger("ministack").setLevel(logging.WARNING)  # its banner


def _fail(message: str) -> int:
    sys.stderr.write(f"lab.local: {message}\n")
    return EXIT_USAGE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the server handles it
        sys.exit(EXIT_INTERRUPTED)
