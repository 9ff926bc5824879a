"""`headrace cluster`: a standalone cluster of Spark on this machine, for trying out."""
