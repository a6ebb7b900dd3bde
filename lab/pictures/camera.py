"""Takes pictures of a deployment: its board and what commands print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from playwright.sync_api import Browser

from lab.demo.operator import Operator
from lab.pictures import board, files, terminal
from lab.pictures.account import CloudAccount


class Camera:
    """Of what happens from its making on."""

    def __init__(self, chrome: Browser, operator: Operator, env: Mapping[str, str]) -> None:
        self._chrome = chrome
        self._operator = operator
        self._env = env
        self._since = datetime.now(UTC)

    def board(self, picture: str, name: str, service: str = "") -> None:
        """A dashboard of the account, of the time since the camera is there, with this service chosen."""
        session = self._operator.session
        body = json.loads(session.client("cloudwatch").get_dashboard(DashboardName=name)["DashboardBody"])
        shown = board.Shown(
            name,
            board.chosen(body, service) if service else body,
            CloudAccount(session),
            self._since,
            datetime.now(UTC),
        )
        photograph(self._chrome, board.page(shown), picture)

    def terminal(self, picture: str, command: Sequence[str], columns: int) -> None:
        """What a command prints on a terminal so wide."""
        said = terminal.output(command, self._env, columns)
        files.svg(picture, terminal.picture(command, said, columns))


def photograph(chrome: Browser, html: str, picture: str) -> None:
    """A page that needs nothing else, as a picture."""
    context = chrome.new_context(viewport={"width": board.WIDTH, "height": 800})
    shown = context.new_page()
    shown.set_content(html)
    files.png(picture, shown.screenshot(full_page=True))
    context.close()
