"""What servers answer, as sentences: one for each cause, and never a secret."""

import pytest

from headrace.store.client.refusals import cleaned, refusal_of
from headrace.store.url import parse_url

URL = parse_url("s3://bucket/x?region=eu-west-1&endpoint=https://s3.example")
SIGNED = "AWS4-HMAC-SHA256&#10;20260101T000000Z"


def answer(status: int, code: str, message: str = "", more: str = "") -> Exception:
    return Exception(
        f"Generic S3 error: Error performing PUT https://s3.example/bucket/x/a in 1.2ms - Server "
        f'returned non-2xx status code: {status} X: <?xml version="1.0"?><Error><Code>{code}'
        f"</Code><Message>{message}</Message>{more}</Error>"
    )


CAUSES = {
    "credentials": [
        answer(403, "InvalidAccessKeyId", "The AWS Access Key Id does not exist"),
        answer(403, "SignatureDoesNotMatch"),
        answer(400, "ExpiredToken"),
        Exception("Server returned non-2xx status code: 401 Unauthorized: "),
        Exception("error sending request for url (http://169.254.169.254/latest/api/token)"),
    ],
    "permission": [answer(403, "AccessDenied"), answer(403, "AllAccessDisabled")],
    "bucket": [answer(404, "NoSuchBucket"), answer(404, "ContainerNotFound")],
    "region": [
        answer(400, "AuthorizationHeaderMalformed", "the region is wrong; expecting 'us-west-2'"),
        answer(301, "PermanentRedirect"),
        Exception("Received redirect without LOCATION, ... incorrectly configured region"),
    ],
    "clock": [answer(403, "RequestTimeTooSkewed")],
    "endpoint": [
        Exception("HTTP error: error trying to connect: tcp connect error: Connection refused"),
        Exception("error sending request: dns error: failed to lookup address information"),
    ],
    "tls": [Exception("error trying to connect: invalid peer certificate: UnknownIssuer")],
    "busy": [answer(503, "SlowDown"), Exception("non-2xx status code: 429 Too Many Requests: ")],
    "time-out": [Exception("HTTP error: operation timed out")],
    "other": [
        Exception("Server returned non-2xx status code: 500 Internal Server Error: "),
        answer(409, "ConditionalRequestConflict"),
        answer(400, "InvalidRequest", "bad"),
        Exception("something else"),
        Exception(
            "HTTP error: error sending request\n\nDebug source: kind: Interrupted, Incomplete"
        ),
    ],
}


@pytest.mark.parametrize(
    ("kind", "error"), [(kind, each) for kind, errors in CAUSES.items() for each in errors]
)
def test_every_cause_is_recognised(kind: str, error: Exception) -> None:
    assert refusal_of(error, URL).kind == kind


def test_sentences_say_what_to_do() -> None:
    said = {kind: refusal_of(errors[0], URL).sentence for kind, errors in CAUSES.items()}
    assert "AWS_ACCESS_KEY_ID" in said["credentials"] and "~/.aws" in said["credentials"]
    assert said["region"].endswith("not in region eu-west-1: add the option region=us-west-2")
    assert "there is no bucket 'bucket'" in said["bucket"]
    assert "clock" in said["clock"] and "ca_file=" in said["tls"]
    assert "https://s3.example" in said["endpoint"]
    assert all("\n" not in each and len(each) < 400 for each in said.values())


def test_only_what_the_server_surely_did_not_do_is_certain() -> None:
    uncertain = {"busy", "time-out"}
    for kind, errors in CAUSES.items():
        for error in errors:
            found = refusal_of(error, URL)
            if kind in uncertain:
                assert not found.certain and found.passing
            elif kind != "other":
                assert found.certain
    for status in (500, 502, 504, 408, 409):
        found = refusal_of(Exception(f"non-2xx status code: {status} X: "), URL)
        assert found.passing and not found.certain
    assert refusal_of(answer(400, "InvalidRequest"), URL).certain
    broken = refusal_of(CAUSES["other"][-1], URL)
    assert broken.sentence == "the connection to https://s3.example was broken"
    assert broken.passing and not broken.certain


def test_an_answer_that_repeats_the_signed_request_is_not_shown() -> None:
    more = (
        f"<AWSAccessKeyId>AKIAIOSFODNN7EXAMPLE</AWSAccessKeyId><StringToSign>{SIGNED}"
        "</StringToSign><SignatureProvided>bXlzaWduYXR1cmVteXNpZ25hdHVyZQ==</SignatureProvided>"
        "<CanonicalRequest>GET / x-amz-security-token:FwoGZXIvYXdzEXAMPLE</CanonicalRequest>"
    )
    for error in (
        answer(403, "SignatureDoesNotMatch", "The request signature does not match", more),
        answer(400, "Odd", "token FwoGZXIvYXdzEXAMPLEFwoGZXIv is odd", more),
        answer(418, "Odd", "", more),
    ):
        said = refusal_of(error, URL).sentence
        for part in ("AKIA", "AWS4-HMAC", "bXlz", "FwoG"):
            assert part not in said


def test_long_words_and_queries_are_removed() -> None:
    assert cleaned("see https://h/x?sig=abc&se=1 now") == "see https://h/x now"
    assert cleaned("key A" + "b" * 40 + " end") == "key … end"
