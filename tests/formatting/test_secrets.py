from __future__ import annotations

import pytest

from vanidl.formatting.secrets import MASK, masked

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


@pytest.mark.parametrize("unit", ["-token", "a-", "://@", "sk-", "token=", "a:", "'", "'\" "])
def test_long_words_take_their_length(unit: str) -> None:
    word = unit * (120_000 // len(unit))
    assert len(list(masked([word, f"--x={word}", f"{word} {word}"]))) == 3
