"""The interface with which users build a graph: `Pipeline`, `Stream` and their steps."""
