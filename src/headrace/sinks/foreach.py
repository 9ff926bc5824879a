"""`sinks.foreach`: calls a function of (DataFrame, epoch), for systems without a sink of their own.

The function is called at least once per epoch: after a crash between its return and the write of
the high-water mark, it is called again with the same epoch and the same rows. A function that
stores the epoch with its rows, in one transaction, makes the effect exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline, SinkError
from headrace.model.functions import checked_function
from headrace.model.sink import Delivery
from headrace.model.values.rows import Rows
from headrace.sinks.at_least_once import AtLeastOnceSink
from headrace.sinks.columns import as_batch, as_one_table, check_schema


def foreach(
    fn: Callable[[Any, int], object],
    *,
    schema: pa.Schema | None = None,
    timestamp: str | None = None,
    sql: str | None = None,
) -> Foreach:
    """Calls `fn(rows, epoch)` on the driver, after the epoch's commit, in order of epochs.

    `rows` is a Spark DataFrame, or a pyarrow Table where the pipeline runs without
    Spark; epochs without rows are skipped. A crash may call `fn` again with the same
    epoch and the same rows. Columns are the stream's, or inferred from its dicts per
    epoch, or those of `schema`; `timestamp` names one for the record's own timestamp. An
    inferred column whose cells have no common type becomes text: each cell as JSON.
    `sql="SELECT user, count(*) FROM {stream} GROUP BY user"` runs Spark SQL over the epoch's rows;
    the function then gets its result instead of the rows. It needs Spark.
    """
    return Foreach(fn, schema=schema, timestamp=timestamp, sql=sql)


class Foreach(AtLeastOnceSink):
    """The sink behind `foreach`."""

    def __init__(
        self,
        fn: Callable[[Any, int], object],
        *,
        schema: pa.Schema | None = None,
        timestamp: str | None = None,
        sql: str | None = None,
    ) -> None:
        checked_function(fn, "foreach", "rows", "epoch")
        check_schema(schema, what="foreach")
        if sql is not None and "{stream}" not in sql:
            raise InvalidPipeline(
                'foreach: sql= names the rows of the epoch: "SELECT ... FROM {stream}"'
            )
        self.sql = sql
        self.name = getattr(fn, "__qualname__", type(fn).__qualname__)
        self.schema = schema
        self.timestamp = timestamp
        self._fn: Callable[[Any, int], object] | None = fn

    def __getstate__(self) -> dict[str, Any]:
        # Executors only encode, and the function may hold what cannot be pickled, such as a lock.
        return {**self.__dict__, "_fn": None, "_mark": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Foreach:
        return self

    def __copy__(self) -> Foreach:
        return self

    def encode(self, rows: Rows) -> bytes:
        if len(rows):  # refuse rows that cannot become a table before they are committed
            as_batch(rows, timestamp=self.timestamp, schema=self.schema, mixed=True)
        return super().encode(rows)

    def deliver(self, delivery: Delivery) -> None:
        if self.sql is not None and delivery.spark is None:
            raise SinkError(f"foreach({self.name}): sql= needs Spark, but this run has no Spark")
        super().deliver(delivery)

    def hand_over(self, parts: Sequence[Rows], delivery: Delivery) -> None:
        if self._fn is None:
            raise SinkError(f"foreach({self.name}) was pickled: only the driver can deliver")
        rows: Any = as_one_table(parts, timestamp=self.timestamp, schema=self.schema)
        doing = "its rows cannot become a Spark DataFrame"
        try:
            if delivery.spark is not None:
                rows = delivery.spark.createDataFrame(rows)
            if self.sql is not None:
                doing = "its query failed"
                rows = delivery.spark.sql(self.sql, stream=rows)
            doing = "the function raised"
            self._fn(rows, delivery.epoch)
        except Exception as error:
            raise SinkError(
                f"foreach({self.name}), epoch {delivery.epoch}: {doing}: "
                f"{type(error).__name__}: {error}. The epoch is committed; start again, and "
                "it is delivered again with the same rows"
            ) from error
