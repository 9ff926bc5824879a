"""All rows, in the order of the papers, and those that are owed."""

from __future__ import annotations

from headrace.bench.papers.clonos.clock import CLONOS_42, CLONOS_75
from headrace.bench.papers.clonos.kills import CLONOS_6
from headrace.bench.papers.clonos.queries import CLONOS_5
from headrace.bench.papers.floe.balancing import FLOE_6A, FLOE_6B, FLOE_6C
from headrace.bench.papers.floe.checkpoints import FLOE_7
from headrace.bench.papers.floe.failures import FLOE_8A, FLOE_8B
from headrace.bench.papers.floe.replicas import FLOE_5
from headrace.bench.papers.millwheel.cache import MILLWHEEL_16
from headrace.bench.papers.millwheel.intervals import MILLWHEEL_72
from headrace.bench.papers.millwheel.latency import MILLWHEEL_13
from headrace.bench.papers.millwheel.scale_out import MILLWHEEL_14
from headrace.bench.papers.millwheel.straggler import MILLWHEEL_11
from headrace.bench.papers.millwheel.watermarks import MILLWHEEL_15
from headrace.bench.papers.row import PaperRow
from headrace.bench.papers.s4.disk import S4_42, S4_T51
from headrace.bench.papers.s4.stores import S4_41, S4_45, S4_46, S4_47, S4_51
from headrace.bench.papers.seep.intervals import SEEP_12, SEEP_13, SEEP_15
from headrace.bench.papers.seep.replay import SEEP_11
from headrace.bench.papers.seep.roads import SEEP_6, SEEP_7
from headrace.bench.papers.seep.scaling import SEEP_9, SEEP_10
from headrace.bench.papers.seep.shedding import SEEP_8
from headrace.bench.papers.seep.state_size import SEEP_14
from headrace.errors import HeadraceError

ROWS: dict[str, PaperRow] = {
    row.id: row
    for row in (
        MILLWHEEL_13, MILLWHEEL_14, MILLWHEEL_15, MILLWHEEL_16, MILLWHEEL_11, MILLWHEEL_72,
        SEEP_6, SEEP_7, SEEP_8, SEEP_9, SEEP_10, SEEP_11, SEEP_12, SEEP_15, SEEP_13, SEEP_14,
        FLOE_5, FLOE_6A, FLOE_6B, FLOE_6C, FLOE_7, FLOE_8A, FLOE_8B,
        CLONOS_5, CLONOS_6, CLONOS_75, CLONOS_42,
        S4_41, S4_42, S4_45, S4_46, S4_47, S4_51, S4_T51,
    )
}  # fmt: skip


def row_of(name: str) -> PaperRow:
    """The row with an id."""
    if name not in ROWS:
        raise HeadraceError(f"there is no row {name!r}; there are {', '.join(ROWS)}")
    return ROWS[name]
