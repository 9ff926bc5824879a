"""Requests are counted by thread and purpose."""

from concurrent.futures import ThreadPoolExecutor

from headrace.store.counts import LEASE, MERGES, PATH, RequestCounter, RequestCounts, counted_as


def test_a_purpose_belongs_to_a_thread_and_ends_with_its_block() -> None:
    counter = RequestCounter()

    def ask() -> None:
        counter.get(5)

    with ThreadPoolExecutor(1) as pool:
        with counted_as(LEASE):
            ask()
            pool.submit(ask).result()
            try:
                with counted_as(MERGES):
                    ask()
                    raise ValueError
            except ValueError:
                ask()
    ask()
    found = counter.so_far()
    assert {purpose: counts.gets for purpose, counts in found.items()} == {
        LEASE: 2, MERGES: 1, PATH: 2
    }  # fmt: skip
    assert found[LEASE].bytes_in == 10


def test_threads_lose_no_count() -> None:
    counter = RequestCounter()

    def work(_: int) -> None:
        for _ in range(500):
            counter.put(2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counter.so_far()[PATH] == RequestCounts(puts=4000, bytes_out=8000)


def test_long_listings_take_several_requests() -> None:
    counter = RequestCounter()
    for names in (0, 1, 1000, 1001):
        counter.list(names)
    assert counter.so_far()[PATH].lists == 5


def test_counts_add_and_subtract() -> None:
    a, b = RequestCounts(1, 2, 3, 4, 5, 6), RequestCounts(1, 1, 1, 1, 1, 1)
    assert a - b == RequestCounts(0, 1, 2, 3, 4, 5) and a - b + b == a
    assert a.requests == 10
