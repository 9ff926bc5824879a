"""Whether a value fits a column and stays what it is: for files, tables and databases alike."""
