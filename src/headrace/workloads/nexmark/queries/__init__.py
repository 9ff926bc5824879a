"""The queries of Nexmark, one file each; `headrace.workloads.nexmark.registry` lists them."""
