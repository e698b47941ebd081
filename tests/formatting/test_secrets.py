from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers.canaries import NAMES, Canaries
from vanidl.formatting import secret_shapes
from vanidl.formatting.from_logs import clean_path
from vanidl.formatting.secret_hints import MASK
from vanidl.formatting.secrets import is_secret_name, masked, masked_path, masked_text

SECRET = "Zq7vB2kzW9pLm4Xt8RcY1nHs"


@pytest.mark.parametrize(
    "words",
    [
        ["--token", SECRET], ["--password=" + SECRET], ["-password", SECRET],
        ["--api-key", SECRET], ["--hf_token=" + SECRET], ["WANDB_API_KEY=" + SECRET],
        ["AWS_SECRET_ACCESS_KEY=" + SECRET], ["model.auth.token=" + SECRET],
        ["sk-" + SECRET], ["sk-proj-" + SECRET], ["ghp_" + SECRET], ["--x=hf_" + SECRET],
        ["AKIA" + SECRET[:16].upper()], ["--id=AKIA" + SECRET[:16].upper()],
        ["postgresql://alice:" + SECRET + "@db/x"], ["https://" + SECRET + "@github.com/a/b"],
        ["https://h/x?X-Amz-Signature=" + SECRET + "&a=1"], ["s3://b/c?token=" + SECRET],
        ["-H", "Authorization: Bearer " + SECRET], ["X-Api-Key: " + SECRET],
        ["bash", "-c", "python t.py --token " + SECRET], ["sh", "-c", "TOKEN=" + SECRET + " run"],
        ["bash", "-c", "curl --password '" + SECRET + "'"],
        ["mysql", "-u", "root", "-p" + SECRET, "db"], ["/usr/bin/mysqldump", "-p" + SECRET],
        ["sshpass", "-p", SECRET, "ssh", "h"], ["docker", "login", "-u", "a", "-p", SECRET],
        ["curl", "-u", "alice:" + SECRET, "h"], ["curl", "-ualice:" + SECRET],
        ["zip", "-P", SECRET],
        ["redis-cli", "-a", SECRET, "ping"], ["PGPASSWORD=" + SECRET], ["SSHPASS=" + SECRET],
        ["ldapsearch", "-x", "-w", SECRET], ["sh", "-c", "mysql -u root -p" + SECRET + " db"],
        ["bash", "-c", "python a.py && sshpass -p '" + SECRET + " b' ssh h"],
        ["-----BEGIN RSA PRIVATE KEY-----\n" + SECRET], ["eyJhbGciOiJ9." + SECRET + "." + SECRET],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_secret_is_masked(words: list[str]) -> None:
    public = list(masked(["python", "train.py", *words, "--lr", "0.1"]))
    assert public[:2] == ["python", "train.py"]
    assert public[-2:] == ["--lr", "0.1"]
    assert len(public) == len(words) + 4
    text = " ".join(public)
    assert MASK in text
    assert SECRET not in text
    assert SECRET[:16].upper() not in text


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--tokenizer", "bert", "--max-tokens", "512"],
        ["--pad-token", "<pad>", "--keys", "a,b", "--compass", "north", "--monkey", "x"],
        ["rsync", "host:/data", "https://host/x?page=1", "--key-dim", "4", "a@b"],
        ["ssh", "-p", "22", "h"],
        ["-p", "8888"],
        ["mkdir", "-p", "a/b"],
        ["mysql", "-p", "db"],
        ["docker", "run", "-p", "80:80", "x"],
        ["sh", "-c", "mkdir -p a && ssh -p 22 h"],
        ["curl", "-X", "PUT", "h"],
        ["unzip", "-o", "a.zip"],
        ["sh", "-c", "echo 'a  b'\n"],
        ["python", "-c", "print(1)", "--bypass", "yes", "--author", "x"],
    ],
    ids=" ".join,
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert list(masked(words)) == words


def test_the_option_after_a_bare_option_stays() -> None:
    assert list(masked(["--use-auth", "--lr", "1"])) == ["--use-auth", "--lr", "1"]


@pytest.mark.parametrize(
    "unit", ["-token", "a-", "auth-", "://@", "sk-", "token=", "a:", "'", "'\" "]
)
def test_long_words_take_their_length(unit: str) -> None:
    word = unit * (120_000 // len(unit))
    assert len(list(masked([word, f"--x={word}", f"{word} {word}"]))) == 3


FRAGMENTS = (
    "token", "TOKEN", "to\u212aen", "pa\u017fs", "s\u0131g", "pass", "pwd", "auth", "sig", "secret",
    "key", "api", "cookie", "bearer ", "a@b", "://", ":", "=", "-", "--", "/", " ", "'", '"', "\n",
    "3", "x", "mysql", "curl", "-p", "-u", "sk-", "ghp_", "hf_", "AKIA", "eyJ", "A" * 20,
    "Zq7vB2kz" * 3, "hooks.slack.com/services/", "%3D", "?", "&",
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
def test_a_glance_lets_nothing_pass_that_the_patterns_mask(text: str) -> None:
    assert masked_text(text) == secret_shapes.masked_text(text)
    assert list(masked(text.split(" "))) == list(secret_shapes.masked(text.split(" ")))
    assert is_secret_name(text) == secret_shapes.is_secret_name(text)
    assert masked_path(text) == secret_shapes.masked_path(text)


def test_a_glance_tells_most_texts_apart_without_the_patterns() -> None:
    """They take longer to compile than a small log to read."""
    code = (
        "import sys; from vanidl.formatting.secrets import masked, masked_text, masked_path\n"
        "masked(['python', 'train.py', '--lr', '0.1'])\n"
        "masked_text('ResNet 50'); masked_path('/a/b')\n"
        "sys.exit('vanidl.formatting.secret_shapes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("first", sorted(NAMES))
@pytest.mark.parametrize("second", sorted(NAMES))
def test_two_secrets_in_one_name_are_both_masked(first: str, second: str) -> None:
    """As Darshan's logs are named: USER_PROGRAM_id."""
    canaries = Canaries(7)
    name = f"{NAMES[first](canaries)}_{NAMES[second](canaries)}_id4711-100_1-1-1-1_1.darshan"
    shown = clean_path(f"/logs/{name}").lower()
    assert not [word for word in canaries.words if word.lower() in shown]
