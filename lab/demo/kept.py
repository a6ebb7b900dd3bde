"""Instead of stories: the local cloud stays up, with some load, for whoever wants to try things."""

from __future__ import annotations

import time

from rich.console import Console

from lab.demo.deployment import Deployment
from lab.demo.environment import OPERATOR_KEY
from lab.demo.errors import Interrupted
from lab.demo.load import Load
from lab.demo.settings import MODEL, REGION
from spotrelay.operator.request import PROMPT, Entrance, chat, curl

CLIENTS = 4
"""Enough that a lost request is seen, and little enough to leave a laptop to whoever tries things."""

LOOK_S = 1.0

TO_TRY = """\
The local cloud stays up until Ctrl-C, and {clients} clients keep sending requests. In another terminal, here:

  export AWS_ENDPOINT_URL={endpoint} AWS_DEFAULT_REGION={region}
  export AWS_ACCESS_KEY_ID={key} AWS_SECRET_ACCESS_KEY={key} PATH=$PWD/.venv/bin:$PATH

  spotrelay request {name}            # a chat with the model, streamed; the same with curl:
  {curl}

  spotrelay status {name}             # is it whole? replicas, losses, cost an hour
  spotrelay status {name} --watch     # the same, as it changes
  spotrelay history {name}            # every loss, and what replaced it
  spotrelay explain {name} ID         # why a replica is where it is
  spotrelay drill {name}              # an interruption, watched to its end, with a verdict
  spotrelay cost {name}               # what was paid, and what on-demand would have cost
  spotrelay prices {name}             # and: scores, logs, ui
  python -m lab.local.drive dry     # no Spot anywhere; `back` brings it back, `warn i-…` takes one
  aws ec2 terminate-instances --instance-ids i-…     # a loss without a warning"""


def to_try(deployment: Deployment) -> str:
    """What is said of a cloud that stays up."""
    name, host = next(iter(deployment.hosts.items()))
    return TO_TRY.format(
        clients=CLIENTS,
        endpoint=deployment.endpoint,
        region=REGION,
        key=OPERATOR_KEY,
        name=name,
        curl=curl(Entrance(f"http://{host}", host), chat(MODEL, PROMPT), deployment.endpoint),
    )


def keep(deployment: Deployment, console: Console) -> None:
    """Serve until Ctrl-C.

    Raises:
        LoadError: the load's process has died.
    """
    words, hosts = to_try(deployment), deployment.hosts
    with Load(deployment.endpoint, list(hosts.values()), CLIENTS, model=MODEL) as load:
        console.print(words, markup=False, highlight=False, soft_wrap=True)
        try:
            while True:
                load.snapshot()  # raises if its process has died
                time.sleep(LOOK_S)
        except Interrupted:
            seen = load.snapshot()
            console.print(
                f"\n{seen.sent} requests, {seen.failed} failed, {seen.cut} cut; the local cloud is stopped"
            )
