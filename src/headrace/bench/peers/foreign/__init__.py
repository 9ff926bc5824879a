"""Peers that live in environments of their own: Bytewax and PyFlink.

Each is a program (`bytewax_program`, `pyflink_program`) that imports nothing of this project. It
runs in a virtual environment that the benchmark makes on first use (`environments`), reads the same
input files, and writes its results and its times to files (`system`).
"""
