"""`headrace bench kafka`: from topic to topic, beside files and beside Structured Streaming."""
