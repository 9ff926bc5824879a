"""DataFrames as sources, spooled as Parquet files of our own."""
