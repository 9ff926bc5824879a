"""Values of records: their bytes, kinds and order, keys, columns, schemas, times and names."""
