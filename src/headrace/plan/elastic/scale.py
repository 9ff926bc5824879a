"""Figures on a logarithmic scale: sixteen steps to an octave, in integers.

A measured figure becomes a *step* when the driver writes it down (K3). Steps are small integers, so
they are short in a commit, and two steps say by which factor two figures differ. All arithmetic is
in integers: every driver that reads the same step computes the same figure.
"""

from __future__ import annotations

STEPS_PER_OCTAVE = 16
EIGHTH = 3
"""Figures that differ by more than an eighth are at least this many steps apart."""

# 2 ** (i / 16), times 2**32, as integers: no power function of a platform is used.
_FRACTIONS = (
    4294967296, 4485121744, 4683695048, 4891059943, 5107605667, 5333738689, 5569883475, 5816483285,
    6074001000, 6342919999, 6623745059, 6917003306, 7223245206, 7543045592, 7877004752, 8225749546,
)  # fmt: skip


def step_of(figure: int) -> int:
    """The step of a figure; 0 for 0, and at least 1 for any other."""
    if figure <= 0:
        return 0
    # `figure_of` rises with the step, so the nearest step below is found from the octave up.
    octave = figure.bit_length() - 1
    step = 1 + octave * STEPS_PER_OCTAVE
    while figure_of(step + 1) <= figure:
        step += 1
    nearer_above = figure_of(step + 1) - figure < figure - figure_of(step)
    return step + nearer_above


def figure_of(step: int) -> int:
    """The figure of a step."""
    if step <= 0:
        return 0
    octave, fraction = divmod(step - 1, STEPS_PER_OCTAVE)
    return (_FRACTIONS[fraction] << octave) >> 32


def differs(one: int, other: int) -> bool:
    """Whether the figures of two steps differ by more than an eighth."""
    return abs(one - other) >= EIGHTH
