"""The local cloud: an AWS on this machine that really runs the stack, Spot market and all.

MiniStack serves the AWS APIs; what it lacks and SpotRelay needs is ours: a Spot market, instances that are
processes, a load balancer in front of them, warnings and reclaims. Start it with `python -m lab.local`,
drive it from scripts with `lab.local.client`. Where it guesses, it is our emulation and not AWS's word.
"""
