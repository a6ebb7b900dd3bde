"""The service's unit: what systemd does with a replica's scripts, at each start and at each stop."""

from __future__ import annotations

from collections.abc import Collection

from spotrelay.file.instance import crash, phases
from spotrelay.file.instance.prepare import CONTAINER
from spotrelay.file.model import Service
from spotrelay.plane.core.replica import Phase

HOME = "/opt/spotrelay"
PATH = "/etc/systemd/system/spotrelay.service"

STOP_S = 120
"""What a server has for its last answers, after the load balancer has let it drain: as long as EC2 warns. Not
`drain_seconds`: another number there is no new version of the instances."""

_UNIT = """\
[Unit]
Description=SpotRelay replica of {name}
Wants={after}
# dlami-nvme mounts the instance store in AWS's Deep Learning images. A service that comes before it at a
# second boot finds a directory of the root volume there. Other images have no such unit.
After={after} dlami-nvme.service
# A replica that can't start is replaced by SpotRelay in its own time; until then it keeps trying.
StartLimitIntervalSec=0

[Service]
# Named although it is the default: only then does systemd set HOME, which model caches want.
User=root
WorkingDirectory={home}
EnvironmentFile={home}/service.env
{tells_begin}{setup}{tells_end}ExecStart=/bin/bash {home}/run.sh
ExecStop=/bin/bash {home}/stop.sh
# Also after a start that failed.
ExecStopPost=/bin/bash {home}/crash.sh
Restart=always
RestartSec=5
# Setup installs software and may fetch a model: initial_delay_seconds is the limit, kept by SpotRelay.
TimeoutStartSec=infinity
# For what a server still answers. stop.sh tells it; only what is left then is killed.
TimeoutStopSec={stop_s}
KillMode=mixed
# As SkyPilot gives them: a server has a socket a request, and locks its GPU's buffers in memory.
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""

_TELLS = "ExecStartPre=-/bin/bash {home}/{script} {phases}\n"
"""Whatever becomes of that, the service starts."""

_SETUP = "ExecStartPre=/bin/bash {home}/once.sh\n"

ONCE = """\
#!/bin/bash
# Sets the instance up, until that has succeeded once. The mark names what was done: an image that was made
# from a replica has that replica's, and another version sets itself up again.
here=$(dirname "$0")
mark=$(cd "$here" && cat service.env {setup,aws,prepare,task/shell,task/setup}.sh 2>/dev/null | sha256sum)
mark=$here/.setup-done-${mark:0:16}
[ -e "$mark" ] || { bash "$here/setup.sh" && touch "$mark"; }
"""

STOP = """\
#!/bin/bash
# SIGTERM to the servers, and time for what they still answer. A server is what a script has started, or
# become by `exec`. The processes below it are its own to end: vLLM's engine has answers to finish.
stop() {
  local name child children=()
  read -r name < "/proc/$1/comm" || return
  case $name in bash | sh | dash | *-init | tini | catatonit)
    read -r -a children < "/proc/$1/task/$1/children"
    for child in "${children[@]}"; do stop "$child"; done
    return ;;
    # What a server's words go through ends with the server; without it the server would write into nothing.
    tee | cat | tail | sed | grep | awk) return ;;
  esac
  kill -TERM "$1" && servers+=("$1")
}
servers=()
main=${1-${MAINPID-}}
if [ -n "$main" ]; then stop "$main"; fi 2>/dev/null
for server in "${servers[@]}"; do
  while [ -e "/proc/$server" ]; do sleep 0.2; done
done
"""


_STOP_CONTAINER = """\
#!/bin/bash
# Its processes are the container's, to which Docker passes no signal on but to the first.
[ -n "${{MAINPID-}}" ] || exit 0
timeout {stop_s} docker exec {container} /bin/bash "$(dirname "$0")/task/stop.sh" 1
docker stop -t 5 {container} >/dev/null
"""


def scripts(service: Service, *, has_setup: bool) -> dict[str, str]:
    """What the unit calls beside run.sh, by its path below `HOME`."""
    found = {"once.sh": ONCE} if has_setup else {}
    found |= crash.scripts(service.port)
    if service.container is None:
        return found | {"stop.sh": STOP}
    on_the_host = _STOP_CONTAINER.format(stop_s=STOP_S, container=CONTAINER)
    return found | {"stop.sh": on_the_host, "task/stop.sh": STOP}


def render(service: Service, *, has_setup: bool, has_files: bool) -> str:
    """The unit of a service's instances; `has_files`: whether set-up fetches anything."""
    begins, over = phases.of_unit(has_setup=has_setup, has_files=has_files, has_models=bool(service.models))
    after = "network-online.target" if service.container is None else "network-online.target docker.service"
    return _UNIT.format(
        name=service.name,
        home=HOME,
        tells_begin=_tells(begins),
        setup=_SETUP.format(home=HOME) if has_setup else "",
        tells_end=_tells(over) if over else "",
        after=after,
        stop_s=STOP_S,
    )


def _tells(reached: Collection[Phase]) -> str:
    return _TELLS.format(home=HOME, script=phases.SCRIPT, phases=" ".join(reached))
