"""The local page: what the commands print, live, in a browser. Read-only, on loopback."""
