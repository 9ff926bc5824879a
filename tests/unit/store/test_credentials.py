"""The chain of credentials for S3, as the AWS tools walk it; nothing of it is ever shown."""

import pickle
from pathlib import Path

import pytest

from headrace import InvalidPipeline
from headrace.store.client.credentials import aws_settings
from headrace.store.url import parse_url

SECRET = "wJalrXUtnFEMI/K7MDENG"
KEYS = {"access_key_id": "AKIA1", "secret_access_key": SECRET}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "# comment\n"
        "[default]\naws_access_key_id = AKIA0\naws_secret_access_key = s0\n"
        f"[work]\naws_access_key_id=AKIA1\naws_secret_access_key={SECRET}\n"
        "[short]\naws_access_key_id=A\naws_secret_access_key=%(b)s\naws_session_token=t\n"
        "[half]\naws_access_key_id=A\n"
    )
    (tmp_path / ".aws/config").write_text(
        "[default]\nregion = eu-west-1\n"
        "[profile work]\nregion = eu-central-1\nendpoint_url = https://s3.example\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = work\n"
        "[profile sso]\nsso_session = corp\nregion=us-west-2\n"
        "[profile process]\ncredential_process = /bin/give\n"
        "[profile empty]\nregion = us-west-1\n"
    )
    return tmp_path


def settings(home: Path, url: str = "s3://b/x", **env: str):
    return aws_settings(parse_url(url), {"HOME": str(home), **env})


def test_keys_of_the_environment_come_first_and_are_left_to_the_client(home: Path) -> None:
    found = settings(home, AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s", AWS_REGION="r")
    assert (found.keys, found.provider, found.region) == ({}, None, "r")


def test_a_profile_that_the_url_names_comes_before_the_environment(home: Path) -> None:
    found = settings(home, "s3://b/x?profile=work", AWS_ACCESS_KEY_ID="k")
    assert found.keys == KEYS


def test_the_default_profile_is_read_without_a_name(home: Path) -> None:
    found = settings(home)
    assert found.keys == {"access_key_id": "AKIA0", "secret_access_key": "s0"}
    assert found.region == "eu-west-1"


def test_a_named_profile_gives_keys_region_and_endpoint(home: Path) -> None:
    found = settings(home, AWS_PROFILE="work")
    assert found.keys == KEYS
    assert (found.region, found.endpoint) == ("eu-central-1", "https://s3.example")
    other = settings(home, AWS_PROFILE="work", AWS_REGION="r", AWS_ENDPOINT_URL_S3="https://e")
    assert (other.region, other.endpoint) == ("r", "https://e")


def test_a_session_token_is_read_and_percent_signs_are_plain_text(home: Path) -> None:
    found = settings(home, AWS_PROFILE="short").keys
    assert found["session_token"] == "t" and found["secret_access_key"] == "%(b)s"


def test_files_elsewhere_are_found(home: Path, tmp_path: Path) -> None:
    (home / ".aws/credentials").rename(tmp_path / "c")
    found = settings(home, AWS_PROFILE="work", AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "c"))
    assert found.keys == KEYS


def test_web_identity_is_left_to_the_client(home: Path) -> None:
    assert settings(home, AWS_WEB_IDENTITY_TOKEN_FILE="/t", AWS_ROLE_ARN="arn").keys == {}


def test_without_files_the_client_finds_what_there_is(tmp_path: Path) -> None:
    found = settings(tmp_path / "none")
    assert (found.keys, found.provider, found.region) == ({}, None, "")


@pytest.mark.parametrize("name", ["role", "sso", "process"])
def test_a_profile_that_asks_a_service_needs_boto3(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(InvalidPipeline, match=f"profile '{name}' .*pip install boto3"):
        settings(home, AWS_PROFILE=name)


def test_a_profile_without_anything_is_refused(home: Path) -> None:
    with pytest.raises(InvalidPipeline, match="neither keys nor a role"):
        settings(home, AWS_PROFILE="empty")
    with pytest.raises(InvalidPipeline, match="no aws_secret_access_key"):
        settings(home, AWS_PROFILE="half")
    with pytest.raises(InvalidPipeline, match="there is no profile 'nobody'"):
        settings(home, "s3://b/x?profile=nobody")


def test_a_file_that_cannot_be_parsed_is_not_shown(home: Path) -> None:
    (home / ".aws/credentials").write_text(f"aws_secret_access_key = {SECRET}\n")
    with pytest.raises(InvalidPipeline, match="cannot be read") as caught:
        settings(home)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_keys_are_in_no_repr_pickle_or_location(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    from headrace.store.objects import ObjectStore

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_PROFILE", "work")
    store = ObjectStore("s3://b/x")
    assert SECRET not in repr(settings(home, AWS_PROFILE="work"))
    assert store.location == "s3://b/x?endpoint=https://s3.example&region=eu-central-1"
    for shown in (repr(store), store.location, store.where("a"), repr(pickle.dumps(store))):
        assert SECRET not in shown and "AKIA" not in shown
