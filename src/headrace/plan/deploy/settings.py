"""How long a deploy is on probation, unless its user says otherwise."""

from __future__ import annotations

CONFIRM_AFTER = 3
"""In which of its commits a deploy is confirmed."""
PROBATION_S = 60.0
"""How long the guard waits for a sign of progress."""
