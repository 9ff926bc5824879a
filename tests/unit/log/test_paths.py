"""Names on disk: every name of a user is one safe component, and comes back as it was."""

import pytest

from headrace.log import paths

DIGEST = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "name", ["a", "a/b", "..", ".hidden", "a b", "ä€𝄞", "x-y-z", "a\0b", "%2F"]
)
def test_a_users_name_is_one_visible_component_and_comes_back(name: str) -> None:
    component = paths.safe(name)
    assert "/" not in component and "\0" not in component and not component.startswith(".")
    assert paths.unsafe(component) == name


def test_a_content_name_tells_epoch_label_and_digest() -> None:
    name = paths.content_name(42, "Orders/3", DIGEST, ".arrow")
    assert paths.parse_content_name(name) == (42, "Orders/3", DIGEST)


@pytest.mark.parametrize(
    "name", ["", "x", f"42-a-{DIGEST}", f"{1:012d}-a-{DIGEST[:-1]}", f"{1:012d}-a-{DIGEST}.txt"]
)
def test_what_is_not_named_by_content_is_not_taken_for_it(name: str) -> None:
    with pytest.raises(ValueError, match="epoch-label-digest"):
        paths.parse_content_name(name)


def test_the_label_of_a_deep_path_still_makes_a_name_that_a_filesystem_takes(tmp_path) -> None:
    deep = "lines/" + "/".join(["größe " * 4] * 20) + "/file"
    first = paths.content_name(1, f"{deep}#00000", DIGEST)
    second = paths.content_name(1, f"{deep}#00001", DIGEST)
    assert first != second
    (tmp_path / f".{first}.0123456789ab.tmp").write_bytes(b"")
    assert paths.parse_content_name(first)[0] == 1


def test_log_positions_sort_by_name_and_fill_directories() -> None:
    assert paths.log_entry(999) < paths.log_entry(1000)
    assert paths.log_directory(999) != paths.log_directory(1000)


@pytest.mark.parametrize("suffix", ["", ".arrow", ".jsonl", ".csv.gz"])
def test_the_digest_of_a_name_is_found_whatever_its_suffix(suffix: str) -> None:
    digest = "0123456789abcdef0123456789abcdef"
    name = paths.content_name(7, "Count/0-1", digest, suffix)
    assert paths.digest_in(f"staged/a-b/day=2024-05-01/{name}") == digest


@pytest.mark.parametrize(
    "name", ["", "a", "a-0123", f"a-{'0' * 32}.TXT", f"a-{'0' * 31}g", "0" * 32]
)
def test_a_name_without_a_digest_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not named epoch-label-digest"):
        paths.digest_in(name)
