"""The programs of the tutorial in every language but Python, which ``make test`` runs, on the brokers of its pages."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import yaml

from tests.brokers.rabbitmq.server import RabbitServer
from tests.clients.languages import LANGUAGES, Language
from tests.clients.projects import MAKERS, Project
from tests.harness import tutorial
from tests.harness.gateway import gateway
from tests.harness.local import free_port
from tests.harness.tutorial import NAMES, RABBIT_URL, Reader

OTHERS = [language for language in LANGUAGES if language.name != "python"]


def _reader(language: Language, folder: Path, url: str) -> Reader:
    """One with a project beside a checkout, as the first page has it."""
    project = Project(language, folder)
    texts = tutorial.programs(language.name, url)
    commands = MAKERS[language.name](project, list(texts.values()))
    if language.name == "typescript":
        # They name no types: Node.js runs them as they are.
        commands = [["node", project.write(f"{name}.mjs", text)] for name, text in texts.items()]
    return Reader(dict(zip(NAMES, commands, strict=True)), project.folder, project.environment, url)


@pytest.mark.rabbitmq
@pytest.mark.parametrize("language", OTHERS, ids=lambda language: language.name)
def test_the_pages_are_true_for_each_language(language: Language, rabbit: RabbitServer, tmp_path: Path) -> None:
    name = f"tutorial-{uuid.uuid4().hex}"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    reader = _reader(language, tmp_path / "home", url)
    state = tmp_path / "state"
    state.mkdir()
    try:
        with gateway(state, {"port": port}):
            reader.first_message()
            reader.crash()
            reader.dead_letter()
        rabbit.add_vhost(name)
        (config,) = tutorial.blocks("4-rabbitmq", "yaml")
        given = yaml.safe_load(config.replace(RABBIT_URL, rabbit.url(name)))
        given["brokers"]["local"] = f"sqlite:///{state}/babelgate.db"
        with gateway(state, {"port": port, **given}):
            reader.first_message()
    finally:
        reader.close()
        if rabbit.is_running:
            rabbit.delete_vhost(name)
