"""Secrets as people write them, each known by a word that is found nowhere else."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from tests.anonymize.planted import CONSONANTS, Secrets

_RUN = re.compile(f"[{CONSONANTS}]{{8,}}")
Word = Callable[[], str]

COMMAND_WORDS: dict[str, Callable[[Word], list[str]]] = {
    "option=": lambda s: [f"--hf-token={s()}"],
    "option apart": lambda s: ["--password", s()],
    "option with underscore": lambda s: ["--api_key", s()],
    "single dash": lambda s: ["-password", s()],
    "camel case": lambda s: [f"--accessToken={s()}"],
    "numbered": lambda s: [f"--api-key-2={s()}"],
    "url": lambda s: [f"url=https://alice:{s()}@host/x"],
    "url with a user alone": lambda s: [f"https://{s()}@git.example/a.git"],
    "url with a slash": lambda s: [f"postgresql://alice:{s()}/{s()}@db/x"],
    "query": lambda s: [f"https://h/x?page=1&token={s()}&b=2"],
    "signed url": lambda s: [f"https://h/x?X-Amz-Credential={s()}&X-Amz-Signature={s()}"],
    "assignment": lambda s: [f"AWS_SECRET_ACCESS_KEY={s()}"],
    "assignment with slash": lambda s: [f"AWS_SECRET_ACCESS_KEY={s()}/{s()}+x"],
    "env -e": lambda s: ["-e", f"WANDB_API_KEY={s()}"],
    "hydra": lambda s: [f"+trainer.logger.api_key={s()}"],
    "dotted": lambda s: [f"model.auth.token={s()}"],
    "colon": lambda s: [f"--password:{s()}"],
    "json": lambda s: [f'--config={{"auth": {{"password": "{s()}", "b": 1}}}}'],
    "json apart": lambda s: ["--config", f'{{"db_password":"{s()}"}}'],
    "escaped json": lambda s: ["--config", f'{{\\"token\\": \\"{s()}\\"}}'],
    "dictionary": lambda s: [f"{{'api_key': '{s()}'}}"],
    "yaml": lambda s: [f"password: {s()}"],
    "header": lambda s: ["-H", f"Authorization: Bearer {s()}"],
    "basic header": lambda s: ["-H", f"Authorization: Basic {s()}=="],
    "key header": lambda s: ["-H", f"X-Api-Key: {s()}"],
    "cookie": lambda s: ["-b", f"Cookie: session={s()}; other={s()}"],
    "shell": lambda s: ["sh", "-c", f"export DB_PASSWORD='{s()}' && run --token {s()}"],
    "mysql": lambda s: ["mysql", "-u", "root", f"-p{s()}", "db"],
    "sshpass": lambda s: ["sshpass", "-p", s(), "ssh", "h"],
    "curl": lambda s: ["curl", "-u", f"alice:{s()}", "h"],
    "user@host": lambda s: ["rsync", f"alice:{s()}@host:/data"],
    "azure": lambda s: [f"DefaultEndpointsProtocol=https;AccountKey={s()}=="],
    "hugging face": lambda s: [f"hf_{s()}"],
    "github": lambda s: [f"ghp_{s()}"],
    "github, new": lambda s: [f"github_pat_{s()}"],
    "openai": lambda s: [f"sk-proj-{s()}"],
    "aws": lambda s: [f"AKIA{s()[:16].upper()}"],
    "gitlab": lambda s: [f"glpat-{s()}"],
    "slack": lambda s: [f"xoxb-{s()}"],
    "webhook": lambda s: [f"https://hooks.slack.com/services/{s()}"],
    "google": lambda s: [f"AIza{s()}{s()}"],
    "json web token": lambda s: [f"eyJ{s()}.{s()}.{s()}"],
    "passphrase": lambda s: ["--passphrase", s()],
    "in a path": lambda s: [f"--data=/data/token={s()}/train"],
    "encoded": lambda s: [f"redirect=x%3Fapi_key%3D{s()}"],
}
"""Ways to give a program a secret."""

NAMES: dict[str, Callable[[Word], str]] = {
    "assignment": lambda s: f"token={s()}",
    "password": lambda s: f"run_password={s()}",
    "camel case": lambda s: f"apiKey={s()}",
    "dotted": lambda s: f"model.auth.token={s()}",
    "hugging face": lambda s: f"hf_{s()}",
    "github": lambda s: f"run-ghp_{s()}",
    "openai": lambda s: f"sk-{s()}",
    "aws": lambda s: f"AKIA{s()[:16].upper()}",
    "gitlab": lambda s: f"glpat-{s()}",
    "slack": lambda s: f"xoxb-{s()}",
}
"""Secrets in labels, hosts, and parts of paths: all are legal names of files."""

URLS: dict[str, Callable[[Word], str]] = {
    "user": lambda s: f"https://alice:{s()}@host/data",
    "query": lambda s: f"https://host/data?sig={s()}",
    "key of s3": lambda s: f"s3://{s()}:{s()}@bucket/data",
}


class Canaries(Secrets):
    """Gives every field a secret in the next of the forms that it may have."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self._given = 0

    def word(self) -> str:
        word = "".join(self.random.choices(CONSONANTS, k=24))
        self.words.append(word)
        return word

    def __call__(self) -> str:
        forms = list(NAMES.values())
        self._given += 1
        return forms[self._given % len(forms)](self.word)

    def path(self, root: str) -> str:
        return f"{root}/{self()}/a {self()}/{self()}.abcd.h5"

    def command(self) -> list[str]:
        words = [word for form in COMMAND_WORDS.values() for word in form(self.word)]
        return ["/opt/python", "train.py", "--lr", "0.1", *words, "--epochs", "3"]

    def found_in(self, text: str) -> set[str]:
        """The words of which the text holds a third or more."""
        runs = "\n".join(set(_RUN.findall(text.lower())))
        return {word for word in self.words if word[:8] in runs or word[-8:] in runs}
