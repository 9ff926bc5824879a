"""The example of joins: what it says, without Spark; on Spark it runs in tests/spark."""

import importlib.util
from pathlib import Path
from types import ModuleType

from headrace.testing import Harness

ROOT = Path(__file__).parent.parent.parent


def example() -> ModuleType:
    path = ROOT / "examples" / "payments.py"
    spec = importlib.util.spec_from_file_location("payments_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_order_comes_out_once_with_its_price_its_name_and_its_payment() -> None:
    module = example()
    with Harness(module.pipeline()) as h:
        h.send("prices", *module.PRICES)
        h.send("orders", *module.ORDERS)
        h.send("payments", *module.PAYMENTS)
        h.end()
        found = {v["order"]: v for v in h.read("paid")}
    assert {o: (v["name"], v["cents"]) for o, v in found.items()} == {
        "o1": ("Black tea", 250),
        "o2": ("Black tea", 270),
        "o3": ("Sea salt", 90),
    }
    assert {o: v["paid"] for o, v in found.items()} == {
        "o1": 12 * module.MINUTE,
        "o2": 30 * module.MINUTE,
        "o3": None,
    }
