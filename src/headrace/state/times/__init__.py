"""Timed cells of a slot (timers, holds, waiting records): found by time, in bounded memory."""
