"""State on HBase: the backend, the columns of a row, the table, and the protocol below it."""
