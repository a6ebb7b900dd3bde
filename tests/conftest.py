"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test is judged by its speed: on a busy machine one example may take a second. The rest stays as
# Hypothesis has it, which differs where CI is set.
settings.register_profile(
    "spotrelay", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("spotrelay")
