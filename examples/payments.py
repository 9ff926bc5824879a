"""Joins: which orders are paid within an hour, at which price, and which are not.

    python examples/payments.py

Orders and payments come out of order and are joined by time. Each order gets the
price that its product had at that moment, and the product's name from a table.
Results appear in out/paid, the state lies in out/paid_state.
"""

import msgspec

from headrace import Pipeline, interval, sinks, sources

MINUTE = 60 * 1_000_000


class Order(msgspec.Struct):
    order: str
    product: str
    ordered: int


class Payment(msgspec.Struct):
    order: str
    paid: int


class Price(msgspec.Struct):
    product: str
    since: int
    cents: int


ORDERS = [Order("o1", "tea", 10 * MINUTE), Order("o2", "tea", 25 * MINUTE),
          Order("o3", "salt", 20 * MINUTE)]  # fmt: skip
PAYMENTS = [Payment("o2", 30 * MINUTE), Payment("o1", 12 * MINUTE)]
PRICES = [Price("tea", 0, 250), Price("salt", 0, 90), Price("tea", 20 * MINUTE, 270)]
NAMES = {"tea": {"name": "Black tea"}, "salt": {"name": "Sea salt"}}


def pipeline() -> Pipeline:
    p = Pipeline("payments")
    late = {"lateness": "30m"}
    orders = p.read("orders", sources.memory(ORDERS, timestamp="ordered", **late), schema=Order)
    payments = p.read(
        "payments", sources.memory(PAYMENTS, timestamp="paid", **late), schema=Payment
    )
    prices = p.read("prices", sources.memory(PRICES, timestamp="since"), schema=Price)
    (
        orders.key_by("product")
        .join_asof(prices.key_by("product"))
        .lookup(NAMES, on="product")
        .key_by("order")
        .join(payments.key_by("order"), within=interval("0s", "1h"), how="left")
        .named("paid")
        .write(sinks.jsonl("out/paid"))
    )
    return p


if __name__ == "__main__":
    print(pipeline().run(checkpoint="out/paid_state"))
