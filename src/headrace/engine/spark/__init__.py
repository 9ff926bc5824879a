"""Everything that the engine knows about Spark. No other part of the engine imports pyspark."""
