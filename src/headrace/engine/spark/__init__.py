"""All that the engine knows of Spark. No other part of the engine imports pyspark."""
