"""Kafka as a sink: an epoch is one transaction, and the transaction says which epoch it was."""
