"""Kafka as a source: partitions are splits, offsets are positions, brokers keep the records."""
