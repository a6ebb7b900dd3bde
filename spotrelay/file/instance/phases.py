"""What a start has reached, told by the instance on its console: SpotRelay reads it there, once.

The console needs no port, and nothing that the instance would have to be allowed. A set-up may use the
service's port, so nobody else listens there meanwhile.
"""

from __future__ import annotations

from spotrelay.plane.core.replica import CONSOLE_MARK, Phase

SCRIPT = "console.sh"
"""It tells what it is called with. One file for all that goes to the console, for user data has room for
16 KiB."""

LINE = "/run/spotrelay-phases"
"""What was told last. A boot finds /run empty: a resume tells its own start."""

TELL = f"""\
# Tells what the start has reached, each once in a boot: all of it in one line, on the console and in a file,
# from which it is repeated. A second at most for a console that hangs. Not in the background: systemd kills
# what ExecStartPre has left before it goes on.
if [ $# != 0 ]; then
  exec &> /dev/null
  read -r up _ < /proc/uptime
  told=$(cat {LINE}) now=$(date +%s.%3N)
  line=${{told:-{CONSOLE_MARK} {Phase.BOOTED}=$(date -d "-$up sec" +%s.%3N)}}
  for phase; do [[ $line = *" $phase="* ]] || line+=" $phase=$now"; done
  [ "$line" = "$told" ] || {{ echo "$line" > {LINE}; timeout 1 tee -a /dev/console < {LINE}; }}
  exit 0
fi
"""

HAS_FILES = f'bash "$SPOTRELAY_DIR/{SCRIPT}" {Phase.HAS_FILES}\n'
"""In setup.sh, where there is anything to fetch."""

LOADS = f'bash "$SPOTRELAY_DIR/{SCRIPT}" {Phase.LOADS}\n'
"""In run.sh, where it waits for models."""


def of_unit(*, has_setup: bool, has_files: bool, has_models: bool) -> tuple[list[Phase], list[Phase]]:
    """What has been reached when the unit starts, and what when set-up is over.

    What there is nothing of is told together with what comes before it: it took no time.
    """
    begins = [Phase.SETS_UP] if has_files else [Phase.SETS_UP, Phase.HAS_FILES]
    over = [Phase.HAS_FILES, Phase.IS_SET_UP, *([] if has_models else [Phase.LOADS])]
    return (begins, over) if has_setup else (list(dict.fromkeys(begins + over)), [])
