"""What a replica says, on its instance's console, where EC2 shows it without a way into the instance.

systemd writes it to the instance's journal alone. To have it write to the console as well would let the
service wait for a serial line. So the journal is read from its files, and what is copied is limited.
"""

from __future__ import annotations

from spotrelay.file.instance.phases import LINE, TELL

SCRIPT = f"""\
#!/bin/bash
{TELL}
# What the replica says, for `spotrelay logs`: each time the last 16 KiB, for a console is slow. An engine
# that fails writes two tracebacks, of which the first one tells why. After it once more what the start has
# reached: so that is within the last 64 KiB, which are all that EC2 keeps.
from=$(date -u '+%F %T UTC')
while sleep 20; do
  to=$(date -u '+%F %T UTC')
  said=$(journalctl -qau spotrelay -o short-iso --since "$from" --until "$to" |
    tail -c 16384 | tee -a /dev/console | wc -c)
  [ "$said" = 0 ] || cat {LINE} >>/dev/console 2>/dev/null
  from=$to
done
"""

UNIT = """\
[Unit]
Description=SpotRelay: what {name} says, on the console
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/bash {home}/console.sh
Restart=always
RestartSec=20
Nice=19

[Install]
WantedBy=multi-user.target
"""
