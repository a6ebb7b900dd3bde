"""How long it takes from the moment at which a replica could answer until the load balancer is told.

    .venv/bin/python -m lab.benchmarks.first_answer [ROUNDS]

Not a row of `make bench`: five rounds and a deployment take five minutes. In each round all instances are
terminated, and others start, which listen up to eight seconds after their launch. Each writes down when it
does; when it is registered, DescribeTargetHealth tells.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from lab.benchmarks.local_cloud import Stand, deployed, percentile

REPLICAS = 8
"""They start at once, and this machine runs all of them."""

ROUNDS = 5

WITHIN_S = 240.0
"""A bound on a round, for machines that are busy otherwise."""

POLL_S = 0.05
"""Of the target group, and so the error of each figure."""

FILE = """\
name: demo
service:
  replicas: {replicas}
  readiness_probe: {{path: /, initial_delay_seconds: 600}}
  max_launches_per_minute: 1000
resources:
  accelerators: {{A10G:1, L4:1, L40S:1, T4:1}}
  use_spot: true
  ports: 8081
spotrelay: {{drain_seconds: 1}}
run: |
  sleep $((RANDOM % 8)).$((RANDOM % 10))
  exec python3 -I -S -c '
  import http.server, os, time
  class Server(http.server.BaseHTTPRequestHandler):
      log_message = lambda *_: None
      def do_GET(self):
          self.send_response(200)
          self.send_header("Content-Length", "0")
          self.end_headers()
  server = http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Server)
  open("{listens}/" + os.environ["HOST"], "w").write(str(time.time()))
  server.serve_forever()
  '
"""


class Registrations(threading.Thread):
    """Looks at the target group all the time."""

    def __init__(self, stand: Stand) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, float] = {}
        """By instance: when it was first seen as a target."""
        self.is_over = threading.Event()
        self._client = stand.client("elbv2")
        self._group = stand.spec.target_group_arn

    def run(self) -> None:
        """Until it is over."""
        while not self.is_over.wait(POLL_S):
            targets = self._client.describe_target_health(TargetGroupArn=self._group)
            for target in targets["TargetHealthDescriptions"]:
                self.seen.setdefault(target["Target"]["Id"], time.time())


def measure(rounds: int) -> list[float]:
    """Seconds, of each start of these rounds."""
    with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as scratch:
        listens = Path(scratch) / "listens"
        listens.mkdir()
        file = Path(scratch) / "demo.yaml"
        file.write_text(FILE.format(replicas=REPLICAS, listens=listens), encoding="utf-8")
        with deployed("first-answer", file, lambda _: None, 30.0) as stand:
            serving = stand.serving(REPLICAS, WITHIN_S)
            registrations = Registrations(stand)
            registrations.start()
            took = []
            for _ in range(rounds):
                stand.client("ec2").terminate_instances(InstanceIds=serving)
                serving = stand.serving(REPLICAS, WITHIN_S, but=serving)
                address = {one["instance_id"]: one["address"] for one in stand.cloud.instances()}
                for id_ in serving:
                    listens_at = float((listens / address[id_]).read_text(encoding="utf-8"))
                    took.append(registrations.seen[id_] - listens_at)
            registrations.is_over.set()
            registrations.join()
            return took


def main() -> None:
    """Print what came out."""
    took = sorted(measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
    sys.stdout.write(
        f"{len(took)} starts, from listening to registered: median {percentile(took, 50):.1f} s,"
        f" 95 in a hundred within {percentile(took, 95):.1f} s, the longest {took[-1]:.1f} s\n"
    )


if __name__ == "__main__":
    main()
