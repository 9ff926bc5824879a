"""Schedules of deploys: candidates, guards and standbys of several codes over one checkpoint."""
