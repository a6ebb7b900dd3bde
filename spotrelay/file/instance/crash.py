"""Why a replica doesn't start, told where SpotRelay asks whether it is ready: on the service's own port.

The instance needs no permission for it, and no port but the one that is open to the prober already. While its
server is down, nobody else listens there.
"""

from __future__ import annotations

ENDS, WITHIN_S = 3, 600
"""So many starts that ended within so long are a crash loop. An engine may take minutes to load and fail."""

TOLD_S = 20
"""Replicas that start are asked every few seconds, so this is heard; and the next try comes soon."""

WORDS_BYTES = 1500
"""Of what the service said last: a traceback's end."""

HEADER = "SpotRelay-Crash"
"""Of such an answer; its value says how many starts have failed."""

_SCRIPT = f"""\
#!/bin/bash
# Runs after each end of run.sh, or of a set-up that failed. Not on PORT, which the file may have for itself.
port=${{1-@}}
here=$(cd "$(dirname "$0")" && pwd)
[ "$(systemctl is-system-running 2>/dev/null)" != stopping ] || exit 0
now=$(date +%s)
echo "$now" >> "$here/.ends-$port"
mapfile -t ends < <(tail -n {ENDS} "$here/.ends-$port")
printf '%s\\n' "${{ends[@]}}" > "$here/.ends-$port"
[ ${{#ends[@]}} = {ENDS} ] && [ $((now - ends[0])) -lt {WITHIN_S} ] && command -v python3 >/dev/null || exit 0
# Not systemd's own lines about the unit.
journalctl _SYSTEMD_UNIT=spotrelay.service --output cat --all --lines 30 | tail -c {WORDS_BYTES} |
  timeout {TOLD_S} python3 -I "$here/crash.py" "${{HOST:-0.0.0.0}}" "$port" {ENDS}
[ $? = 124 ] || echo "spotrelay: something else listens on port $port, where the service should" >&2
exit 0
"""

SERVER = f"""\
import http.server, socketserver, sys
words = sys.stdin.buffer.read()
class Answer(http.server.BaseHTTPRequestHandler):
    timeout = 5
    log_message = lambda *_: None
    def do_GET(self):
        self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1 << 20))
        self.send_response(503)
        self.send_header("{HEADER}", sys.argv[3])
        self.end_headers()
        # Clients come through a load balancer, and are told nothing of it.
        if not {{"x-forwarded-for", "x-amzn-trace-id"}} & {{name.lower() for name in self.headers}}:
            self.wfile.write(words)
    do_POST = do_GET
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    handle_error = lambda *_: None
try:
    Server((sys.argv[1], int(sys.argv[2])), Answer).serve_forever()
except OSError:
    sys.exit(1)
"""


def scripts(port: int) -> dict[str, str]:
    """By their names; `port` is the service's."""
    return {"crash.sh": _SCRIPT.replace("@", str(port), 1), "crash.py": SERVER}
