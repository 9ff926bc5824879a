"""Starts a pipeline on Spark: in this thread, in the background, or beside code that runs.

Apart from `Pipeline`, because a user's module imports that, and every Python worker loads the
user's module: it need not wait for the imports of a driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.engine.commands import Remote
from headrace.engine.deploy.candidate import DeployOptions, prepare
from headrace.engine.deploy.room import require_room
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.keeping import require_interval
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.job import Job
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.engine.leading.signals import graceful_stop
from headrace.engine.notebook import with_notebook_view
from headrace.engine.spark.session import local_session
from headrace.engine.spark.substrate import SparkSubstrate, runs_user_code_while_reading
from headrace.engine.spark.warm_up import warm, warm_beside
from headrace.failpoints import arm_from_environment
from headrace.pipeline.graph.topology import Topology
from headrace.plan.control import DEPLOY
from headrace.plan.deploy.code import arguments_of
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options, RunOptions, check_options
from headrace.plan.progress import RunSummary
from headrace.state.backends.opening import opener_of
from headrace.state.cache import WorkerCache
from headrace.store.asking import require_exact_puts
from headrace.store.location import checkpoint_store
from headrace.store.store import Store
from headrace.worker.runtime import Runtime

Place = str | os.PathLike[str] | Store
"""Where a checkpoint is."""
Freeze = Callable[[], Topology]
"""Checks the graph; called when the options are known to be right."""


def run_here(freeze: Freeze, checkpoint: Place, spark: Any, options: RunOptions) -> RunSummary:
    """Runs in this thread until the end."""
    checked = check_options(with_notebook_view(options))
    follower = _follower(freeze(), checkpoint, spark, checked)
    control = RunControl()
    with graceful_stop(control.stopping.set):
        return run_loop(follower, control, _warm_up(follower))


def start_beside(freeze: Freeze, checkpoint: Place, spark: Any, options: RunOptions) -> Job:
    """Runs in the background."""
    checked = check_options(with_notebook_view(options))
    follower = _follower(freeze(), checkpoint, spark, checked)
    return Job(follower, _warm_up(follower))


def deploy_to(
    freeze: Freeze,
    checkpoint: Place,
    spark: Any,
    chosen: DeployOptions,
    options: RunOptions,
) -> Job:
    """Puts code in force on a checkpoint where other code of the pipeline runs."""
    run = check_options(options)
    topology, store = freeze(), checkpoint_store(checkpoint)
    require_exact_puts(store)
    remote = Remote(store)
    remote.require_running(DEPLOY)
    wish = prepare(_beside(topology, store, run), chosen)
    started = spark() if callable(spark) else spark or local_session()
    require_room(started)
    follower = _follower(topology, store, started, run)
    follower.follow()
    if isinstance(follower.substrate, SparkSubstrate):
        warm_beside(follower, follower.substrate, run.slots)
    remote.ask(DEPLOY, arguments_of(wish), expires_s=chosen.expires_s, done=False)
    return Job(follower, _warm_up(follower), wish.candidate)


def _warm_up(follower: Follower) -> Callable[[], None]:
    """Keeps Spark warm for a standby."""
    substrate, options = follower.substrate, follower.setup.options
    if not isinstance(substrate, SparkSubstrate):
        return lambda: None
    return lambda: warm(follower, substrate, options.slots)


def _follower(topology: Topology, checkpoint: Place, spark: Any, options: Options) -> Follower:
    arm_from_environment()
    store = checkpoint_store(checkpoint)
    require_interval(topology, store, options.checkpoint_every)
    require_exact_puts(store)
    substrate = SparkSubstrate(
        spark or local_session(),
        topology,
        store,
        replicas=options.replicas,
        epoch_timeout_s=options.epoch_timeout_s,
        local_cache_bytes=options.local_cache_bytes,
        state=options.state,
    )
    try:
        require_interval(topology, store, options.checkpoint_every, substrate)
    except BaseException:
        substrate.close()
        raise
    if not _may_read_itself(topology):
        options = msgspec.structs.replace(options, short_records_max=0)
    opens = opener_of(options.state, store)
    mark = fingerprint(topology.graph)
    return Follower(Setup(topology, mark, store, substrate, options, opens=opens))


def _beside(topology: Topology, store: Store, options: Options) -> Follower:
    """A follower that checks and never leads: it has no Spark."""
    opens = opener_of(options.state, store)
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache(), opens))
    mark = fingerprint(topology.graph)
    return Follower(Setup(topology, mark, store, substrate, options, opens=opens))


def _may_read_itself(topology: Topology) -> bool:
    """Whether the driver may read and route small epochs, as Spark's workers would.

    The order of a set depends on the hash seed, which only Spark's workers fix: a driver with a
    random seed does not run computations. It also runs none with a timeout, because only a worker
    that hangs can be ended.
    """
    if not runs_user_code_while_reading(topology):
        return True
    return not sys.flags.hash_randomization and not any(n.timeout_us for n in topology.fused)
