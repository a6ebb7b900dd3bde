"""Replays recordings of a Spot market: what a policy would have served, and what it would have cost."""
