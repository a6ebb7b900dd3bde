"""The loop: events and ticks in, decisions carried out in order through the ports."""
