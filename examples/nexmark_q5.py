"""Nexmark query 5: the auctions with the most bids in the last ten seconds, every two seconds.

    python examples/nexmark_q5.py

Bids are counted per auction in hopping windows, and the busiest of each window is chosen;
with `ties=True` all that share the first place. The bids are made here, from a fixed seed.
"""

import random

from headrace import SECOND, Pipeline, hopping, same_window, sinks, sources


def bids(seconds: int = 30, per_second: int = 20) -> list[dict[str, int]]:
    dice = random.Random(5)
    return [
        {"auction": dice.randrange(second // 5, second // 5 + 8), "at": second * SECOND + i}
        for second in range(seconds)
        for i in range(per_second)
    ]


p = Pipeline("nexmark-q5")
(
    p.read("bids", sources.memory(bids(), timestamp="at"))
    .key_by("auction")
    .window(hopping("10s", every="2s"))
    .count("num")
    .named("counts")
    .key_by()
    .window(same_window())
    .top(1, by="num", ties=True)
    .named("hot")
    .write(sinks.jsonl("out/q5"))
)

if __name__ == "__main__":
    print(p.run(checkpoint="out/q5_state"))
