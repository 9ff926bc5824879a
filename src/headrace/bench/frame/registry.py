"""Maps the name of each measured system to its module.

A module is imported only when its system is measured: a process that measures one system must not
pay for loading the others, and only the peers need the `bench` extra.
"""

from __future__ import annotations

from headrace.bench.frame.system import MeasuredSystem
from headrace.errors import HeadraceError


def load_system(name: str) -> MeasuredSystem:
    """Import the system called `name`."""
    match name:
        case "headrace":
            from headrace.bench.ours import KEYED_COUNT

            return KEYED_COUNT
        case "headrace-trivial":
            from headrace.bench.ours import TRIVIAL

            return TRIVIAL
        case "spark-native":
            from headrace.bench.peers.spark_native import SPARK_NATIVE

            return SPARK_NATIVE
        case "spark-native-windows":
            from headrace.bench.peers.spark_windows import SPARK_WINDOWS

            return SPARK_WINDOWS
        case "spark-tws-pandas-windows":
            from headrace.bench.peers.spark_tws_windows import SPARK_TWS_WINDOWS

            return SPARK_TWS_WINDOWS
        case "spark-tws-row-windows":
            from headrace.bench.peers.spark_tws_windows import SPARK_TWS_ROW_WINDOWS

            return SPARK_TWS_ROW_WINDOWS
        case "spark-tws":
            from headrace.bench.peers.spark_tws import SPARK_TWS

            return SPARK_TWS
        case "spark-tws-row":
            from headrace.bench.peers.spark_tws_row import SPARK_TWS_ROW

            return SPARK_TWS_ROW
        case "spark-native-nexmark":
            from headrace.bench.nexmark.spark_native import SPARK_NEXMARK

            return SPARK_NEXMARK
        case "spark-tws-nexmark":
            from headrace.bench.nexmark.spark_tws import TWS_NEXMARK

            return TWS_NEXMARK
        case "spark-tws-pandas-nexmark":
            from headrace.bench.nexmark.spark_tws_pandas import TWS_PANDAS_NEXMARK

            return TWS_PANDAS_NEXMARK
        case "bytewax":
            from headrace.bench.peers.foreign.system import BYTEWAX_PEER

            return BYTEWAX_PEER
        case "pyflink":
            from headrace.bench.peers.foreign.system import PYFLINK_PEER

            return PYFLINK_PEER
        case "spark-bare":
            from headrace.bench.peers.spark_bare import SPARK_BARE

            return SPARK_BARE
        case "spark-bare-one-stage":
            from headrace.bench.peers.spark_bare import SPARK_BARE_ONE_STAGE

            return SPARK_BARE_ONE_STAGE
        case "services":
            from headrace.bench.services import SERVICE_CALLS

            return SERVICE_CALLS
        case "disk" | "s3":
            from headrace.bench.on_store import SYSTEMS as ON_STORES

            return ON_STORES[name]
        case "headrace-rescale":
            from headrace.bench.elastic.ours import RESCALED_COUNT

            return RESCALED_COUNT
        case "headrace-deploy":
            from headrace.bench.elastic.deployed import DEPLOYED_COUNT

            return DEPLOYED_COUNT
        case "spark-repartition":
            from headrace.bench.peers.spark_repartition import SPARK_REPARTITIONED

            return SPARK_REPARTITIONED
    raise HeadraceError(
        f"no system is registered as {name!r}; add it to headrace.bench.frame.registry"
    )
